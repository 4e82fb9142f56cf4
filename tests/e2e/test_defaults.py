"""A Corral as its constructor makes it, with nothing but tools."""

from __future__ import annotations

import pytest

from corral import Corral
from corral.types import Language
from tests.conftest import add

PROGRAMS: dict[Language, tuple[str, str]] = {
    "typescript": ("return await tools.add({ a: 1, b: 2 })", "return await tools.add({ a: 1, c: 2 })"),
    "python": ("await tools.add(a=1, b=2)", "await tools.add(a=1, c=2)"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("language", PROGRAMS)
async def test_programs_are_checked_and_run_unless_said_otherwise(language: Language) -> None:
    right, wrong = PROGRAMS[language]
    async with Corral([add]) as corral:
        assert (await corral.check(right, language)).checked  # its language server is ready from here on
        ran = await corral.execute(right, language=language)
        assert (ran.value, ran.checked) == (3, True)
        mistaken = await corral.execute(wrong, language=language)
    assert (mistaken.status, mistaken.checked, mistaken.tool_calls) == ("rejected", True, ())
