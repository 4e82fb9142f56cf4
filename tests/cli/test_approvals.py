"""`corral run` asks on the terminal about calls that need an approval."""

from __future__ import annotations

import pytest

from tests.cli.terminal import Project

TOOLS = '''
from pathlib import Path

from corral import tool

@tool(needs_approval=True)
async def send(to: str, times: int = 1) -> str:
    """Sends."""
    return f"sent to {to}"

@tool
def held(name: str) -> None:
    """Waits until there is a byte in the pipe of this name."""
    with Path(name).open("rb", buffering=0) as pipe:
        pipe.read(1)
'''
ONE = "return await tools.send({ to: 'ann' })"
QUESTION = r"any other key = no\r\n"


@pytest.fixture
def project(project: Project) -> Project:
    project.write("app/tools.py", TOOLS)
    return project


def test_a_key_answers(project: Project) -> None:
    program = """
        const said = [];
        for (let n = 0; n < 3; n++) said.push(await tools.send({ to: "ann" }).catch((error) => error.message));
        return said;
    """
    with project.on_terminal(program) as terminal:
        for key in "yn\r":
            terminal.until(rf'tools\.send\({{"to": "ann", "times": 1}}\)\r\n.*{QUESTION}')
            terminal.press(key)
        assert terminal.ends() == 0
    refused = '"tools.send was not approved"'
    assert [line.strip(" ,") for line in terminal.screen[-4:]] == ['"sent to ann"', refused, refused, "]"]


def test_yes_to_every_call_of_a_tool_asks_once(project: Project) -> None:
    program = "return [await tools.send({ to: 'ann' }), await tools.send({ to: 'bob' })].join()"
    with project.on_terminal(program) as terminal:
        terminal.until(QUESTION)
        terminal.press("a")
        assert terminal.ends() == 0
    assert terminal.screen[-1] == "sent to ann,sent to bob"
    assert sum("needs your approval" in line for line in terminal.screen) == 1


def test_calls_at_the_same_time_are_asked_about_one_after_the_other(project: Project) -> None:
    program = "return (await Promise.all(['ann', 'bob'].map(to => tools.send({ to })))).join()"
    with project.on_terminal(program, "--quiet") as terminal:
        for name in ("ann", "bob"):
            terminal.until(rf'"to": "{name}"[\s\S]*{QUESTION}')
            terminal.press("y")
        assert terminal.ends() == 0
    assert terminal.screen[-1] == "sent to ann,sent to bob"


def test_keys_that_were_pressed_before_the_question_do_not_answer_it(project: Project) -> None:
    program = "console.log('begun'); await tools.held({ name: 'pipe' }); " + ONE
    with project.holding("pipe") as release, project.on_terminal(program, "--quiet") as terminal:
        terminal.press("y")
        terminal.until("y")  # as a terminal echoes what has arrived there
        release("pipe")
        terminal.until(QUESTION)
        terminal.press("n")
        assert terminal.ends() == 1
    assert "tools.send was not approved" in terminal.screen[-1]


def test_ctrl_c_at_the_question_cancels_the_run(project: Project) -> None:
    with project.on_terminal(ONE) as terminal:
        terminal.until(QUESTION)
        terminal.interrupt()
        assert terminal.ends() == 130


def test_no_input_drives_the_terminal_or_is_approved_unseen(project: Project) -> None:
    program = r"""
        const ask = (to) => tools.send({ to }).catch((error) => error.message);
        await ask("\x1b[2J\x9b");
        await ask("\u202eann\u2028");
        const asked = ask("eve");
        console.log('? tools.send({"to":"ann"})');
        await asked;
        return (await ask("x".repeat(4000))).slice(0, 70);
    """
    with project.on_terminal(program) as terminal:
        for _ in range(3):
            terminal.until(QUESTION)
            terminal.press("n")
        assert terminal.ends() == 0
    assert "tools.send" in terminal.screen[0]
    assert "\x9b" not in terminal.output
    assert terminal.output.count("\x1b[2J") == 0
    assert any(r"\u{202e}ann\u{2028}" in line for line in terminal.screen)
    # A program cannot print another question below the real one.
    real = terminal.output.index('"eve"')
    assert "ann" not in terminal.output[real : terminal.output.index("denied", real)]
    assert terminal.screen[-1] == "tools.send was not approved: its input takes more than 4,000 character"


def test_without_a_terminal_or_by_flag_it_is_denied_or_approved_and_the_audit_log_says_so(project: Project) -> None:
    for flags in (["--audit", "audit.jsonl", "--user", "ann", "--organization", "acme"], ["--approve", "none"]):
        done = project.run(ONE, *flags)
        assert done.returncode == 1
        assert "no one is available to approve it" in done.stderr
    shown = project.corral("audit", "audit.jsonl", "--organization", "acme")
    assert shown.returncode == 0, shown.stderr
    assert "requires approval" in shown.stdout
    assert "requires approval" not in project.corral("audit", "audit.jsonl", "--organization", "globex").stdout
    assert project.run(ONE, "--approve", "all").stdout == "sent to ann\n"
