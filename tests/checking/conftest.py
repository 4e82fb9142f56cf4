"""Language servers for the programs of all files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral.checking import Checker
from corral.checking import checker as checkers
from corral.tools import ToolRegistry
from tests.checking.corpora import LANGUAGES, wait_for

_SECONDS = 60


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets servers take as long as a busy machine makes them. A test of a bound sets its own."""
    for name in ("_FIRST_CHECK_SECONDS", "_CHECK_SECONDS", "_WAIT_SECONDS", "_LONG_WAIT_SECONDS"):
        monkeypatch.setattr(checkers, name, _SECONDS)


@pytest.fixture(scope="package")
def checker() -> Iterator[Checker]:
    """Has a server for each language, which all modules share."""
    checker = Checker()
    for language in LANGUAGES:
        checker.start(language, ToolRegistry())
        assert wait_for(checker, language, _SECONDS)
    yield checker
    checker.close()
