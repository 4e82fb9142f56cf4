"""Programs with a tool that fetches: the attacks of the class `ssrf` end as refusals, and nothing arrives inside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corral import Corral, tool
from corral.sandboxes import DenoSandbox
from tests.conftest import CASES
from tests.egress.conftest import ClientFactory
from tests.egress.wire import Attempts, Server

pytestmark = pytest.mark.anyio

ATTACKS: list[dict[str, Any]] = [
    attack
    for attack in json.loads((Path(CASES) / "attacks.json").read_text(encoding="utf-8"))["attacks"]
    if attack["class"] == "ssrf"
]
URLS = [
    json.loads(attack["code"].removeprefix("return await tools.fetch({url:").removesuffix("})")) for attack in ATTACKS
]
NAMES = {
    "127.0.0.1.nip.example": ["127.0.0.1"],
    "multi.example": ["93.184.216.34", "127.0.0.1"],
    "public.example": ["127.0.0.2"],
    "example.com": ["93.184.216.34"],
}


async def test_every_attack_is_refused_and_nothing_arrives_inside(
    make_client: ClientFactory, server: Server, canary: Server, attempts: Attempts, warm_deno: DenoSandbox
) -> None:
    client, hasty = (
        make_client(NAMES, follow_redirects=True, total_seconds=seconds, max_response_bytes=1_000_000)
        for seconds in (60, 3)  # enough for a request to arrive on a busy machine
    )

    @tool
    async def fetch(url: str) -> str:
        return (await (hasty if url.endswith("/slow") else client).get(url)).text

    outcomes: dict[str, str | None] = {}
    async with Corral([fetch], sandbox=warm_deno, check=False) as corral:
        for attack in ATTACKS:
            result = await corral.execute(attack["code"].replace("${PORT}", str(canary.port)))
            outcomes[attack["id"]] = result.error and result.error.code
    assert len(ATTACKS) == 42
    assert outcomes == dict.fromkeys(outcomes, "egress_blocked")
    assert (set(attempts.dialled), attempts.looked_up) == ({"127.0.0.2"}, [])
    asked = [target.partition("?")[0] for target, _ in server.requests]
    assert asked == ["/redirect", "/redirect", *["/loop"] * 6, "/slow", "/huge"]


async def test_a_program_is_told_the_rule_and_not_the_address(
    make_client: ClientFactory, canary: Server, warm_deno: DenoSandbox
) -> None:
    client = make_client({"split.example": ["10.11.12.13"]})

    @tool
    async def fetch(url: str) -> str:
        return (await client.get(url)).text

    async with Corral([fetch], sandbox=warm_deno, check=False) as corral:
        result = await corral.execute(
            "try { await tools.fetch({ url: 'http://split.example/' }) } catch (e) { return [e.code, e.message] }"
        )
    expected = "egress to 'split.example' blocked: it resolves to an address that is not public"
    assert result.value == ["egress_blocked", expected]
