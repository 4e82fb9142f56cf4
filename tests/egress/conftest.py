"""A client whose world is a table of names, and servers on the loopback: one that it may reach, one that it must not."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

import pytest

from corral.egress import EgressPolicy, SafeClient
from tests.egress.wire import Attempts, Server, recorded, serve

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Loading those of the system for each client would take longer than the tests."""

ASYNCIO = ("asyncio", {"use_uvloop": False})
both_loops = pytest.mark.parametrize("anyio_backend", [ASYNCIO, "trio"], ids=["asyncio", "trio"])

ClientFactory: TypeAlias = Callable[..., SafeClient]


@pytest.fixture
def attempts() -> Generator[Attempts]:
    with recorded() as attempts:
        yield attempts


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    """On 127.0.0.2, which the client of `make_client` may reach."""
    async with serve("127.0.0.2") as server:
        yield server


@pytest.fixture
async def canary(server: Server) -> AsyncGenerator[Server]:
    """On 127.0.0.1, at the same port as `server`: nothing may arrive."""
    async with serve("127.0.0.1", server.port) as canary:
        yield canary
        assert (canary.connections, canary.requests) == (0, [])


@pytest.fixture
async def make_client(server: Server) -> AsyncGenerator[ClientFactory]:
    """Makes clients that may reach 127.0.0.2 to 127.0.0.3 at the server's port, 80 and 443, and know only `names`."""
    made: list[SafeClient] = []

    def make(names: Mapping[str, Sequence[str]] | None = None, **options: Any) -> SafeClient:
        async def resolver(host: str) -> Sequence[str]:
            if host not in (names or {}):
                raise OSError("no such name")
            return (names or {})[host]

        rules: dict[str, Any] = {"exempt_networks": ["127.0.0.2/31"], "ports": [80, 443, server.port]}
        rules |= {key: options.pop(key) for key in EgressPolicy.model_fields.keys() & options.keys()}
        rest: dict[str, Any] = {"resolver": resolver, "verify": NO_CERTIFICATES, **options}
        client = SafeClient(EgressPolicy(**rules), **rest)
        made.append(client)
        return client

    yield make
    for client in made:
        await client.aclose()
