"""`corral run program.py` and `corral types --language python`."""

from __future__ import annotations

import ast
import json
import subprocess

import pytest

from tests.cli.terminal import Project

WEATHER = 'await tools.get_weather(city="Oslo")'


def run(project: Project, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = project.write("program.py", program)
    return project.corral("run", program, "--tools", "app.tools", "--no-check", *arguments)


@pytest.mark.parametrize("engine", ["auto", "monty"])
def test_a_file_of_python_runs_in_every_engine(project: Project, engine: str) -> None:
    done = run(project, f"print('hi')\n{WEATHER}", "--engine", engine)
    assert (done.stdout, done.stderr, done.returncode) == ('hi\n{\n  "city": "Oslo",\n  "sky": "clear"\n}\n', "", 0)


def test_standard_input_is_python_if_it_is_said_so(project: Project) -> None:
    answer = f"Here you go:\n\n```python\n{WEATHER}\n```\n"
    done = project.corral("run", "-", "--language", "python", "--tools", "app.tools", input=answer)
    assert '"sky": "clear"' in done.stdout


def test_an_error_is_shown_in_the_models_own_source(project: Project) -> None:
    done = run(project, "x = 1\nx / 0")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "error[program_failed]: ZeroDivisionError: division by zero" in done.stderr
    assert "--> program.py:2:1" in done.stderr


def test_what_does_not_parse_is_shown_too(project: Project) -> None:
    done = run(project, "x = (1,\n")
    assert "error[program_rejected]: SyntaxError: '(' was never closed" in done.stderr
    assert "--> program.py:1:5" in done.stderr


def test_prints_to_standard_error_stay_there(project: Project) -> None:
    done = run(project, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n'text'")
    assert (done.stdout, done.stderr) == ("out\ntext\n", "err\n")


def test_variables_and_limits_are_those_of_the_options(project: Project) -> None:
    done = run(project, "import os\nreturn os.environ['A']", "--env", "A=1")
    assert done.stdout == "1\n"
    done = run(project, "await tools.who()\nawait tools.who()", "--calls", "1")
    assert "error[call_budget_exceeded]: the budget of 1 tool call is used up" in done.stderr


def test_the_whole_result_is_json(project: Project) -> None:
    result = json.loads(run(project, "{float('inf'): b'a'}", "--json").stdout)
    assert (result["language"], result["status"], result["value"]) == ("python", "succeeded", {"inf": "YQ=="})


def test_packages_are_python_that_may_be_imported(project: Project) -> None:
    done = run(project, "import annotated_types\nannotated_types.__name__", "--package", "annotated-types")
    assert (done.stdout, done.stderr) == ("annotated_types\n", "")


@pytest.mark.parametrize(
    "options", [("--engine", "monty", "--package", "numpy"), ("--engine", "monty", "--tier", "landlock")]
)
def test_options_that_do_not_fit_together_are_wrong_usage(project: Project, options: tuple[str, ...]) -> None:
    done = run(project, "1", *options)
    assert "Monty has no packages and no tiers" in done.stderr
    assert done.returncode == 2


def test_declarations_in_python_are_python(project: Project) -> None:
    done = project.corral("types", "--tools", "app.tools", "--language", "python")
    assert "async def get_weather(*, city: str) ->" in done.stdout
    assert "The weather now." in done.stdout
    ast.parse(done.stdout)
    assert (done.stderr, done.returncode) == ("", 0)
