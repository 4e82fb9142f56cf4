"""A client whose world is a table of names, servers on the loopback that it may and must not reach, and an engine."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, TypeAlias

import pytest

from corral import Corral, ExecutionResult, Limits
from corral.egress import EgressPolicy, Network, SafeClient
from corral.sandboxes import DenoSandbox
from tests.egress.wire import Attempts, Server, recorded, serve
from tests.ports import held_port

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Loading those of the system for each client would take longer than the tests."""

ASYNCIO = ("asyncio", {"use_uvloop": False})
both_loops = pytest.mark.parametrize("anyio_backend", [ASYNCIO, "trio"], ids=["asyncio", "trio"])

ClientFactory: TypeAlias = Callable[..., SafeClient]


@pytest.fixture
def attempts() -> Generator[Attempts]:
    with recorded() as attempts:
        yield attempts


class Run(Protocol):
    """Runs a program in TypeScript with a network, in a Corral of its own."""

    async def __call__(
        self, network: Network | None, program: str, limits: Limits | None = None, **options: Any
    ) -> ExecutionResult: ...


@pytest.fixture
def run(warm_deno: DenoSandbox) -> Run:
    async def run(
        network: Network | None, program: str, limits: Limits | None = None, **options: Any
    ) -> ExecutionResult:
        async with Corral(network=network, sandbox=warm_deno, check=False, limits=limits, **options) as corral:
            return await corral.execute(program)

    return run


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    """On 127.0.0.2, which the client of `make_client` may reach. Tests may have its port on the addresses beside it."""
    while True:
        async with serve("127.0.0.2") as server:
            with ExitStack() as held:
                try:
                    held.enter_context(held_port("127.0.0.1", "127.0.0.3", port=server.port))
                except OSError:
                    continue
                yield server
                return


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
