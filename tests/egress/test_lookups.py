"""Names whose servers do not answer cost their client a bounded number of threads, and other clients nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from corral.egress.connections import SystemResolver
from tests.egress.conftest import ClientFactory, both_loops
from tests.egress.wire import Server
from tests.until import LIMIT_SECONDS, until

pytestmark = pytest.mark.anyio


class NameServer:
    """Stands for the system's: it answers `quick…` at once, and `slow…` when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()
        self._real: Any = socket.getaddrinfo

    def __call__(self, host: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(host, bytes):
            return self._real(host, *arguments, **options)
        self.asked.append(host.decode())
        if host.startswith(b"slow"):
            assert self.answers.wait(LIMIT_SECONDS)
        return self._real("127.0.0.2", *arguments, **options)


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Generator[NameServer]:
    made = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", made)
    yield made
    made.answers.set()


async def times_out(client: httpx.AsyncClient, url: str) -> str:
    with pytest.raises(httpx.ConnectTimeout) as caught:
        await client.get(url)
    return str(caught.value)


@both_loops
async def test_slow_names_occupy_the_threads_of_their_client_until_they_are_answered(
    make_client: ClientFactory, server: Server, name_server: NameServer
) -> None:
    quick = f"http://quick.example:{server.port}/"
    client, other = (make_client(resolver=None, max_connections=2) for _ in range(2))
    client.timeout = 0.05
    assert "was not resolved in 0.05 s" in await times_out(client, "http://slow.example/")
    while len(name_server.asked) < 4:  # one that is given up before its thread begins asks for nothing
        assert "was not resolved" in await times_out(client, "http://slow.example/")
    with anyio.fail_after(LIMIT_SECONDS):
        while "4 other lookups have not ended yet" not in (told := await times_out(client, quick)):
            assert "was not resolved in 0.05 s" in told  # its thread did not begin in time
        assert (await other.get(quick)).status_code == 200
        assert name_server.asked == [*["slow.example"] * 4, "quick.example"]
        name_server.answers.set()
        while True:
            try:
                assert (await client.get(quick)).status_code == 200
            except httpx.ConnectTimeout:
                continue
            break


@both_loops
async def test_the_loops_own_threads_stay_free(
    make_client: ClientFactory, server: Server, name_server: NameServer
) -> None:
    async def occupy(client: httpx.AsyncClient, number: int) -> None:
        await client.get(f"http://slow{number}.example:{server.port}/")

    client = make_client(resolver=None, max_connections=50, timeout=LIMIT_SECONDS)
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(occupy, client, number)
        await until(lambda: len(name_server.asked) == 50)
        assert await anyio.to_thread.run_sync(threading.get_ident)
        assert await anyio.getaddrinfo("127.0.0.1", 80)
        name_server.answers.set()
    assert len(server.requests) == 50


@both_loops
async def test_a_lookup_that_was_given_up_before_it_began_leaves_its_place(name_server: NameServer) -> None:
    resolve = SystemResolver(1)
    with anyio.move_on_after(0) as given_up:
        await resolve("quick.example")
    assert given_up.cancelled_caught
    assert await resolve("quick.example") == ["127.0.0.2"]
