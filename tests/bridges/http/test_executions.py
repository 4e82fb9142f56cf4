"""A whole execution whose program runs in another process, and calls tools over HTTP."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path

import anyio
import pytest

from corral import Corral, ExecutionContext
from corral.bridges.http import HttpBridge
from corral.calls import Call, GuardSettings, Handler, pipeline
from corral.checking import Case, Checker, Gate, Verdict
from corral.containment import ContainmentKind
from corral.errors import ConfigError
from corral.sandboxes import Job, Sandbox, SandboxProvider
from corral.types import LIMITS_OF_SANDBOXES, Capabilities, Endpoint, Exit, HttpEndpoint, Reply, SandboxConfig
from tests.bridges.http.engines import ENGINES, run_elsewhere
from tests.bridges.http.serving import PATIENCE_SECONDS, Audited, Connection, Server, call, request, tools

pytestmark = pytest.mark.anyio

PROGRAM = """
const sums = await Promise.all([1, 2, 3].map((a) => tools.add({ a, b: 10 })));
const hidden = "send"; // else the program would be rejected before it runs
let denied;
try { await tools[hidden]({ text: "x" }); } catch (error) { denied = error.code; }
return { sums, denied, mail: await tools.inbox() };
"""


class Elsewhere(SandboxProvider):
    """Runs programs in plain processes, which know of the host nothing but a URL and a token."""

    name = "elsewhere"

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.endpoints: list[HttpEndpoint] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            languages=frozenset({"typescript"}), enforces=LIMITS_OF_SANDBOXES, bridges=frozenset({"http"})
        )

    async def start(self, config: SandboxConfig) -> Sandbox:
        return Process(self)


class Process(Sandbox):
    containment = ContainmentKind.of_tier("none")

    def __init__(self, provider: Elsewhere) -> None:
        self._provider = provider

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, HttpEndpoint)
        self._provider.endpoints.append(bridge)
        run = partial(run_elsewhere, self._provider.engine, self._provider.folder, bridge.url)
        return Exit(value=await anyio.to_thread.run_sync(run, {"main": bridge.token}, job.program.source))

    async def aclose(self) -> None: ...


def denials(audit: Audited) -> list[str | None]:
    return [event.code for event in audit.events if event.outcome == "denied"]


@pytest.mark.parametrize("engine", ENGINES)
async def test_its_calls_are_its_own_and_its_token_dies_with_it(engine: str, tmp_path: Path) -> None:
    audit, provider = Audited(), Elsewhere(engine, tmp_path)
    bridge = HttpBridge()
    corral = Corral(tools(), sandbox=provider, bridge=bridge, audit=audit.log, containment="none", check=False)
    context = ExecutionContext(user_id="ada", organization_id="acme", scopes={"mail:read"})

    with Server(corral.remote.asgi_app()) as server:
        bridge.url = server.url
        result = await corral.execute(PROGRAM, context=context)
        [endpoint] = provider.endpoints
        for path in ("/calls", "/tools/add", "/token"):
            with Connection(server.port) as connection:
                connection.send(request(path, json.dumps({"calls": [call()]}), token=endpoint.token))
                answer = await anyio.to_thread.run_sync(connection.answer)
                assert (answer.status, answer.code) == (401, "invalid_token")

    assert result.error is None
    assert result.value == {"sums": [11, 12, 13], "denied": "scope_denied", "mail": ["Lunch?"]}
    assert sorted((each.name, each.error and each.error.code) for each in result.tool_calls) == [
        ("add", None),
        ("add", None),
        ("add", None),
        ("inbox", None),
        ("send", "scope_denied"),
    ]
    await corral.aclose()
    assert denials(audit) == ["scope_denied", "invalid_token", "invalid_token", "invalid_token"]
    assert {event.protocol for event in audit.events} == {"http"}
    own = [event for event in audit.events if event.execution_id == result.execution_id]
    assert sorted(event.kind for event in own) == ["call"] * 5 + ["execution"]
    assert {(event.user_id, event.organization_id) for event in own} == {("ada", "acme")}


@pytest.mark.parametrize(("last", "status"), [("nowhere", "rejected"), ("sum", "succeeded")])
async def test_calls_wait_for_the_check_before_any_pipeline_and_are_refused_if_it_fails(
    last: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, passed = threading.Event(), list[str]()
    wait, verdict = Gate.wait, Checker.verdict

    async def spied(self: Gate) -> None:
        if threading.current_thread() is not threading.main_thread():  # a call, on the server's event loop
            waits.set()
        await wait(self)

    async def after_the_call(self: Checker, case: Case) -> Verdict:
        assert await anyio.to_thread.run_sync(waits.wait, PATIENCE_SECONDS)
        return await verdict(self, case)

    def own_pipeline(settings: GuardSettings) -> Handler:
        handler = pipeline(settings)

        async def noted(call: Call) -> Reply:
            passed.append(call.request.tool)
            return await handler(call)

        return noted

    def not_at_once(*_: object) -> None: ...

    monkeypatch.setattr(Gate, "wait", spied)
    monkeypatch.setattr(Checker, "begin", not_at_once)
    monkeypatch.setattr(Checker, "verdict", after_the_call)
    bridge = HttpBridge()
    provider = Elsewhere("node", tmp_path)
    async with Corral(
        tools(), sandbox=provider, bridge=bridge, pipeline=own_pipeline, containment="none", check="required"
    ) as corral:
        with Server(corral.remote.asgi_app()) as server:
            bridge.url = server.url
            result = await corral.execute(
                f"let sum; try {{ sum = await tools.add({{ a: 1, b: 2 }}); }} catch {{}}\nreturn {last};"
            )
    assert (result.status, result.checked) == (status, True), result.error
    assert passed == [each.name for each in result.tool_calls] == ([] if status == "rejected" else ["add"])


async def test_without_a_url_there_is_nowhere_to_send_calls_to(tmp_path: Path) -> None:
    corral = Corral(tools(), sandbox=Elsewhere("node", tmp_path), bridge="http", containment="none", check=False)
    with pytest.raises(ConfigError, match=r"HttpBridge\(url=...\)"):
        await corral.execute("return 1")


async def test_a_sandbox_that_reaches_no_http_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not support the bridge 'http'"):
        await Corral(tools(), bridge="http", check=False).execute("return 1")
