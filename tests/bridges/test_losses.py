"""The table of docs/bridges.md: what clients of other makers give their programs of values that JSON lacks."""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from corral import Corral
from corral.bridges.http import HttpBridge
from corral.protocols.connect import ConnectBridge
from corral.protocols.graphql.bridge import GraphqlBridge
from corral.protocols.trpc import TrpcBridge
from tests.bridges.http.serving import CONTEXT, Server
from tests.foreign import npm_imports, run_deno
from tests.protocols.connect.test_clients import descriptors
from tests.protocols.grpc.serving import GrpcServed

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "bridges.md"


async def safe() -> int:
    """`2**53 - 1`"""
    return 2**53 - 1


async def big() -> int:
    """`2**53 + 1`"""
    return 2**53 + 1


async def huge() -> int:
    """`2**70`"""
    return 2**70


async def nan() -> float:
    """`nan`"""
    return math.nan


async def minus() -> float:
    """`-0.0`"""
    return -0.0


async def data() -> bytes:
    """`b"\\x00\\xff"`"""
    return b"\x00\xff"


async def time() -> datetime:
    """a time in UTC"""
    return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


async def nothing() -> None:
    """`None`"""


async def loose() -> Any:
    """`[2**53 + 1, nan, b"\\x00"]` as `Any`"""
    return [2**53 + 1, math.nan, b"\x00"]


TOOLS = (safe, big, huge, nan, minus, data, time, nothing, loose)


@pytest.mark.matrix("guests of corral lose nothing in the gate; here clients of other makers do")
def test_clients_of_other_makers_lose_what_the_documentation_says(tmp_path: Path) -> None:
    corral = Corral(TOOLS, check=False)
    bridges = {
        "http": HttpBridge(),
        "trpc": TrpcBridge(),
        "rich": TrpcBridge(transformer="superjson"),
        "graphql": GraphqlBridge(),
        "connect": ConnectBridge(),
    }
    app = Starlette(routes=[Mount(f"/{path}", corral.remote.asgi_app(bridge)) for path, bridge in bridges.items()])
    with Server(app) as server, GrpcServed(TOOLS) as served:
        proto = tmp_path / "grpc.proto"
        proto.write_text(served.document())
        given = {
            "url": server.url,
            "token": server.do(lambda: corral.remote.grant(CONTEXT)).token(),
            "address": served.bridge.address,
            "grpcToken": served.grant().token(),
            "proto": str(proto),
            "descriptors": base64.b64encode(descriptors(corral, tmp_path)).decode(),
            "names": [each.__name__ for each in TOOLS],
        }
        subpath = {"@bufbuild/protobuf/wkt": npm_imports()["@bufbuild/protobuf"] + "/wkt"}
        found = json.loads(run_deno(tmp_path, HERE / "losses.mjs", json.dumps(given), **subpath))
    clients = list(found["safe"])
    lines = [f"| a tool returns | {' | '.join(f'`{each}`' for each in clients)} |", "|---" * (len(clients) + 1) + "|"]
    for each in TOOLS:
        cells = (found[each.__name__][client] for client in clients)
        lines.append(
            f"| {each.__doc__} | {' | '.join(cell if cell == 'an error' else f'`{cell}`' for cell in cells)} |"
        )
    documented = re.findall(r"^\|.*\| `fetch` \|(?:.*\n)+?(?=\n)", DOCS.read_text("utf-8"), re.MULTILINE)
    assert ["\n".join([*lines, ""])] == documented
