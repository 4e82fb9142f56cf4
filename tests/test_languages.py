"""The language of a program: told by the name of its file, and the first to be ready."""

from __future__ import annotations

import pytest

from corral.errors import StartFailed
from corral.languages import language_of_file
from corral.sandboxes.selection import Providers
from corral.types import Language


def test_the_language_of_a_file_is_told_by_its_name() -> None:
    assert [language_of_file(name) for name in ("a.py", "a.ts", "a.mjs", "-")] == [
        "python",
        "typescript",
        "typescript",
        "typescript",
    ]


@pytest.mark.anyio
async def test_the_language_that_is_known_is_the_first_to_be_ready() -> None:
    tried: list[Language] = []

    async def warm(language: Language) -> None:
        tried.append(language)
        if len(tried) == 2:
            raise StartFailed("not here")

    await Providers("auto").warm_up(warm, None)
    await Providers("auto").warm_up(warm, "python")
    assert tried == ["typescript", "python", "typescript"]
