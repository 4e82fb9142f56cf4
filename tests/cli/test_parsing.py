"""Arguments that no command takes: which one it is, and what was probably meant."""

from __future__ import annotations

import pytest

from tests.cli.terminal import Here, Project

WRONG = [
    ("rn program.ts", "unknown command 'rn'; did you mean corral run?", "corral"),
    ("run.ts", "unknown command 'run.ts'; did you mean corral run run.ts?", "corral"),
    (
        "xyz",
        (
            "unknown command 'xyz'; known: run, check, types, serve, chat, shell, worker, mcp, packages, policy, audit, "
            "executions, snippets, doctor"
        ),
        "corral",
    ),
    ("--verson", "corral has no option --verson; did you mean --version?", "corral"),
    ("--tools app.tools run run.ts", "--tools comes after the command, as in corral run --tools", "corral"),
    ("run --tool app.tools", "corral run has no option --tool; did you mean --tools?", "corral run"),
    ("run run.ts --tool=app.tools", "corral run has no option --tool; did you mean --tools?", "corral run"),
    ("run run.ts --memory 3", "corral run has no option --memory; did you mean --memory-mb?", "corral run"),
    ("run run.ts --timeout 3", "corral run has no option --timeout; did you mean --wall-seconds?", "corral run"),
    (
        "mcp --limit calls=3",
        "corral mcp has no option --limit; did you mean --wall-seconds, --cpu-seconds, --memory-mb or --calls?",
        "corral mcp",
    ),
    ("serve --limit 3", "corral serve has no option --limit; did you mean --calls?", "corral serve"),
    ("run run.ts -x", "corral run has no option -x", "corral run"),
    ("run run.ts more", "'more' is an unexpected argument", "corral run"),
    (
        "run run.ts app/tools.py",
        "'app/tools.py' is an unexpected argument; did you mean --tools app/tools.py?",
        "corral run",
    ),
    (
        "mcp servers.json",
        "'servers.json' is an unexpected argument; did you mean --mcp-config servers.json?",
        "corral mcp",
    ),
    ("doctor here.json", "'here.json' is an unexpected argument", "corral doctor"),
    ("run", "the following arguments are required: PROGRAM", "corral run"),
]


def test_wrong_arguments_are_said_in_one_line_and_help_in_another(here: Here) -> None:
    here.write("run.ts", "return 1")
    told = {line: (2, "", f"error: {said}\nhelp: {of} --help lists the options\n") for line, said, of in WRONG}
    assert {line: here.main(*line.split()) for line in told} == told


def test_without_a_command_help_is_shown(here: Here) -> None:
    done = here.main()
    assert (done.stdout, done.returncode) == ("", 2)
    assert done.stderr == here.main("--help").stdout


def test_one_is_not_many(project: Project) -> None:
    project.write("run.ts", "return await tools.who()")
    assert project.corral("run", "--tools", "app.tools:who", "--audit", "log.jsonl", "--", "run.ts").returncode == 0
    assert "(1 call)" in project.corral("audit", "log.jsonl", "--kind", "execution").stdout
    counted = project.corral("mcp", "--tools", "app.tools:who", "--list").stdout.splitlines()
    assert [" ".join(each.split()[-4:-2]) for each in counted] == ["3 tools", "1 tool", "1 tool"]


def test_options_that_are_not_given_are_read_from_variables(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write("program.ts", "return 1")
    monkeypatch.setenv("CORRAL_TOOLS", "app.tools:who 'app/tools.py:wait'")
    for variable, value, given, said in [
        ("CORRAL_LANGUAGE", "python", (), "async def who"),
        ("CORRAL_LANGUAGE", "python", ("--language", "typescript"), "who(): Promise"),
        ("CORRAL_BUDGET", "x", (), "error: argument --budget: invalid int value: 'x' (of CORRAL_BUDGET)"),
        ("CORRAL_TOOLS", "'a", (), "error: argument --tools: No closing quotation (of CORRAL_TOOLS)"),
    ]:
        with monkeypatch.context() as changed:
            changed.setenv(variable, value)
            done = here.main("types", *given)
            assert said in done.stdout + done.stderr
            assert "wait(" in done.stdout or done.returncode == 2
    monkeypatch.setenv("CORRAL_HIDE_DENIED", "perhaps")
    monkeypatch.setenv("CORRAL_PORT", "tcp://10.0.0.1:8787")
    assert "argument --hide-denied: 'perhaps' is not 1 or 0" in here.main("serve").stderr
    assert "--drain-seconds from CORRAL_DRAIN_SECONDS" in here.main("serve", "--help").stdout
