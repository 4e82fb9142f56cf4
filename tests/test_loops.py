"""Tests run on the event loop that they ask for, whatever fixtures of others are open."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest
import sniffio

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def opened() -> AsyncIterator[str]:
    """Stays open until the last test here; gives the loop that it is on."""
    yield sniffio.current_async_library()
    assert sniffio.current_async_library() == "asyncio"


async def test_a_fixture_is_on_the_usual_loop(opened: str) -> None:
    assert opened == sniffio.current_async_library() == "asyncio"


@pytest.mark.parametrize("anyio_backend", ["trio", "asyncio"])
async def test_a_loop_is_of_the_kind_that_was_asked_for(anyio_backend: str) -> None:
    assert sniffio.current_async_library() == anyio_backend


def test_without_a_loop_one_may_be_run() -> None:
    async def kind() -> str:
        return sniffio.current_async_library()

    assert (anyio.run(kind), anyio.run(kind, backend="trio")) == ("asyncio", "trio")
