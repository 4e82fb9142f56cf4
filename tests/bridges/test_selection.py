"""Bridges of one Corral: opened and closed with it, one of them chosen for each sandbox, any of them mounted."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, get_args

import anyio
import pytest

from corral import Corral, ExecutionContext, tool
from corral.bridges import BridgeHost, BridgeProtocol, PipeBridge
from corral.bridges.http import HttpBridge
from corral.calls import Call, Grant
from corral.containment import ContainmentKind
from corral.errors import ConfigError, InvalidToken, StartFailed, UnknownProvider
from corral.sandboxes import Job, Sandbox, SandboxProvider
from corral.types import CallRequest, Capabilities, Endpoint, Exit, HttpEndpoint, LimitName, SandboxConfig

pytestmark = pytest.mark.anyio


@tool
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class Mirror(SandboxProvider):
    """Runs no program: the value of each execution is its endpoint."""

    name = "mirror"

    def __init__(self, *bridges: str) -> None:
        self._bridges = frozenset(bridges)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            languages=frozenset({"typescript"}), enforces=frozenset(get_args(LimitName)), bridges=self._bridges
        )

    async def start(self, config: SandboxConfig) -> Sandbox:
        return Reflection()


class Reflection(Sandbox):
    containment = ContainmentKind("none", "none")

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        return Exit(value=bridge)

    async def aclose(self) -> None: ...


class Telephone(BridgeProtocol):
    """A protocol that has to be open: it notes what becomes of it."""

    name = "telephone"

    def __init__(self, events: list[str] | None = None, *, fails: Exception | None = None) -> None:
        self.events = [] if events is None else events
        self._fails = fails
        self.host: BridgeHost | None = None

    async def open(self, host: BridgeHost) -> None:
        self.events.append(f"{self.name} opens")
        if self._fails is not None:
            raise self._fails
        self.host = host

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.events.append(f"{self.name} closes")
        self.host = None

    @asynccontextmanager
    async def serve(self, host: BridgeHost, grant: Grant) -> AsyncGenerator[Endpoint]:
        if self.host is None:
            raise ConfigError("the bridge 'telephone' is not open; open the Corral")
        yield HttpEndpoint(url="tel:1", token=host.issue(grant), protocol=self.name)


class Telegraph(Telephone):
    name = "telegraph"


def corral_with(bridge: Any, *supported: str) -> Corral:
    return Corral([add], sandbox=Mirror(*supported), bridge=bridge, containment="none", check=False)


async def endpoint(corral: Corral) -> Any:
    return (await corral.execute("return 1")).value


# --- opened and closed with the Corral


async def test_a_bridge_is_opened_once_and_closed_with_its_corral() -> None:
    bridge = Telephone()
    async with corral_with(bridge, "telephone") as corral:
        assert bridge.events == ["telephone opens"]
        assert (await endpoint(corral)).protocol == (await endpoint(corral)).protocol == "telephone"
        assert bridge.events == ["telephone opens"]
    assert bridge.events == ["telephone opens", "telephone closes"]
    await corral.aclose()
    assert bridge.events == ["telephone opens", "telephone closes"]


async def test_a_corral_opened_again_opens_its_bridge_again() -> None:
    bridge = Telephone()
    corral = corral_with(bridge, "telephone")
    for _ in range(2):
        async with corral:
            assert (await endpoint(corral)).protocol == "telephone"
    assert bridge.events == ["telephone opens", "telephone closes"] * 2


def test_without_an_event_loop_of_ones_own_it_is_opened_too() -> None:
    bridge = Telephone()
    with corral_with(bridge, "telephone") as corral:
        assert corral.sync.execute("return 1").error is None
    assert bridge.events == ["telephone opens", "telephone closes"]


async def test_a_program_of_a_corral_that_is_not_open_hears_it_from_the_bridge() -> None:
    with pytest.raises(ConfigError, match="the bridge 'telephone' is not open; open the Corral"):
        await endpoint(corral_with(Telephone(), "telephone"))


@pytest.mark.parametrize(
    ("raised", "expected", "message"),
    [
        (OSError("address already in use"), ConfigError, "^the bridge 'telegraph' cannot be opened: address already in use$"),
        (TimeoutError(), ConfigError, "^the bridge 'telegraph' cannot be opened: TimeoutError$"),
        (StartFailed("no port is free"), StartFailed, "^no port is free$"),
    ],
)  # fmt: skip
async def test_one_that_does_not_open_leaves_nothing_open(
    raised: Exception, expected: type[Exception], message: str
) -> None:
    events: list[str] = []
    corral = corral_with([Telephone(events), Telegraph(events, fails=raised)], "telephone")
    with pytest.raises(expected, match=message):
        async with corral:
            raise AssertionError("it is open")
    assert events == ["telephone opens", "telegraph opens", "telegraph closes", "telephone closes"]
    assert not corral.is_open


async def test_a_sandbox_that_does_not_start_closes_them_too() -> None:
    class Broken(Mirror):
        async def warm(self, config: SandboxConfig) -> None:
            raise StartFailed("no sandbox here")

    bridge = Telephone()
    with pytest.raises(StartFailed, match="no sandbox here"):
        async with Corral([add], sandbox=Broken("telephone"), bridge=bridge, containment="none", check=False):
            raise AssertionError("it is open")
    assert bridge.events == ["telephone opens", "telephone closes"]


async def test_opening_that_is_cancelled_closes_them_to_the_end() -> None:
    class Slow(Telegraph):
        async def open(self, host: BridgeHost) -> None:
            await super().open(host)
            scope.cancel()
            await anyio.sleep_forever()

    events: list[str] = []
    with anyio.CancelScope() as scope:
        await corral_with([Telephone(events), Slow(events)], "telephone").__aenter__()
    assert events == ["telephone opens", "telegraph opens", "telegraph closes", "telephone closes"]


async def test_one_that_does_not_close_is_logged_and_the_others_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Telegraph):
        async def aclose(self) -> None:
            raise OSError("it is stuck")

    bridge = Telephone()
    async with corral_with([bridge, Stuck()], "telephone"):
        pass
    assert bridge.events == ["telephone opens", "telephone closes"]
    [record] = caplog.records
    assert record.getMessage() == "the bridge 'telegraph' did not close"


def test_a_fork_leaves_the_bridge_of_its_parent_alone() -> None:
    bridge = Telephone()
    with corral_with(bridge, "telephone") as corral:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            corral.__exit__(None, None, None)
            os.write(write, " ".join(bridge.events).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 1000) == b"telephone opens"
        os.close(read)
        os.close(write)
    assert bridge.events == ["telephone opens", "telephone closes"]


# --- one of several


@pytest.mark.parametrize(
    ("supported", "chosen"), [(("telephone",), "telephone"), (("http",), "http"), (("http", "telephone"), "http")]
)
async def test_a_sandbox_gets_the_first_bridge_that_it_supports(supported: Sequence[str], chosen: str) -> None:
    async with corral_with([HttpBridge("http://localhost"), Telephone(), "pipe"], *supported) as corral:
        assert (await endpoint(corral)).protocol == chosen


async def test_a_sandbox_that_supports_none_of_them_is_refused() -> None:
    corral = corral_with(["pipe", Telephone()], "http")
    with pytest.raises(
        ConfigError, match=r"^sandbox 'mirror' does not support the bridge 'pipe' or 'telephone'; .*: 'http'$"
    ):
        await endpoint(corral)


def test_two_of_one_name_and_none_at_all_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^two bridges have the name 'pipe'; leave one out$"):
        corral_with(["pipe", PipeBridge()])
    with pytest.raises(ConfigError, match=r"Corral\(bridge=...\) is empty"):
        corral_with([])
    with pytest.raises(UnknownProvider, match="unknown name 'pip'"):
        corral_with(["pip"])


@pytest.mark.parametrize("bridge", ["pipe", [Telephone(), HttpBridge()]])
def test_an_app_is_the_first_bridge_that_can_be_mounted_or_http(bridge: Any) -> None:
    corral = corral_with(bridge)
    assert (
        type(corral.remote.asgi_app())
        is type(corral.remote.asgi_app("http"))
        is type(corral.remote.asgi_app(HttpBridge()))
    )


def test_a_bridge_that_is_not_mounted_says_so() -> None:
    with pytest.raises(ConfigError, match="bridge 'telephone' has no ASGI app"):
        corral_with(["pipe", Telephone()]).remote.asgi_app()


def test_an_app_by_name_is_the_bridge_of_the_corral_before_a_new_one() -> None:
    class Web(Telephone):
        name = "http"

        def asgi_app(self, host: BridgeHost) -> Any:
            return self, host

    web = Web()
    app: Any = corral_with(["pipe", web]).remote.asgi_app("http")
    assert app[0] is web
    with pytest.raises(UnknownProvider):
        corral_with("pipe").remote.asgi_app("soap")


# --- what a protocol sees of its Corral


async def test_a_host_answers_calls_and_knows_tokens() -> None:
    bridge = Telephone()
    async with corral_with(bridge, "telephone") as corral:
        host = bridge.host
        assert host is not None
        with corral.remote.grant(ExecutionContext(user_id="ada")) as execution:
            token = execution.token()
            reply = await host.handle(Call(CallRequest("add", {"a": 1, "b": 2}, 1), protocol="telephone", token=token))
            assert reply.value == 3
            grant = host.find(token)
            assert grant.context.user_id == "ada"
            assert host.find(host.issue(grant)) is host.find(host.renew(grant)[0]) is grant
        reply = await host.handle(Call(CallRequest("add", {"a": 1, "b": 2}, 1), protocol="telephone", token=token))
        assert reply.error is not None
        assert reply.error.code == "invalid_token"
        with pytest.raises(InvalidToken):
            host.find(token)
