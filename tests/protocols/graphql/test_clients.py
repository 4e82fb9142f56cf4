"""Clients of other makers: graphql-request, urql and graphql-sse in Deno, gql in Python; and code generators."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import deno
import pytest
from gql import Client as GqlClient
from gql import gql
from gql.transport.exceptions import TransportQueryError
from gql.transport.httpx import HTTPXTransport
from graphql import build_schema, validate_schema

from corral import Corral, tool
from corral.protocols.graphql.bridge import GraphqlBridge
from tests.bridges.http.serving import PATIENCE_SECONDS, Audited, Server, Waiting, approve
from tests.bridges.http.serving import tools as other_tools
from tests.foreign import deno_environment, run_deno
from tests.protocols.graphql.serving import Client, Served, tools

HERE = Path(__file__).parent
closed = threading.Event()


@tool(stream=True)
async def ticks() -> AsyncIterator[int]:
    """Numbers without an end."""
    number = 0
    try:
        while True:
            yield number
            number += 1
            await anyio.lowlevel.checkpoint()
    finally:
        closed.set()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    audit, waiting = Audited(), Waiting()
    corral = Corral([*tools(), *other_tools(), ticks], audit=audit.log, approve=approve, check=False)
    with Server(corral.remote.asgi_app(GraphqlBridge())) as server:
        yield Served(corral, server, audit, waiting)


def test_clients_of_npm(served: Served, tmp_path: Path) -> None:
    execution = served.grant()
    given = {"url": f"{served.server.url}/graphql", "token": execution.token(), "other": "x.y.z"}
    found: dict[str, Any] = dict(
        map(json.loads, run_deno(tmp_path, HERE / "clients.ts", json.dumps(given)).splitlines())
    )
    moved = {"move": {"x": 5, "tags": ["t"], "side": "left"}}
    added = [{"add": 3, "refuse": None}, ["tool_error"]]
    assert found == {
        "graphql-request query": moved,
        "graphql-request mutation": added,
        "graphql-request refused": [401, ["invalid_token"]],
        "urql query": moved,
        "urql get": {"large": str(10**20)},
        "urql mutation": added,
        "graphql-sse items": [{"numbers": 0}, {"numbers": 1}, {"numbers": 2}],
        "graphql-sse first": {"ticks": 0},
    }
    assert closed.wait(PATIENCE_SECONDS)  # the client that left ended the iterator
    served.server.do(execution.end)


def test_gql_with_the_schema_that_it_asks_for(client: Client) -> None:
    transport = HTTPXTransport(url=client.url, headers=client.headers, trust_env=False)
    with GqlClient(transport=transport, fetch_schema_from_transport=True) as session:
        query = gql("query($p: PointInput!) { move(point: $p) { x side } }")
        query.variable_values = {"p": {"x": 1, "side": "left"}}
        assert session.execute(query) == {"move": {"x": 2, "side": "left"}}
        with pytest.raises(TransportQueryError) as failure:
            session.execute(gql("mutation { refuse }"))
        assert failure.value.errors is not None
        assert failure.value.errors[0]["extensions"]["code"] == "tool_error"


def test_the_schema_is_valid(client: Client) -> None:
    assert not validate_schema(build_schema(client.get("/schema.graphql").text))


@pytest.mark.matrix("the gate validates the schema; here a generator of another maker reads it")
def test_a_generator_makes_types_of_the_schema(client: Client, tmp_path: Path) -> None:
    sdl = client.get("/schema.graphql").text
    (tmp_path / "schema.graphql").write_text(sdl, encoding="utf-8")
    types = run_deno(tmp_path, HERE / "generate.ts")
    (tmp_path / "types.ts").write_text(types, encoding="utf-8")
    program = """
    import type { MoveQuery, MoveQueryVariables } from "./types.ts";
    const given: MoveQueryVariables = { p: { x: 1, side: "left" as never, tags: ["a"] } };
    export function used(found: MoveQuery): [MoveQueryVariables, string[] | undefined] {
      return [given, found.move?.tags];
    }
    // @ts-expect-error: `x` is required
    export const wrong: MoveQueryVariables = { p: {} };
    """
    (tmp_path / "program.ts").write_text(program, encoding="utf-8")
    command = [deno.find_deno_bin(), "check", "--quiet", "--cached-only", "--no-lock", "--no-config", "program.ts"]
    done = subprocess.run(
        command, cwd=tmp_path, env=deno_environment(), capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
