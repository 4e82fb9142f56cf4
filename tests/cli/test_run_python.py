"""`corral run program.py` and `corral types --language python`."""

from __future__ import annotations

import ast
import json
import subprocess

import pytest

from tests.cli.terminal import Here, Project

WEATHER = 'await tools.get_weather(city="Oslo")'


def run(project: Project, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = project.write("program.py", program)
    return project.corral("run", program, "--tools", "app.tools", "--no-check", *arguments)


def test_the_engine_is_an_option(here: Here) -> None:
    here.write("program.py", "import sys\nlist(sys.version_info[:2])")
    done = here.main("run", "program.py", "--no-check", "--sandbox", "monty")
    assert (json.loads(done.stdout), done.returncode) == ([3, 14], 0), done.stderr  # jailed programs run in this Python


@pytest.mark.matrix("test_the_engine_is_an_option, and tests/e2e which is chosen without; here each in a process")
def test_a_file_of_python_runs_in_every_engine(project: Project) -> None:
    program = f"print('hi')\n{WEATHER}"
    printed = 'hi\n{\n  "city": "Oslo",\n  "sky": "clear"\n}\n'
    done = run(project, f"import sys\nprint('err', file=sys.stderr)\n{program}")
    assert (done.stdout, done.stderr, done.returncode) == (printed, "err\n", 0)
    done = run(project, program, "--sandbox", "monty")
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)


def test_an_error_is_shown_in_the_models_own_source(ready: Here) -> None:
    done = ready.main("run", ready.write("program.py", "x = 1\nx / 0"), "--no-check")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "error[program_failed]: ZeroDivisionError: division by zero" in done.stderr
    assert "--> program.py:2:1" in done.stderr


def test_packages_are_python_that_may_be_imported(project: Project) -> None:
    done = run(project, "import annotated_types\nannotated_types.__name__", "--python-package", "annotated-types")
    assert (done.stdout, done.stderr) == ("annotated_types\n", "")


def test_options_that_do_not_fit_together_are_wrong_usage(here: Here) -> None:
    here.write("program.py", "1")
    for options in (("--python-package", "numpy"), ("--tier", "landlock")):
        done = here.main("run", "program.py", "--tools", "app.tools", "--sandbox", "monty", *options)
        assert "cannot be used with --sandbox monty" in done.stderr
        assert done.returncode == 2


def test_declarations_in_python_are_python(here: Here) -> None:
    done = here.main("types", "--tools", "app.tools", "--language", "python")
    assert "async def get_weather(*, city: str) ->" in done.stdout
    assert "The weather now." in done.stdout
    ast.parse(done.stdout)
    assert (done.stderr, done.returncode) == ("", 0)
