"""`corral check`, and what `corral run` says of programs that do not fit the declarations."""

from __future__ import annotations

import json

import pytest

from tests.cli.terminal import Ended, Here, Project

FITS = '(await tools.get_weather(city="Oslo"))["city"]'
WRONG = 'const city = "Oslo";\nreturn await tools.get_weather({ town: city });\n'
WARNED = 'count: int = "3"\n'


def check(here: Here, program: str, *arguments: str, file: str = "program.ts") -> Ended:
    return here.main("check", here.write(file, program), "--tools", "app.tools", *arguments)


def run(here: Here, program: str, *arguments: str, file: str = "program.ts") -> Ended:
    return here.main("run", here.write(file, program), "--tools", "app.tools", *arguments)


# --- corral check


def test_a_mistake_is_shown_with_its_place_and_the_declaration(project: Project) -> None:
    done = project.corral("check", project.write("program.ts", WRONG), "--tools", "app.tools")
    assert (done.stdout, done.returncode) == ("program.ts would not run: 1 error\n", 1)
    message, *place, declared = done.stderr.splitlines()
    assert message.startswith("error[input]: 'city' is missing")
    assert "'town'" in message
    assert place == [
        "  --> program.ts:2:34",
        "  |",
        '1 | const city = "Oslo";',
        "2 | return await tools.get_weather({ town: city });",
        "  |                                  ^",
    ]
    assert declared.startswith("declared: tools.get_weather(input: { city: string")


def test_warnings_come_after_errors_and_do_not_count(ready: Here) -> None:
    done = check(ready, f'{WARNED}await tools.get_wether(city="Oslo")\n', file="program.py")
    assert (done.stdout, done.returncode) == ("program.py would not run: 1 error\n", 1)
    error, warning = (line for line in done.stderr.splitlines() if "[ty:" in line)
    assert error.startswith("error[ty:")
    assert "get_wether" in error
    assert warning.startswith("warning[ty:")
    done = check(ready, f"{WARNED}count\n", file="program.py")
    assert done.stderr.startswith("warning[ty:")
    assert (done.stdout, done.returncode) == ("program.py fits the declarations\n", 0)


def test_what_cannot_be_a_program_is_shown_where(ready: Here) -> None:
    done = check(ready, "const a = 1;\nconst b = [2;\n")
    assert (done.stdout, done.returncode) == ("program.ts would not run: 1 error\n", 1)
    assert done.stderr.startswith("error[program_rejected]: ")
    assert "2 | const b = [2;" in done.stderr


def test_a_module_that_programs_cannot_have_is_an_error(ready: Here) -> None:
    ready.write("data/mine.py", "one = 1\n")
    program = "import numpy, httpx, mine\ntry:\n    import pandas\nexcept ImportError:\n    pass\n1\n"
    done = check(ready, program, "--python-package", "httpx", "--workspace", "data", file="program.py")
    assert (done.stdout, done.returncode) == ("program.py would not run: 1 error\n", 1)
    said = [line.partition(" ")[::2] for line in done.stderr.splitlines() if "import-not-found" in line]
    assert [(kind, text[:19]) for kind, text in said] == [
        ("error[ty:import-not-found]:", "module 'numpy' is n"),
        ("warning[ty:import-not-found]:", "Cannot resolve impo"),
    ]
    program = 'import JSZip from "jszip";\nimport { Unused } from "types-only";\nreturn new JSZip()\n'
    done = check(ready, program)
    assert done.returncode == 1
    assert "error[import]: module 'jszip' is not available to programs; --packages FOLDER" in done.stderr
    assert "program.ts:1:19" in done.stderr
    assert "types-only" not in done.stderr.partition("-->")[0]


def test_a_models_answer_comes_from_standard_input(project: Project) -> None:
    answer = f"Here you go:\n\n```python\n{FITS}\n```\n"
    done = project.corral("check", "-", "--language", "python", "--tools", "app.tools", input=answer)
    assert (done.stdout, done.returncode) == ("<stdin> fits the declarations\n", 0)


def test_an_environment_is_there_if_one_would_be_passed(ready: Here) -> None:
    program = "return process.env.A"
    assert "process" in check(ready, program).stderr
    done = check(ready, program, "--env", "A=1")
    assert (done.stdout, done.stderr, done.returncode) == ("program.ts fits the declarations\n", "", 0)


def test_json_has_all_that_was_found(ready: Here) -> None:
    done = check(ready, WRONG, "--json")
    found = json.loads(done.stdout)
    [diagnostic] = found.pop("diagnostics")
    assert found == {"passed": False, "checked": True, "language": "typescript"}
    assert diagnostic.keys() == {"severity", "message", "code", "line", "column", "show"}
    assert (diagnostic["severity"], diagnostic["line"], diagnostic["column"]) == ("error", 2, 34)
    assert (done.stderr, done.returncode) == ("", 1)


def test_without_a_language_server_it_is_said_how_to_get_one(project: Project) -> None:
    program = project.write("program.py", FITS)
    done = project.corral_without_ty("check", program, "--tools", "app.tools")
    assert done.stdout == "program.py was not type-checked: there is no language server for python\n"
    assert (done.stderr, done.returncode) == ("help: pip install ty\n", 3)


def test_wrong_use_is_no_verdict(here: Here) -> None:
    for arguments in (["nowhere.ts"], []):
        done = here.main("check", *arguments)
        assert (done.stdout, done.returncode) == ("", 2)
        assert done.stderr


# --- corral run


def test_a_program_that_does_not_fit_is_not_run(ready: Here) -> None:
    done = run(ready, f'await tools.get_weather({{ city: "Rome" }});\n{WRONG}')
    assert (done.stdout, done.returncode) == ("", 1)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error[program_rejected]: ")
    assert lines[0].endswith("it does not fit the declarations.")
    assert lines[1].startswith("error[input]: 'city' is missing")
    assert "3 | return await tools.get_weather({ town: city });" in lines
    assert lines[-1] == "help: corral types shows the tools' parameters"
    assert done.stderr.count("'town'") == 1


def test_the_result_says_that_the_program_was_checked(ready: Here) -> None:
    result = json.loads(run(ready, FITS, "--json", file="program.py").stdout)
    assert (result["value"], result["checked"], result["diagnostics"]) == ("Oslo", True, [])
    assert (result["language"], result["status"]) == ("python", "succeeded")


def test_unchecked_it_fails_where_it_is_wrong(ready: Here) -> None:
    done = run(ready, WRONG, "--no-check", "--json")
    result = json.loads(done.stdout)
    assert (result["error"]["code"], result["checked"]) == ("invalid_arguments", False)
    assert (done.stderr, done.returncode) == ("", 1)


@pytest.mark.matrix("the gate says how to get a language server; here its program runs")
def test_without_a_language_server_a_program_runs_unchecked(project: Project) -> None:
    program = project.write("program.py", FITS)
    done = project.corral_without_ty("run", program, "--tools", "app.tools", "--json")
    result = json.loads(done.stdout)
    assert (result["value"], result["checked"], done.stderr) == ("Oslo", False, "")


def test_warnings_are_told_only_of_a_program_that_failed(ready: Here) -> None:
    assert run(ready, f"{WARNED}count", file="program.py").stderr == ""
    done = run(ready, f"{WARNED}raise ValueError(count)", file="program.py")
    warning, error, *_ = done.stderr.splitlines()
    assert warning.startswith("warning: ")
    assert warning.endswith(" (program.py:1:14)")
    assert error == "error[program_failed]: ValueError: 3"
