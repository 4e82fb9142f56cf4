"""However much a server sends, and however slowly, it stops: in time, in little memory, and the connection is closed."""

from __future__ import annotations

import tracemalloc

import httpx
import pytest

from corral.errors import EgressBlocked
from tests.egress.conftest import ASYNCIO, ClientFactory, both_loops
from tests.egress.wire import Attempts, Server

pytestmark = pytest.mark.anyio

CAPS = {"max_response_bytes": 1_000_000, "max_header_bytes": 20_000}
TOO_LARGE = "the body is larger than max_response_bytes=1000000"
TOO_MUCH_HEAD = "the head is larger than max_header_bytes=20000"
TOO_LONG = "it took longer than total_seconds=0.05"
HOSTILE = {
    "/huge": TOO_LARGE,
    "/bomb": TOO_LARGE,
    "/extensions": TOO_LARGE,
    "/slow": TOO_LONG,
    "/silent": TOO_LONG,
    "/slow-header": TOO_LONG,
    "/endless-header": TOO_MUCH_HEAD,
    "/many-headers": TOO_MUCH_HEAD,
    "/interim": TOO_MUCH_HEAD,
}


@pytest.mark.parametrize(("path", "reason"), HOSTILE.items(), ids=HOSTILE)
@pytest.mark.parametrize(
    ("anyio_backend", "way"),
    [(ASYNCIO, "get"), (ASYNCIO, "aiter_bytes"), (ASYNCIO, "aiter_raw"), ("trio", "get")],
    ids=["get", "bytes", "raw", "trio"],
)
async def test_a_hostile_response_stops_at_its_cap(
    path: str, reason: str, way: str, make_client: ClientFactory, server: Server, attempts: Attempts
) -> None:
    client = make_client(**CAPS, total_seconds=0.05 if reason == TOO_LONG else 60)
    received = 0

    async def read() -> None:
        nonlocal received
        if way == "get":
            await client.get(server.origin + path)
        else:
            async with client.stream("GET", server.origin + path) as response:
                async for piece in getattr(response, way)():
                    received += len(piece)

    with pytest.raises(EgressBlocked, match=reason):
        await read()
    assert received <= CAPS["max_response_bytes"]
    if attempts.dialled:  # on a busy machine, the time can be over before the client connects
        await server.left.wait()


@both_loops
async def test_a_bomb_takes_little_memory(make_client: ClientFactory, server: Server) -> None:
    client = make_client(**CAPS)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(EgressBlocked, match=TOO_LARGE):
            await client.get(f"{server.origin}/bomb")
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000, "the cap, what was kept of it, and the server's own bomb of one megabyte compressed"


@pytest.mark.parametrize("path", ["/sized", "/zipped", "/deflated"])
async def test_a_body_of_exactly_the_cap_passes_and_one_more_byte_does_not(
    path: str, make_client: ClientFactory, server: Server
) -> None:
    client = make_client(**CAPS)
    response = await client.get(f"{server.origin}{path}?bytes=1000000")
    assert len(response.content) == 1_000_000
    with pytest.raises(EgressBlocked, match=TOO_LARGE):
        await client.get(f"{server.origin}{path}?bytes=1000001")


@pytest.mark.parametrize("path", ["/zipped", "/deflated"])
async def test_a_body_comes_decoded_in_every_way_of_reading(
    path: str, make_client: ClientFactory, server: Server
) -> None:
    async with make_client().stream("GET", f"{server.origin}{path}?bytes=100000") as response:
        assert b"".join([piece async for piece in response.aiter_raw()]) == b"x" * 100_000
    assert "content-encoding" not in response.headers
    assert "content-length" not in response.headers
    assert server.requests[0][1]["accept-encoding"] == "gzip"


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", " GZIP ", "deflate"])
async def test_names_of_encodings_are_read_loosely(encoding: str, make_client: ClientFactory, server: Server) -> None:
    response = await make_client().get(f"{server.origin}/encoded", params={"as": encoding})
    assert response.text == "x"


@both_loops
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress", "deflate, gzip"])
async def test_an_encoding_that_was_not_asked_for_is_an_error_of_httpx(
    encoding: str, make_client: ClientFactory, server: Server
) -> None:
    with pytest.raises(httpx.DecodingError):
        await make_client().get(f"{server.origin}/encoded", params={"as": encoding})


async def test_a_body_that_is_not_what_it_says_is_an_error_of_httpx(make_client: ClientFactory, server: Server) -> None:
    with pytest.raises(httpx.DecodingError):
        await make_client().get(f"{server.origin}/lie")


async def test_redirects_end_at_their_cap(make_client: ClientFactory, server: Server) -> None:
    client = make_client(max_redirects=3, follow_redirects=True)
    with pytest.raises(EgressBlocked, match="more redirects than max_redirects=3"):
        await client.get(f"{server.origin}/loop")
    assert len(server.requests) == 4


async def test_the_time_is_that_of_all_redirects_together(make_client: ClientFactory, server: Server) -> None:
    client = make_client(total_seconds=0.05, max_redirects=100_000, follow_redirects=True)
    with pytest.raises(EgressBlocked, match=TOO_LONG):
        await client.get(f"{server.origin}/loop")


async def test_a_response_within_its_caps_leaves_the_connection_for_the_next(
    make_client: ClientFactory, server: Server
) -> None:
    client = make_client(**CAPS)
    for size in (0, 10, 900_000, 999_999):
        assert len((await client.get(f"{server.origin}/sized?bytes={size}")).content) == size
    assert server.connections == 1


async def test_a_request_over_the_connections_waits_for_its_turn(make_client: ClientFactory, server: Server) -> None:
    client = make_client(max_connections=1, timeout=httpx.Timeout(60, pool=0.05))
    async with client.stream("GET", f"{server.origin}/sized?bytes=100000"):
        with pytest.raises(httpx.PoolTimeout):
            await client.get(server.origin)
    assert (await client.get(server.origin)).status_code == 200
