"""The programs that a check must let pass run well: what fails when it runs is no measure of a check."""

from __future__ import annotations

import pytest

from corral import Corral, Language, Tool
from corral.sandboxes import CPythonSandbox, DenoSandbox
from tests.checking.business import BUSINESS
from tests.checking.corpora import unsuccessful, valid_python_programs
from tests.checking.tools import TOOLS
from tests.checking.typescript import valid_programs

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("language", "programs", "tools", "least"),
    [
        ("typescript", valid_programs(), TOOLS, 400),
        ("python", valid_python_programs(), TOOLS, 475),
        ("python", valid_python_programs("business"), BUSINESS, 200),
    ],
    ids=["typescript", "python", "business"],
)
async def test_every_valid_program_succeeds(
    language: Language,
    programs: dict[str, str],
    tools: list[Tool],
    least: int,
    warm_deno: DenoSandbox,
    warm_cpython: CPythonSandbox,
) -> None:
    async with Corral(tools, sandbox={"typescript": warm_deno, "python": warm_cpython}, check=False) as corral:
        assert await unsuccessful(corral, programs, language) == {}
    assert len(programs) >= least
