"""Environment for tests of a bridge: a host with a real pipeline, and tools that record their calls."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from http import HTTPStatus
from importlib import import_module
from typing import Any, TypeAlias, cast
from uuid import UUID

import anyio

from corral.audit import AuditEvent, AuditLog, CallbackSink
from corral.bridges import BridgeHost, BridgeProtocol, PeerHosts
from corral.calls import Grant, Grants, GuardSettings, RateLimits, pipeline
from corral.errors import ToolError
from corral.policy import Policy
from corral.testing.cases import Cases
from corral.tools import Tool, ToolRegistry, define_tool, tool
from corral.types import ApprovalRequest, Approved, CallError, Denied, Endpoint, ExecutionContext, Limits, Reply

CallTool: TypeAlias = Callable[[str, object], Coroutine[Any, Any, Reply]]
"""Function that calls a tool, by name and input, as a guest does. The reply has the decoded value, or the error as the
guest sees it."""

LINES = 'no:\r\nx-injected: 1\r\n\r\n"quoted" %0D%0A \\ \u2028 größer \U0001f600'
"""Error message with characters that are special in a header, a line of a stream or a status."""
FLOOD_ITEMS = 2_000
FLOOD_ITEM_BYTES = 50_000
PATIENCE_SECONDS = 60.0
APPROVAL_SECONDS = 0.05
SLOW_EUROS = 42
"""Amount in calls whose approval waits until the test releases it."""
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**53 - 1,
    2**53 + 1,
    -(2**70),
    0.5,
    -1e300,
    math.nan,
    math.inf,
    -math.inf,
    "",
    'größer\n"\\\u2028',
    "\U0001f600",
    b"",
    bytes(range(256)),
    [],
    {},
    [[[]], {"a": [None]}],
    {"a": {"b": [1, 2.5, "c", None, True]}},
    {"$bytes": "AQI="},
    {"$number": "NaN", "$other": 1},
    {"": 0, "ä": 1, "__proto__": 2, "constructor": 3},
    [b"\x00", math.nan, 2**64, {"$bigint": "1"}],
)
"""Values of every kind that bridges transport, and objects that look like the codec's tags."""


@dataclass
class World:
    """Host with its own pipeline, tools, and records of calls."""

    protocol: BridgeProtocol
    host: BridgeHost
    grants: Grants
    events: list[AuditEvent]
    audit: AuditLog
    tools: ToolRegistry
    ran: list[str] = field(default_factory=list[str])
    waiting: anyio.Event = field(default_factory=anyio.Event)
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    met: int = 0
    all_met: anyio.Event = field(default_factory=anyio.Event)
    released: anyio.Event = field(default_factory=anyio.Event)
    most_at_once: int = 0
    at_once: int = 0
    asked: list[object] = field(default_factory=list[object])
    """Inputs for which approval was requested."""
    ahead_seconds: float = 0.0
    """Seconds by which the clock of tokens is ahead."""
    yielded: int = 0
    closed: anyio.Event = field(default_factory=anyio.Event)

    def kill_tokens(self) -> None:
        """Advances the clock of tokens until all existing ones have expired."""
        self.ahead_seconds += 1_000

    def grant(self, context: ExecutionContext | None = None, limits: Limits | None = None) -> Grant:
        """Opens the grant of a new execution."""
        grant = Grant(context=context or ExecutionContext(), limits=limits or Limits(), tools=self.tools)
        self.grants.open(grant)
        return grant

    async def approve(self, request: ApprovalRequest) -> Approved | Denied:
        input: Any = request.input
        self.asked.append(input)
        if input["euros"] < 0:
            raise ValueError("password=hunter2")
        if input["euros"] == SLOW_EUROS:
            self.waiting.set()
            try:
                await self.released.wait()
            finally:
                self.cancelled.set()
        return Approved() if input["euros"] < 100 else Denied("too much")

    @asynccontextmanager
    async def serving(self, grant: Grant) -> AsyncGenerator[Endpoint]:
        """Serves an execution during the block, and then closes its grant."""
        try:
            async with self.protocol.serve(self.host, grant) as endpoint:
                yield endpoint
        finally:
            self.grants.close(grant)

    async def give_up(self, call: CallTool, tool: str, input: object) -> None:
        """Makes a call, and cancels it once the tool waits."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, tool, input)
            await self.waiting.wait()
            tasks.cancel_scope.cancel()

    async def recorded(self) -> list[AuditEvent]:
        """Closes the audit log, and returns all events."""
        await self.audit.aclose()
        return self.events


class BridgeHarness(Cases):
    """Base of the suites: provides worlds and guests."""

    peers: PeerHosts | None = None
    """Other hosts, which forward requests to the world's. They need `token_key`."""
    token_key: bytes | None = None
    """TOOL_BRIDGE_SECRET of the other hosts; by default each world has a random key."""

    def protocol(self) -> BridgeProtocol:
        """Makes the protocol to test."""
        raise NotImplementedError

    def connect(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint
    ) -> AbstractAsyncContextManager[CallTool]:
        """Connects a guest to an endpoint during the block.

        The guest must abandon a cancelled call, but not concurrent calls. The host must cancel it if it was the only
        one.
        """
        raise NotImplementedError

    @asynccontextmanager
    async def _provide(self, names: Sequence[str]) -> AsyncGenerator[Mapping[str, object]]:
        async with self._world() as world:
            if "call" not in names:
                yield {"world": world}
                return
            async with self._guest(world) as call:
                subjects = {"world": world, "call": call}
                yield {name: subjects[name] for name in names}

    @asynccontextmanager
    async def _world(self, *, approval_seconds: float = PATIENCE_SECONDS) -> AsyncGenerator[World]:
        tokens = import_module("corral.calls.tokens")  # the only import that needs an extra
        key = tokens.Key("environment", self.token_key or secrets.token_bytes(32))
        keys = tokens.KeyRing(key, clock=lambda: time.time() + world.ahead_seconds)
        issued = tokens.ExecutionTokens(keys)
        events: list[AuditEvent] = []
        audit = AuditLog(CallbackSink(events.extend))
        peers = self.peers
        grants = Grants(lambda: issued, None if peers is None else peers.name)
        registry = ToolRegistry()
        world: World

        async def approve(request: ApprovalRequest) -> Approved | Denied:
            return await world.approve(request)

        settings = GuardSettings(
            grants=grants,
            rates=RateLimits(),
            audit=audit,
            approve=approve,
            approval_seconds=approval_seconds,
            policy=Policy(texts=[_POLICY]),
        )
        host = BridgeHost(pipeline(settings), grants, peers)
        world = World(self.protocol(), host, grants, events, audit, registry)
        world.tools.register(*_tools(world))
        with anyio.fail_after(PATIENCE_SECONDS):
            try:
                await world.protocol.open(host)
                yield world
            finally:
                with anyio.CancelScope(shield=True):
                    await grants.close_all()
                    await world.protocol.aclose()
                    await audit.aclose()

    @asynccontextmanager
    async def _guest(
        self, world: World, context: ExecutionContext | None = None, limits: Limits | None = None
    ) -> AsyncGenerator[CallTool]:
        """Connects a guest of a new execution."""
        async with self._guest_of(world, world.grant(context, limits)) as (call, _):
            yield call

    @asynccontextmanager
    async def _guest_of(self, world: World, grant: Grant) -> AsyncGenerator[tuple[CallTool, Endpoint]]:
        async with world.serving(grant) as endpoint, self.connect(world.protocol, world.host, endpoint) as call:
            yield call, endpoint


_POLICY = """
[[rule]]
id = "no-huge-powers"
tools = ["power"]
do = "deny"
when = { exponent = { exclusiveMinimum = 10 } }
reason = "too large"
[[rule]]
id = "large-powers"
tools = ["power"]
do = "ask"
when = { exponent = { exclusiveMinimum = 5 } }
[end]
"""
_DECLARED: dict[str, Tool] = {}


def _declared(**settings: Any) -> Callable[[Callable[..., Any]], Tool]:
    """Like `@tool`, but analyses the signature only once, because that takes longer than a test."""

    def declare(function: Callable[..., Any]) -> Tool:
        name = function.__name__
        if name not in _DECLARED:
            _DECLARED[name] = tool(**settings)(function)
        return replace(_DECLARED[name], function=function)

    return declare


def _tools(world: World) -> Collection[Tool]:
    async def echo(input: dict[str, Any]) -> object:
        world.ran.append("echo")
        return input["value"]

    @_declared()
    async def double(number: int) -> int:
        world.ran.append("double")
        return 2 * number

    @_declared()
    async def whoami(context: ExecutionContext) -> str:
        return context.user_id

    @_declared(scopes={"secrets"})
    async def secret() -> str:
        world.ran.append("secret")
        return "hunter2"

    @_declared()
    async def refuse() -> None:
        raise ToolError("not today, größer")

    @_declared()
    async def break_down() -> None:
        raise ValueError("password=hunter2")

    @_declared()
    async def go_on() -> None:
        raise ToolError("on and on " * 100_000)

    @_declared(needs_approval=True)
    async def pay(euros: float) -> str:
        world.ran.append("pay")
        return f"paid {euros:g}"

    @_declared(rate_limit="1/day")
    async def rare() -> str:
        return "done"

    @_declared()
    async def meet(number: int) -> int:
        """Returns once five calls are running."""
        world.met += 1
        if world.met == 5:
            world.all_met.set()
        await world.all_met.wait()
        return number

    @_declared()
    async def wait() -> None:
        world.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            world.cancelled.set()

    @_declared()
    async def nothing() -> None:
        world.ran.append("nothing")

    @_declared()
    async def data() -> dict[str, Any]:
        when = datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)
        return {"when": when, "id": UUID(int=1), "price": Decimal("1.10"), "pair": (1, 2), "status": HTTPStatus.OK}

    @_declared()
    async def measure(data: bytes) -> int:
        return len(data)

    @_declared()
    async def power(base: int, exponent: int = 2) -> int:
        return base**exponent

    @_declared(namespace="mail")
    async def send(to: str) -> str:
        return f"sent to {to}"

    @_declared()
    async def refuse_in_lines() -> None:
        raise ToolError(LINES)

    @_declared(scopes={"secrets", "keys"})
    async def both() -> str:
        world.ran.append("both")
        return "both"

    @_declared(any_scope={"secrets", "keys"})
    async def either() -> str:
        world.ran.append("either")
        return "either"

    @_declared()
    async def hold(number: int) -> int:
        """Returns once the test releases it."""
        world.at_once += 1
        world.most_at_once = max(world.most_at_once, world.at_once)
        world.waiting.set()
        await world.released.wait()
        world.at_once -= 1
        return number

    @_declared(stream=True)
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    @_declared(stream=True)
    async def steps() -> AsyncIterator[str]:
        """Continues once the test releases it."""
        try:
            yield "first"
            world.waiting.set()
            await world.released.wait()
            yield "second"
        finally:
            world.closed.set()

    @_declared(stream=True)
    async def stumble() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise ToolError("no more today")

    @_declared(stream=True, scopes={"secrets"})
    async def secrets() -> AsyncIterator[str]:
        world.ran.append("secrets")
        yield "hunter2"

    @_declared(stream=True)
    async def flood() -> AsyncIterator[str]:
        """Yields far more than the buffers between host and guest can hold."""
        try:
            for world.yielded in range(1, FLOOD_ITEMS + 1):
                yield "x" * FLOOD_ITEM_BYTES
        finally:
            world.closed.set()

    async def values(_: dict[str, Any]) -> AsyncIterator[Any]:
        for value in VALUES:
            yield value

    async def offer(_: dict[str, Any]) -> object:
        return object()

    async def dig(_: dict[str, Any]) -> object:
        return nested(200)

    loose = (
        define_tool(name="echo", execute=echo),
        define_tool(name="offer", execute=offer),
        define_tool(name="dig", execute=dig),
        define_tool(name="values", execute=values, stream=True),
    )
    calls = double, whoami, secret, refuse, break_down, go_on, pay, rare, meet, wait, nothing, data, measure, power
    return (*loose, *calls, send, refuse_in_lines, both, either, hold, count, steps, stumble, secrets, flood)


async def at_once(call: CallTool, calls: Sequence[tuple[str, object]]) -> list[Reply]:
    """Makes calls concurrently, and returns their replies in order."""
    replies = [list[Reply]() for _ in calls]
    async with anyio.create_task_group() as tasks:
        for own, (tool, input) in zip(replies, calls, strict=True):
            tasks.start_soon(answer, own, call, tool, input)
    return [reply for [reply] in replies]


async def answer(replies: list[Reply], call: CallTool, tool: str, input: object) -> None:
    """Makes a call, and adds its reply to a list."""
    replies.append(await call(tool, input))


async def error_of(call: CallTool, tool: str, input: object) -> CallError:
    """Makes a call that must fail, and returns its error."""
    reply = await call(tool, input)
    assert reply.error is not None, f"{tool:.100} returned {reply.value!r}"
    return reply.error


def code_of(reply: Reply) -> str | None:
    return None if reply.error is None else reply.error.code


def same(one: Any, other: Any) -> bool:
    """Compares values including their types; NaN equals itself."""
    if type(one) is not type(other):
        return False
    match one:
        case dict():
            members = cast("dict[str, Any]", one)
            return members.keys() == other.keys() and all(same(members[key], other[key]) for key in members)
        case list():
            items = cast("list[Any]", one)
            return len(items) == len(other) and all(map(same, items, other))
        case _:
            return one == other or (one != one and other != other)


def nested(depth: int) -> list[Any]:
    """Makes lists nested to a depth."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value
