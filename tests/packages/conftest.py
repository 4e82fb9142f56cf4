"""A Corral whose programs may import twelve packages, and a cache of texts for these tests alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from corral import Corral, tool
from corral.packages import NpmPackages
from tests.foreign import PACKAGES


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@pytest.fixture(scope="package")
async def corral() -> AsyncIterator[Corral]:
    async with Corral([add], packages=NpmPackages(PACKAGES)) as corral:
        yield corral
