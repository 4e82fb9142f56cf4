"""`corral run` with pipes: what goes where, exit codes, and what is said when something is wrong."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cli.terminal import Here, Project
from tests.forks import CORRAL, ForkedProcess
from tests.until import LIMIT_SECONDS

WEATHER = 'return await tools.get_weather({ city: "Oslo" })'


# --- the result and the console


def test_the_result_is_json_on_standard_output(project: Project) -> None:
    done = project.run(WEATHER)
    assert (done.stdout, done.stderr, done.returncode) == ('{\n  "city": "Oslo",\n  "sky": "clear"\n}\n', "", 0)


def test_a_text_is_printed_as_it_is_and_a_byte_order_mark_is_no_part_of_the_program(ready: Here) -> None:
    assert ready.execute('\ufeffreturn "# Report\\n\\nAll is \\u001b[1mwell\\u001b[0m."').stdout == (
        "# Report\n\nAll is \x1b[1mwell\x1b[0m.\n"
    )


def test_a_program_without_a_result_prints_none(ready: Here) -> None:
    assert ready.execute('console.log("done")').stdout == "done\n"


def test_the_console_and_what_tools_print_are_apart_from_the_result(project: Project) -> None:
    levels = "; ".join(f'console.{level}("{level}")' for level in ("log", "info", "debug", "warn", "error"))
    done = project.run(f'{levels}; await tools.chatter(); await tools.start_chatter(); return "result"')
    assert done.stdout == "log\ninfo\ndebug\nresult\n"
    assert sorted(done.stderr.splitlines()) == ["chatter of a process", "chatter of a tool", "error", "warn"]


def test_quiet_leaves_only_the_result(ready: Here) -> None:
    done = ready.execute('console.log("log"); console.warn("warn"); tools.who(); return [1]', "--quiet")
    assert (done.stdout, done.stderr) == ("[\n  1\n]\n", "")


def test_json_is_all_there_is_on_standard_output(ready: Here) -> None:
    done = ready.execute('console.log("log"); await tools.chatter(); await tools.start_chatter(); return 1', "--json")
    result = json.loads(done.stdout)
    assert (result["value"], result["console"], result["status"]) == (1, "log\n", "succeeded")
    assert done.stderr == "chatter of a tool\nchatter of a process\n"


def test_a_program_comes_from_standard_input_as_a_model_answers(project: Project) -> None:
    answer = f"Here you go:\n\n```typescript\n{WEATHER}\n```\n"
    assert '"sky": "clear"' in project.corral("run", "-", "--tools", "app.tools", "--no-check", input=answer).stdout


def test_a_pipe_that_is_closed_early_ends_the_run_in_silence(project: Project) -> None:
    project.write("program.ts", 'while (true) { console.log("line"); await tools.wait({ seconds: 0 }) }')
    pipe = subprocess.PIPE
    command = [CORRAL, "run", "program.ts", "--tools", "app.tools", "--no-check"]
    with ForkedProcess(command, stdout=pipe, stderr=pipe, cwd=project.directory) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "line\n"
        process.stdout.close()
        assert (process.wait(LIMIT_SECONDS), process.stderr.read()) == (141, "")


# --- on whose behalf, with what


def test_the_context_and_the_variables_are_what_the_options_say(ready: Here) -> None:
    options = ("--user", "u1", "--organization", "o1", "--session", "s1", "--scope", "a:read", "--scope", "b:read")
    program = "return [...await tools.who(), process.env.A, process.env.B].join()"
    done = ready.execute(program, *options, "--env", "A=1", "--env=B=--x=y")
    assert done.stdout == "u1,o1,s1,a:read,b:read,1,--x=y\n"


def test_a_network_and_skills_are_what_the_options_say(here: Here) -> None:
    here.write("greet/SKILL.md", "---\nname: greet\ndescription: Greets.\n---\n")
    here.write("greet/words.py", "word = 'hello'\n")
    here.write(
        "program.py",
        "from skills.greet.words import word\nimport urllib.request\ntry:\n"
        "    urllib.request.urlopen('http://127.0.0.1:9/')\nexcept Exception as error:\n    word += f' {error}'\nword",
    )
    done = here.main("run", "program.py", "--skill", "greet", "--network", "http://127.0.0.1:9", "--no-check")
    assert done.stdout.startswith("hello "), done.stderr
    assert "not public" in done.stdout


def test_a_cloud_asks_for_its_key_and_then_for_what_it_does_not_enforce(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("program.ts", "return 1")
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    said = here.main("run", "program.ts", "--sandbox", "e2b").stderr
    assert said == "error: --sandbox e2b needs a key: set E2B_API_KEY in the environment\n"
    monkeypatch.setenv("E2B_API_KEY", "x")
    said = here.main("run", "program.ts", "--sandbox", "e2b").stderr
    assert said.startswith("error: sandbox 'e2b' does not enforce cpu_seconds, memory_mb on this system; ")
    assert said.endswith("accept it with --accept-unenforced cpu_seconds --accept-unenforced memory_mb\n")


def test_options_that_make_no_sense_are_wrong_usage(here: Here) -> None:
    here.write("program.ts", "return 1")
    for option, value, said in (
        ("--calls", "many", "argument --calls: 'many' is not a whole number above 0"),
        ("--calls", "0", "argument --calls: '0' is not a whole number above 0"),
        ("--wall-seconds", "nan", "argument --wall-seconds: 'nan' is not a number above 0"),
        ("--env", "A", "argument --env: 'A' is not NAME=VALUE"),
        ("--audit", "nowhere/audit.jsonl", "argument --audit: there is no folder nowhere"),
    ):
        expected = f"error: {said}\nhelp: corral run --help lists the options\n"
        assert here.main("run", "program.ts", option, value) == (2, "", expected), (option, value)


def test_a_program_whose_tools_were_forgotten_is_told_so(ready: Here) -> None:
    file = ready.write("program.ts", "await tools.get_weather()")
    for command in (("run",), ("run", "--no-check"), ("check",)):
        done = ready.main(*command, file)
        assert done.returncode == 1
        assert "help: there are no tools; pass --tools PLACE or --mcp-config FILE" in done.stderr


def test_a_script_that_uses_corral_is_no_program(ready: Here) -> None:
    done = ready.main("run", "app/tools.py", "--no-check")
    assert "help: code that imports corral runs in Python itself: python app/tools.py" in done.stderr


# --- how it ends


def test_an_error_shows_the_place_in_the_source(ready: Here) -> None:
    done = ready.execute('const city = "Oslo";\nawait tools.get_weather({ town: city });\nreturn 1;\n')
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[1:6] == [
        "  --> program.ts:2:13",
        "  |",
        '1 | const city = "Oslo";',
        "2 | await tools.get_weather({ town: city });",
        "  |             ^",
    ]
    assert done.stderr.startswith("error[invalid_arguments]: ")
    assert "no tools were given" not in done.stderr


def test_an_error_shows_stack_and_cause_under_the_name_of_the_file(ready: Here) -> None:
    ready.write("job.ts", 'function f() { throw new Error("outer", { cause: new Error("inner") }) }\n\nf();\n')
    lines = ready.main("run", "job.ts", "--no-check").stderr.splitlines()
    assert lines[0] == "error[program_failed]: Error: outer"
    assert any(line.startswith("    at f (job.ts:1:") for line in lines)
    assert "    at job.ts:3:1" in lines
    assert "caused by: Error: inner" in lines


def test_what_a_tool_raised_is_logged_where_the_program_sees_only_that_it_failed(project: Project) -> None:
    done = project.run("await tools.break_down()")
    assert "ValueError: the disk is full" in done.stderr
    assert "error[tool_failed]: tools.break_down failed (correlation id" in done.stderr


def test_a_program_that_does_not_parse_is_shown_where(ready: Here) -> None:
    done = ready.execute("const a = 1;\nconst b = = 2;\n")
    assert done.returncode == 1
    assert "2 | const b = = 2;" in done.stderr


def test_limits_are_options_and_calls_that_were_made_are_listed_when_it_fails(ready: Here) -> None:
    caught = 'await tools.get_weather({ city: "Atlantis" }).catch(() => 0)'
    done = ready.execute(f'await tools.get_weather({{ city: "Oslo" }}); {caught}; await tools.who()', "--calls", "2")
    assert "error[call_budget_exceeded]: the budget of 2 tool calls is used up" in done.stderr
    assert "help: --calls sets the maximum number of tool calls" in done.stderr
    listed = done.stderr.splitlines()[-3:]
    assert listed[0] == "2 tool calls were made:"
    assert listed[1].startswith('  ✓ tools.get_weather({"city":"Oslo"}) ')
    assert listed[2] == '  ✗ tools.get_weather({"city":"Atlantis"}) ToolError: it is under water'


def test_a_call_that_nobody_awaited_is_a_warning_and_what_was_cut_short_is_a_note(ready: Here) -> None:
    program = 'tools.get_weather({ city: "Oslo" });\nconsole.log("a".repeat(50)); console.log("b".repeat(50)); return 1'
    done = ready.execute(program, "--log-bytes", "60")
    assert done.stdout.endswith("1\n")
    assert "warning: tools.get_weather was not awaited (program.ts:1:" in done.stderr
    assert "note: " in done.stderr
    assert "were dropped" in done.stderr


def test_what_does_not_end_times_out_and_a_tool_that_still_runs_does_not_hold_up_the_end(project: Project) -> None:
    done = project.run("await tools.wait_in_a_thread({ seconds: 3600 })", "--wall-seconds", "0.3")
    assert done.returncode == 1
    assert done.stderr.startswith("error[program_timeout]: the program exceeded its time limit of 0.3 s")


def test_progress_without_a_terminal_is_a_plain_line_per_call(ready: Here) -> None:
    done = ready.execute('await tools.get_weather({ city: "Atlantis" })', "--progress")
    call, *error = done.stderr.splitlines()
    assert call == '✗ tools.get_weather({"city":"Atlantis"}) ToolError: it is under water'
    assert error[0] == "error[tool_error]: it is under water"
    assert not any("were made" in line for line in error)


# --- programs that cannot be read


def test_a_program_that_cannot_be_read_is_said_in_one_line(here: Here) -> None:
    for content, said in (
        (None, "error: cannot read program.ts: No such file or directory\n"),
        (b"return '\xff'", "error: program.ts is not UTF-8: byte 9 is 0xff\n"),
    ):
        if content is not None:
            here.write("program.ts", content)
        assert here.main("run", "program.ts") == (2, "", said)
