"""Programs in plain Deno, Node and Python see the same over each protocol as over the pipe."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import ANY

import httpx
import pytest

from corral import Corral, ExecutionContext
from corral.bridges.web import WebBridge
from corral.calls import RemoteExecution
from corral.protocols.connect import ConnectBridge
from corral.protocols.graphql.bridge import GraphqlBridge
from corral.protocols.trpc import TrpcBridge
from tests.bridges.http import test_python_clients as python
from tests.bridges.http.engines import ENGINES, run_elsewhere
from tests.bridges.http.serving import Server, approve
from tests.bridges.http.test_clients import CHECKS, CODES, LIMITS, SCOPES, SEEN, VECTORS, Tools, vectors
from tests.protocols.graphql.serving import numbers

STREAM = "const items = []; for await (const item of tools.numbers({ n: 3 })) items.push(item); return items;"
PROGRAM = f"""
const run = (token, part) => part(connect({{ url, token }}).tools);
return [
  await run(tokens.checks, async (tools) => {{ {CHECKS} }}),
  await run(tokens.vectors, async (tools) => {{ {vectors()} }}),
  await run(tokens.items, async (tools) => {{ {STREAM} }}),
];
"""
PYTHON_STREAM = """
tools = connect(url, tokens["items"]).tools
seen["items"] = [item async for item in tools.numbers(n=3)]
"""


BRIDGES: dict[str, tuple[WebBridge, str]] = {
    "connect": (ConnectBridge(), ""),
    "graphql": (GraphqlBridge(), "/graphql"),
    "trpc": (TrpcBridge(transformer="superjson"), ""),
}
"""Protocols, and the path at which their app serves. Over HTTP, test_clients.py has the same."""


class Address(NamedTuple):
    """A server whose app is below its address."""

    url: str


class Outcomes:
    """Outcomes of the programs of each engine."""

    def __init__(self, protocol: str, folder: Path) -> None:
        bridge, path = BRIDGES[protocol]
        self.tools = Tools()
        registry = self.tools.registry()
        registry.register(numbers)
        self.checks: dict[str, dict[str, Any]] = {}
        self.vectors: dict[str, list[bool]] = {}
        self.items: dict[str, list[int]] = {}
        self._corral = Corral(registry, approve=approve, limits=LIMITS, check=False)
        with Server(self._corral.remote.asgi_app(bridge)) as self._server, ThreadPoolExecutor(2) as threads:
            self._url = f"{self._server.url}{path}"
            list(threads.map(self._run, ENGINES, [folder] * len(ENGINES)))
            below: Any = Address(self._url)
            tokens = {name: self._token("python") for name in ("items", "main")}
            self.checks["python"] = python.run(folder, below, python.CHECKS + PYTHON_STREAM, **tokens)
            self.items["python"] = self.checks["python"].pop("items")

    def _token(self, user: str) -> str:
        context = ExecutionContext(user_id=user, scopes=SCOPES)
        execution: RemoteExecution = self._server.do(lambda: self._corral.remote.grant(context))
        self.tools.executions[user] = execution
        return self._server.do(execution.token)

    def _run(self, engine: str, folder: Path) -> None:
        tokens = {name: self._token(engine) for name in ("vectors", "items", "checks")}  # whose checks end the last one
        found = run_elsewhere(engine, folder, self._url, tokens, PROGRAM)
        self.checks[engine], self.vectors[engine], self.items[engine] = found


@pytest.mark.anyio
@pytest.mark.parametrize("protocol", BRIDGES)
async def test_the_runtimes_are_served_to_whoever_asks(protocol: str) -> None:
    bridge, path = BRIDGES[protocol]
    transport = httpx.ASGITransport(cast("Any", Corral(check=False).remote.asgi_app(bridge)))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://127.0.0.1{path}") as client:
        served = [(await client.get(name)).text for name in ("/corral.mjs", "/corral_tools.py")]
    assert served == [bridge.guest_runtime("typescript"), bridge.guest_runtime("python")]


ALL_ENGINES = pytest.mark.matrix("over HTTP the gate has all engines; tests/testing has what each transport decides")


@pytest.fixture(scope="module", params=BRIDGES)
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return Outcomes(request.param, tmp_path_factory.mktemp("programs"))


@ALL_ENGINES
@pytest.mark.parametrize("engine", [*ENGINES, "python"])
def test_a_program_sees_the_same_as_over_the_pipe(engine: str, outcomes: Outcomes) -> None:
    seen = dict(outcomes.checks[engine])
    errors = {name: seen.pop(name) for name in CODES}
    assert errors == {name: [True, ANY, code, ANY, name == "rate_limited"] for name, code in CODES.items()}
    assert seen == (SEEN if engine in ENGINES else python.IN_PYTHON)
    assert outcomes.items[engine] == [0, 1, 2]


@ALL_ENGINES
@pytest.mark.parametrize("engine", ENGINES)
def test_the_golden_values_travel_both_ways(engine: str, outcomes: Outcomes) -> None:
    assert outcomes.vectors[engine] == [True] * len(VECTORS["from_host"])
    assert outcomes.tools.taken[engine] == [repr(eval(each["python"])) for each in VECTORS["from_guest"]]  # noqa: S307
