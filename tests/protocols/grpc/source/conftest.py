from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop(anyio_backend: str) -> AsyncGenerator[None]:
    """Keeps one event loop for a module: grpcio can complete a cancelled call when the loop of its test is closed."""
    del anyio_backend
    yield  # noqa: PT022  # an async generator keeps the loop
