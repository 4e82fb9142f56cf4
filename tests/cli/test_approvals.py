"""`corral run` asks on the terminal about calls that need an approval."""

from __future__ import annotations

import pytest

from tests.cli.terminal import Project

TOOLS = '''
from corral import tool

@tool(needs_approval=True)
async def send(to: str, times: int = 1) -> str:
    """Sends."""
    return f"sent to {to}"
'''
ONE = "return await tools.send({ to: 'ann' })"
CAUGHT = "try { return await tools.send({ to: 'ann' }) } catch (error) { return error.message }"


@pytest.fixture
def project(project: Project) -> Project:
    project.write("app/tools.py", TOOLS)
    return project


@pytest.mark.parametrize(
    ("key", "value"),
    [("y", "sent to ann"), ("n", "tools.send was not approved"), ("\r", "tools.send was not approved")],
)
def test_a_key_answers(project: Project, key: str, value: str) -> None:
    with project.on_terminal(CAUGHT) as terminal:
        terminal.until(r'tools\.send\({"to": "ann", "times": 1}\)\r\n.*any other key = no\r\n')
        terminal.press(key)
        assert terminal.ends() == 0
    assert terminal.screen[-1] == value


def test_yes_to_every_call_of_a_tool_asks_once(project: Project) -> None:
    program = "return [await tools.send({ to: 'ann' }), await tools.send({ to: 'bob' })].join()"
    with project.on_terminal(program) as terminal:
        terminal.until("any other key = no\r\n")
        terminal.press("a")
        assert terminal.ends() == 0
    assert terminal.screen[-1] == "sent to ann,sent to bob"
    assert sum("needs your approval" in line for line in terminal.screen) == 1


def test_calls_at_the_same_time_are_asked_about_one_after_the_other(project: Project) -> None:
    program = "return (await Promise.all(['ann', 'bob'].map(to => tools.send({ to })))).join()"
    with project.on_terminal(program, "--quiet") as terminal:
        for name in ("ann", "bob"):
            terminal.until(rf'"to": "{name}"[\s\S]*any other key = no\r\n')
            terminal.press("y")
        assert terminal.ends() == 0
    assert terminal.screen[-1] == "sent to ann,sent to bob"


def test_keys_that_were_pressed_before_the_question_do_not_answer_it(project: Project) -> None:
    program = "console.log('ready'); for (let i = 0; i < 3e8; i++); " + CAUGHT
    with project.on_terminal(program) as terminal:
        terminal.until("ready\r\n")
        terminal.press("y")
        terminal.until("any other key = no\r\n")
        terminal.press("n")
        assert terminal.ends() == 0
    assert terminal.screen[-1] == "tools.send was not approved"


def test_ctrl_c_at_the_question_cancels_the_run(project: Project) -> None:
    with project.on_terminal(ONE) as terminal:
        terminal.until("any other key = no\r\n")
        terminal.interrupt()
        assert terminal.ends() == 130


def test_control_characters_of_an_input_do_not_reach_the_terminal(project: Project) -> None:
    with project.on_terminal("try { await tools.send({ to: '\\x1b[2J\\x9b' }) } catch {}") as terminal:
        terminal.until("any other key = no\r\n")
        terminal.press("n")
        assert terminal.ends() == 0
    assert "tools.send" in terminal.screen[0]
    assert "\x9b" not in terminal.output
    assert terminal.output.count("\x1b[2J") == 0


def test_a_program_cannot_print_another_question_below_the_real_one(project: Project) -> None:
    program = "const sent = tools.send({ to: 'eve' }); console.log('? tools.send({\"to\":\"ann\"})'); try { await sent } catch {}"
    with project.on_terminal(program) as terminal:
        terminal.until("any other key = no\r\n")
        terminal.press("n")
        assert terminal.ends() == 0
    real = terminal.output.index('"eve"')
    assert "ann" not in terminal.output[real : terminal.output.index("denied")]


def test_what_is_too_long_to_be_seen_is_denied(project: Project) -> None:
    with project.on_terminal(
        "return (await tools.send({ to: 'x'.repeat(4000) }).catch((e) => e.message)).slice(0, 70)"
    ) as terminal:
        assert terminal.ends() == 0
    assert terminal.screen[-1] == "tools.send was not approved: its input takes more than 4,000 character"


def test_directions_and_other_line_ends_are_shown_as_escapes(project: Project) -> None:
    with project.on_terminal("try { await tools.send({ to: '\\u202eann\\u2028' }) } catch {}") as terminal:
        terminal.until("any other key = no\r\n")
        terminal.press("n")
        assert terminal.ends() == 0
    assert r"\u{202e}ann\u{2028}" in terminal.screen[0]


@pytest.mark.parametrize("flags", [[], ["--approve", "none"]])
def test_without_a_terminal_or_by_flag_it_is_denied(project: Project, flags: list[str]) -> None:
    done = project.run(ONE, *flags)
    assert done.returncode == 1
    assert "nobody can be asked for it here" in done.stderr


def test_all_can_be_approved_by_flag(project: Project) -> None:
    assert project.run(ONE, "--approve", "all").stdout == "sent to ann\n"


def test_an_audit_log_can_be_written_and_shown(project: Project) -> None:
    project.run(ONE, "--audit", "audit.jsonl", "--user", "ann", "--organization", "acme")
    shown = project.corral("audit", "audit.jsonl", "--organization", "acme")
    assert shown.returncode == 0, shown.stderr
    assert "needs an approval" in shown.stdout
    assert "needs an approval" not in project.corral("audit", "audit.jsonl", "--organization", "globex").stdout
