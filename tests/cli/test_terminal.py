"""`corral run` on a terminal: live lines, and Ctrl-C."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.cli.terminal import Project, Terminal
from tests.forks import CORRAL
from tests.processes import assert_ending, descendants

FOREVER = "console.log('started'); await tools.get_weather({ city: 'Oslo' }); await tools.wait({ seconds: 600 })"

LOADING = """
import signal
import sys


class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "corral.cli.dispatch":
            signal.raise_signal(signal.SIGINT)


sys.meta_path.insert(0, Interrupting())
"""


def test_a_call_has_a_line_while_it_runs_and_one_when_it_has_ended(project: Project) -> None:
    with project.holding("a") as release, project.on_terminal("await tools.held({ name: 'a' }); return 1") as terminal:
        terminal.until(r'⠙\S* tools\.held\({"name":"a"}\)')
        release("a")
        assert terminal.ends() == 0
    call, value = terminal.screen
    assert re.fullmatch(r'✓ tools\.held\({"name":"a"}\) (<?\d+ ms|\d+\.\d s)', call)
    assert value == "1"


def test_concurrent_calls_have_a_line_each(project: Project) -> None:
    program = "await Promise.all(['a', 'b', 'c'].map(name => tools.held({ name }))); return"
    with project.holding("a", "b", "c") as release, project.on_terminal(program) as terminal:
        terminal.until(r'"a"}\)\r\n.*"b"}\)\r\n.*"c"}\)\r\n')
        for name in "cba":
            release(name)
            terminal.until(rf'✓.*"{name}"')
        assert terminal.ends() == 0
    assert [re.findall(r'[✓✗]|(?<=")[abc](?=")', line) for line in terminal.screen] == [["✓", name] for name in "cba"]


def test_more_calls_than_the_screen_has_lines_are_counted(project: Project) -> None:
    program = "await Promise.all(Array.from({ length: 9 }, () => tools.held({ name: 'a' }))); return"
    with project.holding("a") as release, project.on_terminal(program, rows=6) as terminal:
        terminal.until("and 5 more")
        for _ in range(9):
            release("a")
        assert terminal.ends() == 0
    assert len(terminal.screen) == 9


def test_live_lines_stay_out_of_what_program_and_tools_print(project: Project) -> None:
    program = """
        const waiting = tools.held({ name: "a" });
        await tools.held({ name: "b" });
        console.log("printed by the program");
        await tools.chatter();
        console.warn("a warning");
        await waiting;
        return;
    """
    with project.holding("a", "b") as release, project.on_terminal(program) as terminal:
        terminal.until(r'"a"}\)\r\n.*"b"}\)\r\n')
        release("b")
        terminal.until("a warning")
        release("a")
        assert terminal.ends() == 0
    lines = [line for line in terminal.screen if not line.startswith("✓ tools.chatter")]
    assert sorted(line[:12] for line in lines) == ["a warning", "chatter of a", "printed by t", *["✓ tools.held"] * 2]


def test_no_line_is_wider_than_the_terminal(project: Project) -> None:
    program = "await tools.get_weather({ city: '東京'.repeat(40) }); await tools.get_weather({ town: 'x'.repeat(99) })"
    with project.on_terminal(program, columns=50) as terminal:
        assert terminal.ends() == 1
    called, failed = terminal.screen[:2]
    assert re.fullmatch(r'✓ tools\.get_weather\({"city":"[東京]{5,7}… (<1|\d+) ms', called)
    assert len(failed) < 50
    assert failed.startswith("✗ tools.get_weather")


def test_a_program_cannot_drive_the_terminal(project: Project) -> None:
    with project.on_terminal("console.log('\\u001b]0;title\\u0007'); return '\\u009b2J'") as terminal:
        assert terminal.ends() == 0
    assert terminal.screen == [r"\x1b]0;title\x07", r"\x9b2J"]


def test_colors_are_off_where_they_are_not_wanted(project: Project) -> None:
    with project.on_terminal("await tools.break_down()") as terminal:
        assert terminal.ends() == 1
        assert "\x1b[31m✗" in terminal.output
    with project.on_terminal("await tools.break_down()", NO_COLOR="1") as terminal:
        assert terminal.ends() == 1
        assert "\x1b[31m" not in terminal.output


def test_something_moves_while_a_program_computes_and_an_interrupt_ends_it_and_nothing_stays(project: Project) -> None:
    with project.on_terminal("console.log('started'); while (true) {}") as terminal:
        terminal.until(r"started[\s\S]*running, \d+ s")
        children = descendants(terminal.process.pid)
        assert children, "there was no guest"
        terminal.interrupt()
        assert terminal.ends() == 130
    assert_ending(children)
    assert terminal.screen == ["started", "error[cancelled]: the execution was cancelled"]


def test_something_moves_while_tools_are_imported(project: Project) -> None:
    slow = "with open('a', 'rb', buffering=0) as pipe:\n    pipe.read(1)\n"
    project.write("slow.py", f"{slow}def nothing(): ...\ntools = [nothing]\n")
    with project.holding("a") as release, project.on_terminal("return 1", "--tools", "slow") as terminal:
        terminal.until("starting")
        release("a")
        assert terminal.ends() == 0
    assert terminal.screen == ["1"]


def test_a_program_is_asked_for_where_it_is_typed(project: Project) -> None:
    with Terminal([CORRAL, "run", "-"], project.directory, columns=100, rows=30, env={}) as terminal:
        terminal.until("reading the program from this terminal; end it with Ctrl-D")
        terminal.press("return 6 * 7\n\x04")
        assert terminal.ends() == 0
    assert terminal.screen[-1] == "42"


def test_an_interrupt_is_no_failure_while_corral_is_still_being_loaded(project: Project) -> None:
    project.write("sitecustomize.py", LOADING)
    with project.on_terminal("return 1", PYTHONPATH=str(project.directory)) as terminal:
        assert terminal.ends() == 130
    assert terminal.screen == []


def test_quiet_has_no_live_lines(project: Project) -> None:
    with project.on_terminal("await tools.wait({ seconds: 0 }); return 1", "--quiet") as terminal:
        assert terminal.ends() == 0
    assert terminal.screen == ["1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_the_run_and_leaves_nothing_behind(project: Project, number: signal.Signals) -> None:
    with project.on_terminal(FOREVER) as terminal:
        terminal.until(r"tools\.wait")
        children = descendants(terminal.process.pid)
        assert children, "there was no guest"
        os.killpg(terminal.process.pid, number)
        assert terminal.ends() == 130
    assert_ending(children)
    assert terminal.screen[0] == "started"
    assert [line[:18] for line in terminal.screen[1:3]] == ["✓ tools.get_weathe", '✗ tools.wait({"sec']
    assert terminal.screen[-1] == "error[cancelled]: the execution was cancelled"


def test_a_second_interrupt_quits_while_a_tool_blocks_everything(project: Project) -> None:
    with project.on_terminal("await tools.block_the_loop_while_interrupted({ times: 2 })") as terminal:
        assert terminal.ends() == 130
    assert "Traceback" not in terminal.output
