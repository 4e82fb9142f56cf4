"""A PostgreSQL server for all tests of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.postgres import CONNECT, PostgresServer, postgres_home


@pytest.fixture(scope="session")
def own_server() -> Iterator[PostgresServer]:
    """A server that a test can restart."""
    with postgres_home() as server:
        server.start()
        yield server


@pytest.fixture(scope="session")
def postgres_server(own_server: PostgresServer) -> str:
    """The directory of its socket."""
    return str(own_server.home)


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """The URL of a database without our table."""
    url = f"postgresql://corral@/postgres?host={postgres_server}"

    async def clear() -> None:
        connection = await CONNECT(url)
        await connection.execute("DROP TABLE IF EXISTS corral_audit")
        await connection.close()

    asyncio.run(clear())
    return url
