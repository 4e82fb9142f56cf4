"""Origins, credentials and budgets of a `Network`, as it is configured."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from corral.egress import Header, Network
from corral.errors import CallBudgetExceeded, ConfigError
from corral.rendering.masking import Mask
from corral.types import ExecutionContext

ALLOW = ["https://api.example.com", "https://*.example.org", "http://plain.example.com:8080", "http://93.184.216.34"]


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://api.example.com/x", True),
        ("https://API.EXAMPLE.com.:443/", True),
        ("https://a.b.example.org/", True),
        ("http://plain.example.com:8080/", True),
        ("http://0x5db8d822/", True),
        ("http://api.example.com/", False),
        ("https://api.example.com:8080/", False),
        ("https://plain.example.com/", False),
        ("http://plain.example.com/", False),
        ("https://plain.example.com:8080/", False),
        ("https://example.org/", False),
        ("https://api.example.com.evil.com/", False),
        ("https://api.example.com@evil.com/", False),
        ("https://93.184.216.34/", False),
        ("http://127.0.0.1/", False),
        ("ftp://api.example.com/", False),
    ],
)
def test_scheme_host_and_port_belong_together(url: str, *, allowed: bool) -> None:
    read = httpx.URL(url)
    objection = Network(allow=ALLOW).policy.objection(read.scheme, read.raw_host.decode(), read.port)
    assert objection == (None if allowed else "it is not in Network(allow=[...])")


def test_an_address_of_the_inside_is_refused_although_it_is_listed() -> None:
    network = Network(allow=["http://127.0.0.1:8080"])
    assert network.policy.objection("http", "127.0.0.1", 8080) == "the address is not public"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"allow": "https://example.com"}, "collection"),
        ({"allow": ["example.com"]}, "not an origin"),
        ({"allow": ["https://example.com/path"]}, "path"),
        ({"allow": ["https://user@example.com"]}, "not an origin"),
        ({"allow": ["ftp://example.com"]}, "not an origin"),
        ({"allow": ["https://example.com:x"]}, "not an origin"),
        ({"allow": ["https://*.com"]}, "anyone can register"),
        ({"allow": ALLOW, "credentials": {"evil.com": Header("X-Key", "abcdef")}}, "not in allow"),
        ({"allow": ALLOW, "credentials": {"api.example.com": Header("Host", "abcdef")}}, "cannot hold"),
        ({"allow": ALLOW, "credentials": {"api.example.com": Header("X-Key", "a\r\nb: c")}}, "not valid in a header"),
        ({"allow": ALLOW, "requests": 0}, "requests"),
    ],
)
def test_options_that_make_no_sense_are_errors_at_once(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Network(**wrong)


def test_credentials_are_not_shown() -> None:
    network = Network(allow=ALLOW, credentials={"api.example.com": Header("Authorization", "Bearer s3cret-token")})
    assert "s3cret" not in f"{network!r} {network.credentials!r}"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_secrets_are_masked_however_a_body_is_cut(size: int) -> None:
    mask = Mask(["s3cret-token", "s3cret"])
    body = b"a s3cret-token, s3cret, s3cr, s3cret-toke s3"
    held, shown = b"", b""
    for start in range(0, len(body), size):
        ready, held = mask.split(held + body[start : start + size])
        shown += ready
    shown += mask.data(held)
    assert b"s3cret" not in shown
    assert shown.count(b"[redacted]") == 3
    assert shown.endswith(b" s3")


class OutsideCaller:
    execution_id = "execution-1"
    context = ExecutionContext()


async def write_without_end(network: Network, data: bytes) -> None:
    async with network.serve(OutsideCaller(), None) as services:
        for number in range(1000):
            await services["$fetch"]({"do": "write", "id": number, "data": data})


@pytest.mark.anyio
@pytest.mark.parametrize(("size", "said"), [(50_000, "unsent requests"), (1, "256 requests are open")])
async def test_what_is_written_and_never_sent_is_bounded(size: int, said: str) -> None:
    network = Network(allow=["https://api.example.com"], request_bytes=100_000)
    with pytest.raises(CallBudgetExceeded, match=said):
        await write_without_end(network, bytes(size))
