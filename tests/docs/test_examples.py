"""The examples that people copy print what their READMEs show."""

from __future__ import annotations

from pathlib import Path

import pytest

from corral.sandboxes import CPythonSandbox, DenoSandbox
from tests.docs.examples import run_as_main, shared_engines
from tests.docs.markdown import ROOT, blocks

EXAMPLES = ROOT / "examples"
SHORT = ["analyst", "bot", "gateway", "repository", "server"]
LINES = 120
"""The most that one reads before copying."""


def test_short_examples_are_short_and_have_a_readme_of_one_screen() -> None:
    for name in SHORT:
        assert len((EXAMPLES / name / "main.py").read_text("utf-8").splitlines()) < LINES
        assert len((EXAMPLES / name / "README.md").read_text("utf-8").splitlines()) < 50
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()} - {"__pycache__"}
    assert {name for name in folders if not (EXAMPLES / name / "README.md").exists()} == set()


def shown(name: str) -> str:
    [printed] = [block.text for block in blocks(EXAMPLES / name / "README.md") if block.language == "text"]
    return printed


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            each, marks=[pytest.mark.matrix("the gate has bridges and policies of tests/bridges; a whole example")]
        )
        if each == "gateway"
        else each
        for each in SHORT
        if each != "analyst"
    ],
)
def test_examples_print_what_their_readmes_show(
    name: str, warm_deno: DenoSandbox, warm_cpython: CPythonSandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    with shared_engines(warm_deno, warm_cpython):
        raised = run_as_main(EXAMPLES / name / "main.py")
    assert (raised, capfd.readouterr()) == ("", (shown(name), ""))


@pytest.mark.matrix("the gate has tests of pandas and of figures; a whole example, which imports both for each program")
def test_the_analyst_prints_what_its_readme_shows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path))
        raised = run_as_main(EXAMPLES / "analyst" / "main.py")
    assert (raised, capfd.readouterr()) == ("", (shown("analyst"), ""))
