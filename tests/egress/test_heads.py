"""Heads of programs' requests are bounded before they are read."""

from __future__ import annotations

from typing import Any

import pytest

from corral import ExecutionContext
from corral.egress import Network
from corral.egress.exchanges import Exchanges
from corral.errors import InvalidArguments

pytestmark = pytest.mark.anyio

TOO_LARGE = r"a request can have at most 100 headers, of 64,000 bytes in all"


class Caller:
    execution_id = "x"
    context = ExecutionContext()


def fetched(headers: object) -> dict[str, Any]:
    return {"do": "open", "id": 1, "url": "http://a.example.com/", "method": "GET", "headers": headers}


def written(raw: bytes) -> dict[str, Any]:
    return {"do": "open", "id": 1, "host": "a.example.com", "port": 80, "tls": False, "raw": raw}


@pytest.mark.parametrize(
    "headers", [[[f"a{n}", "b"] for n in range(101)], [["a", "b" * 64_000]]], ids=["too many", "too long"]
)
async def test_headers_of_a_fetch(headers: object) -> None:
    async with Exchanges(Network(allow=["http://a.example.com"]), Caller(), None) as exchanges:
        with pytest.raises(InvalidArguments, match=TOO_LARGE):
            await exchanges.fetch(fetched(headers))


@pytest.mark.parametrize("end", [b"\r\n", b"\n"], ids=["CRLF", "LF"])
@pytest.mark.parametrize("rest", [b"", b"x" * 100_000], ids=["alone", "before a body"])
async def test_headers_of_a_request_that_a_library_wrote(end: bytes, rest: bytes) -> None:
    async with Exchanges(Network(allow=["http://a.example.com"]), Caller(), None) as exchanges:
        start = b"POST / HTTP/1.1" + end + b"Host: a.example.com" + end
        for head in (b"a: b" + end, b"a: " + b"b" * 64_000 + end):
            with pytest.raises(InvalidArguments, match=TOO_LARGE):
                await exchanges.http(written(start + head * 100 + end + rest))
        with pytest.raises(InvalidArguments, match="malformed"):
            await exchanges.http(written(start + b"a: b" + end))
