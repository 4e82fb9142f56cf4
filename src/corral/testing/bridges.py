"""Conformance suite of bridge protocols."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import anyio

from corral.audit import AuditEvent, AuditLog, CallbackSink
from corral.bridges import ApprovalRequest, BridgeHost, BridgeProtocol, Grant, Grants, Policy, RateLimits, pipeline
from corral.errors import ToolError
from corral.plugins import load_by_name
from corral.tools import Tool, ToolRegistry, define_tool, tool
from corral.types import (
    Approved,
    CallRequest,
    Denied,
    Endpoint,
    ExecutionContext,
    HttpEndpoint,
    Limits,
    PipeEndpoint,
    Reply,
)

__all__ = ["BridgeSuite", "CallTool"]

CallTool: TypeAlias = Callable[[str, object], Coroutine[Any, Any, Reply]]
"""Calls a tool as a guest: name and input. The reply has the decoded value, or the error as the guest sees it."""

_PATIENCE_SECONDS = 30.0
_VALUES: tuple[Any, ...] = (
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
"""All kinds of values that cross the boundary, and objects that look like tags."""


@dataclass
class _World:
    """Host with a pipeline of its own, tools, and what they have noticed."""

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


class BridgeSuite:
    """Tests that every bridge protocol has to pass. Implement `protocol` and `connect`.

    Calls pass the guards of a real pipeline. All runs in one event loop: a server has to be started in it.
    """

    def protocol(self) -> BridgeProtocol:
        """Makes the protocol to test."""
        raise NotImplementedError

    def connect(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint
    ) -> AbstractAsyncContextManager[CallTool]:
        """Connects a guest to an endpoint for the duration of the block. If a call is cancelled, the guest gives up."""
        raise NotImplementedError

    # --- values and errors

    async def test_values_of_all_kinds_come_back_as_they_went(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            for value in _VALUES:
                reply = await call("echo", {"value": value})
                assert reply.error is None, f"{value!r}: {reply.error}"
                assert _same(reply.value, value), f"{value!r} came back as {reply.value!r}"

    async def test_an_error_has_its_name_its_code_and_its_message(self) -> None:
        expected = {
            "missing": ("tool_not_found", "ToolNotFound", "missing"),
            "double": ("invalid_arguments", "InvalidArguments", "number"),
            "refuse": ("tool_error", "ToolError", "not today, größer"),
            "break_down": ("tool_failed", "ToolFailed", "break_down"),
        }
        async with self._world() as world, self._guest(world) as call:
            for name, (code, error_name, text) in expected.items():
                error = (await call(name, {})).error
                assert error is not None, name
                assert (error.code, error.name) == (code, error_name)
                assert text in error.message
                assert "hunter2" not in error.message, "details of an exception must not leave the host"

    async def test_a_rate_limit_says_when_to_retry(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            assert (await call("rare", {})).value == "done"
            error = (await call("rare", {})).error
            assert error is not None
            assert error.code == "rate_limited"
            assert error.retry_after_seconds is not None
            assert 0 < error.retry_after_seconds <= 86_400

    async def test_names_that_no_tool_has_are_not_found(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            for name in ("__proto__", "constructor", "toString", "größe", "a.b", "echo2"):
                assert _code(await call(name, {})) == "tool_not_found", name

    async def test_an_input_that_is_no_object_or_has_wrong_members_does_not_reach_the_tool(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            inputs: list[object] = [
                [1],
                "text",
                7,
                None,
                {"number": "seven"},
                {"number": 1, "more": 2},
                {"number": 0.5},
            ]
            for input in inputs:
                assert _code(await call("double", input)) == "invalid_arguments", input
            assert world.ran == []

    async def test_large_values_come_back_as_they_went(self) -> None:
        deep: Any = "bottom"
        for _ in range(60):
            deep = [deep] if isinstance(deep, dict) else {"in": deep}
        values = ["ä" * 200_000, list(range(20_000)), {f"k{n}": n for n in range(5_000)}, bytes(200_000), deep]
        async with self._world() as world, self._guest(world) as call:
            for value in values:
                assert _same((await call("echo", {"value": value})).value, value)

    async def test_a_long_message_of_an_error_arrives_bounded(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            error = (await call("go_on", {})).error
            assert error is not None
            assert error.code == "tool_error"
            assert error.message.startswith("on and on")
            assert len(error.message) < 10_000

    # --- many calls

    async def test_many_calls_at_once_have_their_own_answers(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            replies = await _at_once(call, [("double", {"number": number}) for number in range(64)])
            assert [reply.value for reply in replies] == [2 * number for number in range(64)]

    async def test_a_call_that_fails_leaves_those_beside_it(self) -> None:
        one = {"number": 1}
        async with self._world() as world, self._guest(world) as call:
            calls: list[tuple[str, object]] = [
                ("double", one),
                ("refuse", {}),
                ("double", one),
                ("missing", {}),
                ("double", one),
            ]
            codes = [_code(reply) for reply in await _at_once(call, calls)]
            assert codes == [None, "tool_error", None, "tool_not_found", None]

    async def test_parallel_calls_run_at_the_same_time(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            replies = await _at_once(call, [("meet", {"number": number}) for number in range(5)])
            assert [reply.value for reply in replies] == [*range(5)]

    async def test_calls_are_numbered_in_order_and_carry_the_name_of_the_protocol(self) -> None:
        async with self._world() as world:
            async with self._guest(world) as call:
                for number in range(3):
                    await call("double", {"number": number})
            await world.audit.aclose()
            assert [event.sequence for event in world.events] == [1, 2, 3]
            assert {event.protocol for event in world.events} == {world.protocol.name}
            assert {event.outcome for event in world.events} == {"succeeded"}

    # --- permissions

    async def test_a_tool_runs_only_with_its_scope(self) -> None:
        async with self._world() as world:
            async with self._guest(world) as call:
                assert _code(await call("secret", {})) == "scope_denied"
                assert world.ran == []
            async with self._guest(world, ExecutionContext(user_id="ada", scopes={"secrets"})) as call:
                assert (await call("secret", {})).value == "hunter2"

    async def test_calls_over_the_budget_do_not_run(self) -> None:
        async with self._world() as world, self._guest(world, limits=Limits(calls=2)) as call:
            codes = [_code(await call("double", {"number": 1})) for _ in range(4)]
            assert codes == [None, None, "call_budget_exceeded", "call_budget_exceeded"]
            assert world.ran == ["double", "double"]

    async def test_executions_at_the_same_time_have_their_own_callers(self) -> None:
        async with (
            self._world() as world,
            self._guest(world, ExecutionContext(user_id="ada")) as of_ada,
            self._guest(world, ExecutionContext(user_id="eve")) as of_eve,
        ):
            assert [(await call("whoami", {})).value for call in (of_ada, of_eve, of_ada)] == ["ada", "eve", "ada"]

    async def test_an_execution_that_has_ended_makes_no_calls(self) -> None:
        async with self._world() as world:
            grant = _grant(world)
            async with (
                world.protocol.serve(world.host, grant) as endpoint,
                self.connect(world.protocol, world.host, endpoint) as call,
            ):
                assert (await call("whoami", {})).error is None
                world.grants.close(grant)
                assert _code(await call("double", {"number": 1})) in {"execution_ended", "invalid_token"}
            assert world.ran == []

    async def test_foreign_and_broken_tokens_open_nothing(self) -> None:
        async with self._world() as world, self._world() as other:
            grant, foreign = _grant(world, ExecutionContext(user_id="ada")), _grant(other)
            async with world.protocol.serve(world.host, grant) as endpoint:
                match endpoint:
                    case HttpEndpoint():
                        signed, signature = endpoint.token.rsplit(".", 1)
                        broken = ("x", "a.b.c", f"{signed}.", f"{signed}.{signature[::-1]}")
                        for token in (other.grants.issue(foreign), *broken):
                            wrong = replace(endpoint, token=token)
                            async with self.connect(world.protocol, world.host, wrong) as call:
                                assert _code(await call("double", {"number": 1})) == "invalid_token", token
                        assert world.ran == other.ran == []
                    case PipeEndpoint(handler=handler):  # there is no token: a pipe is its execution's
                        assert (await handler(CallRequest("whoami", {}, 1))).value == "ada"

    async def test_a_call_that_needs_an_approval_runs_only_with_one(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            assert (await call("pay", {"euros": 5})).value == "paid 5"
            error = (await call("pay", {"euros": 500})).error
            assert error is not None
            assert (error.code, "too much" in error.message) == ("approval_denied", True)
            assert world.ran == ["pay"]

    async def test_a_denied_call_is_on_record_with_its_caller_and_its_reason(self) -> None:
        async with self._world() as world:
            async with self._guest(world, ExecutionContext(user_id="eve", organization_id="acme")) as call:
                await call("secret", {})
            await world.audit.aclose()
            [event] = world.events
            assert (event.user_id, event.organization_id, event.tool) == ("eve", "acme", "secret")
            assert (event.outcome, event.code) == ("denied", "scope_denied")

    async def test_a_rate_is_counted_for_each_user_of_each_organization(self) -> None:
        async with self._world() as world:
            for organization, code in (("acme", None), ("acme", "rate_limited"), ("other", None)):
                async with self._guest(world, ExecutionContext(user_id="ada", organization_id=organization)) as call:
                    assert _code(await call("rare", {})) == code

    async def test_tools_come_and_go(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            world.tools.remove("double")
            assert _code(await call("double", {"number": 1})) == "tool_not_found"

            @tool(name="double")
            async def triple(number: int) -> int:
                return 3 * number

            world.tools.register(triple)
            assert (await call("double", {"number": 1})).value == 3

    # --- bounds

    async def test_an_input_over_its_bound_is_refused(self) -> None:
        async with self._world() as world, self._guest(world, limits=Limits(tool_input_bytes=1_000)) as call:
            assert _code(await call("echo", {"value": "x" * 2_000})) == "message_too_large"
            assert world.ran == []
            assert (await call("echo", {"value": "x" * 100})).value == "x" * 100

    async def test_an_output_over_its_bound_is_withheld(self) -> None:
        async with self._world() as world, self._guest(world, limits=Limits(tool_output_bytes=1_000)) as call:
            reply = await call("echo", {"value": "x" * 2_000})
            assert _code(reply) == "message_too_large"
            assert reply.value is None

    async def test_a_guest_that_gives_up_cancels_its_call(self) -> None:
        async with self._world() as world, self._guest(world) as call:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "wait", dict[str, object]())
                await world.waiting.wait()
                tasks.cancel_scope.cancel()
            await world.cancelled.wait()
            assert (await call("double", {"number": 2})).value == 4

    # --- descriptions

    async def test_a_document_shows_only_tools_that_the_scopes_allow(self) -> None:
        async with self._world() as world:
            for scopes, shown in (frozenset[str](), False), (frozenset({"secrets"}), True):
                document = await world.protocol.document(_grant(world, ExecutionContext(scopes=scopes)))
                if document is not None:
                    assert b"whoami" in document.content
                    assert (b"secret" in document.content) is shown

    # --- the world of a test

    @asynccontextmanager
    async def _world(self) -> AsyncGenerator[_World]:
        tokens = load_by_name("corral.tokens", "http")
        events: list[AuditEvent] = []
        audit = AuditLog(CallbackSink(events.extend))
        grants = Grants(lambda: tokens)
        policy = Policy(grants=grants, rates=RateLimits(), audit=audit, approve=_approve)
        host = BridgeHost(pipeline(policy), grants)
        world = _World(self.protocol(), host, grants, events, audit, ToolRegistry())
        world.tools.register(*_tools(world))
        with anyio.fail_after(_PATIENCE_SECONDS):
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
        self, world: _World, context: ExecutionContext | None = None, limits: Limits | None = None
    ) -> AsyncGenerator[CallTool]:
        """Connects a guest of a new execution."""
        grant = _grant(world, context, limits)
        try:
            async with (
                world.protocol.serve(world.host, grant) as endpoint,
                self.connect(world.protocol, world.host, endpoint) as call,
            ):
                yield call
        finally:
            world.grants.close(grant)


def _approve(request: ApprovalRequest) -> Approved | Denied:
    input: Any = request.input
    return Approved() if input["euros"] < 100 else Denied("too much")


def _grant(world: _World, context: ExecutionContext | None = None, limits: Limits | None = None) -> Grant:
    grant = Grant(context=context or ExecutionContext(), limits=limits or Limits(), tools=world.tools)
    world.grants.open(grant)
    return grant


def _tools(world: _World) -> Collection[Tool]:
    async def echo(input: dict[str, Any]) -> object:
        world.ran.append("echo")
        return input["value"]

    @tool
    async def double(number: int) -> int:
        world.ran.append("double")
        return 2 * number

    @tool
    async def whoami(context: ExecutionContext) -> str:
        return context.user_id

    @tool(scopes={"secrets"})
    async def secret() -> str:
        world.ran.append("secret")
        return "hunter2"

    @tool
    async def refuse() -> None:
        raise ToolError("not today, größer")

    @tool
    async def break_down() -> None:
        raise ValueError("password=hunter2")

    @tool
    async def go_on() -> None:
        raise ToolError("on and on " * 100_000)

    @tool(needs_approval=True)
    async def pay(euros: float) -> str:
        world.ran.append("pay")
        return f"paid {euros:g}"

    @tool(rate_limit="1/day")
    async def rare() -> str:
        return "done"

    @tool
    async def meet(number: int) -> int:
        """Returns once five calls run."""
        world.met += 1
        if world.met == 5:
            world.all_met.set()
        await world.all_met.wait()
        return number

    @tool
    async def wait() -> None:
        world.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            world.cancelled.set()

    echoing = define_tool(name="echo", execute=echo)
    return echoing, double, whoami, secret, refuse, break_down, go_on, pay, rare, meet, wait


async def _at_once(call: CallTool, calls: Sequence[tuple[str, object]]) -> list[Reply]:
    """Makes calls at the same time, and returns their replies in order."""
    replies: dict[int, Reply] = {}

    async def make(number: int, tool: str, input: object) -> None:
        replies[number] = await call(tool, input)

    async with anyio.create_task_group() as tasks:
        for number, (tool, input) in enumerate(calls):
            tasks.start_soon(make, number, tool, input)
    return [replies[number] for number in range(len(calls))]


def _code(reply: Reply) -> str | None:
    return None if reply.error is None else reply.error.code


def _same(one: Any, other: Any) -> bool:
    """Compares values by type too; NaN equals itself."""
    if type(one) is not type(other):
        return False
    match one:
        case dict():
            members = cast("dict[str, Any]", one)
            return members.keys() == other.keys() and all(_same(members[key], other[key]) for key in members)
        case list():
            items = cast("list[Any]", one)
            return len(items) == len(other) and all(map(_same, items, other))
        case _:
            return one == other or (one != one and other != other)
