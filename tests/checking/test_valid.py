"""The programs that a check must let pass run well: what fails when it runs is no measure of a check."""

from __future__ import annotations

import json

import pytest

from corral import Corral
from corral.sandboxes import CPythonSandbox, DenoSandbox
from tests.checking.corpora import EACH_OR_SOME, unsuccessful, valid_python_programs
from tests.checking.tools import TOOLS
from tests.checking.typescript import valid_programs

pytestmark = pytest.mark.anyio

TOGETHER = 20


def in_one(programs: dict[str, str]) -> str:
    """A program that runs several, each as a function, and fails with the names of those that fail."""
    functions = ",\n".join(f"{json.dumps(name)}: async () => {{\n{source}\n}}" for name, source in programs.items())
    return f"""
        const failed = [];
        for (const [name, run] of Object.entries({{ {functions} }})) {{
          try {{ await run() }} catch (error) {{ failed.push(`${{name}}: ${{error}}`) }}
        }}
        if (failed.length > 0) throw new Error(failed.join("\\n"));
    """


@EACH_OR_SOME
async def test_valid_programs_in_typescript_succeed(warm_deno: DenoSandbox, step: int) -> None:
    """Runs most as functions of one program, which takes a tenth of the time, and those alone that cannot be one."""
    programs = valid_programs()
    assert len(programs) > 250
    names = list(programs)[::step]
    groups = {
        names[at]: {name: programs[name] for name in names[at : at + TOGETHER]} for at in range(0, len(names), TOGETHER)
    }
    async with Corral(TOOLS, sandbox=warm_deno, check=False) as corral:
        together = {first: in_one(group) for first, group in groups.items()}
        alone = [groups[first] for first in await unsuccessful(corral, together, "typescript")]
        failed = [await unsuccessful(corral, group, "typescript") for group in alone]
    assert failed == [{}] * len(alone)
    assert len(alone) < len(groups) / 2


@EACH_OR_SOME
async def test_valid_programs_in_python_succeed(warm_cpython: CPythonSandbox, step: int) -> None:
    programs = valid_python_programs()
    assert len(programs) > 200
    async with Corral(TOOLS, sandbox=warm_cpython, check=False) as corral:
        assert await unsuccessful(corral, dict([*programs.items()][::step]), "python") == {}
