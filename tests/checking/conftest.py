"""Language servers for the programs of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral import ToolRegistry
from corral.checking import Checker
from tests.checking.corpora import LANGUAGES

_SECONDS = 60


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    """Has a server for each language."""
    checker = Checker()
    for language in LANGUAGES:
        checker.start(language, ToolRegistry())
        assert checker.wait(language, _SECONDS)
    yield checker
    checker.close()
