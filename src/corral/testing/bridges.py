"""Conformance suites of bridge protocols: calls, streams, and malformed messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

import anyio

from corral.bridges import BridgeHost, BridgeProtocol
from corral.calls import Grant
from corral.testing.bridge_world import (
    APPROVAL_SECONDS,
    FLOOD_ITEM_BYTES,
    FLOOD_ITEMS,
    LINES,
    SLOW_EUROS,
    VALUES,
    BridgeHarness,
    CallTool,
    World,
    answer,
    at_once,
    code_of,
    error_of,
    nested,
    same,
)
from corral.tools import tool
from corral.types import (
    ApprovalRequest,
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


class BridgeSuite(BridgeHarness):
    """Tests that every bridge protocol must pass. Implement `protocol` and `connect`.

    Calls pass the guards of a real pipeline. Everything runs in one event loop: start servers in it.
    """

    # --- values and errors

    async def test_values_of_all_kinds_come_back_as_they_went(self, call: CallTool) -> None:
        for value in VALUES:
            reply = await call("echo", {"value": value})
            assert reply.error is None, f"{value!r}: {reply.error}"
            assert same(reply.value, value), f"{value!r} came back as {reply.value!r}"

    async def test_an_error_has_its_name_its_code_and_its_message(self, call: CallTool) -> None:
        expected = {
            "missing": ("tool_not_found", "ToolNotFound", "missing"),
            "double": ("invalid_arguments", "InvalidArguments", "number"),
            "refuse": ("tool_error", "ToolError", "not today, größer"),
            "break_down": ("tool_failed", "ToolFailed", "break_down"),
        }
        for name, (code, error_name, text) in expected.items():
            error = await error_of(call, name, {})
            assert (error.code, error.name) == (code, error_name)
            assert text in error.message
            assert "hunter2" not in error.message, "details of an exception must not leave the host"

    async def test_a_rate_limit_says_when_to_retry(self, call: CallTool) -> None:
        assert (await call("rare", {})).value == "done"
        error = await error_of(call, "rare", {})
        assert error.code == "rate_limited"
        assert error.retry_after_seconds is not None
        assert 0 < error.retry_after_seconds <= 86_400

    async def test_names_that_no_tool_has_are_not_found(self, call: CallTool) -> None:
        for name in ("__proto__", "constructor", "toString", "größe", "a.b", "echo2"):
            assert code_of(await call(name, {})) == "tool_not_found", name

    async def test_an_input_that_is_no_object_or_has_wrong_members_does_not_reach_the_tool(
        self, world: World, call: CallTool
    ) -> None:
        inputs: list[object] = [[1], "text", 7, None, {"number": "seven"}, {"number": 1, "more": 2}, {"number": 0.5}]
        for input in inputs:
            assert code_of(await call("double", input)) == "invalid_arguments", input
        assert world.ran == []

    async def test_large_values_come_back_as_they_went(self, call: CallTool) -> None:
        deep: Any = "bottom"
        for _ in range(60):
            deep = [deep] if isinstance(deep, dict) else {"in": deep}
        values = ["ä" * 200_000, list(range(20_000)), {f"k{n}": n for n in range(5_000)}, bytes(200_000), deep]
        for value in values:
            assert same((await call("echo", {"value": value})).value, value)

    async def test_a_long_message_of_an_error_arrives_bounded(self, call: CallTool) -> None:
        error = await error_of(call, "go_on", {})
        assert error.code == "tool_error"
        assert error.message.startswith("on and on")
        assert len(error.message) < 10_000

    async def test_what_python_has_and_json_lacks_arrives_as_documented(self, call: CallTool) -> None:
        assert (await call("data", {})).value == {
            "when": "2026-01-02T03:04:05.123456Z",
            "id": "00000000-0000-0000-0000-000000000001",
            "price": "1.10",
            "pair": [1, 2],
            "status": 200,
        }
        reply = await call("nothing", {})
        assert (reply.value, reply.error) == (None, None)

    async def test_inputs_arrive_with_the_types_that_the_tool_declares(self, call: CallTool) -> None:
        assert (await call("measure", {"data": bytes(range(256))})).value == 256
        assert (await call("power", {"base": 3})).value == 9
        assert (await call("power", {"base": 2**40, "exponent": 3})).value == 2**120

    async def test_tools_of_a_namespace_have_it_in_their_names(self, call: CallTool) -> None:
        assert (await call("mail.send", {"to": "ada"})).value == "sent to ada"
        for name in ("send", "mail", "mail.", ".send", "mail.send.send", "mail.missing"):
            assert code_of(await call(name, {"to": "ada"})) == "tool_not_found", name

    async def test_names_of_any_length_and_with_any_character_are_refused(self, world: World, call: CallTool) -> None:
        for name in ("double\r\nx: 1", "double\u2028", " double", "../double", "%64ouble", "\U0001f600", "x" * 50_000):
            error = await error_of(call, name, {"number": 1})
            assert error.code in {"tool_not_found", "message_too_large"}, name[:100]
            assert len(error.message) < 10_000
        assert world.ran == []
        assert (await call("double", {"number": 1})).value == 2

    async def test_an_output_that_cannot_travel_is_an_error_of_the_tool(self, call: CallTool) -> None:
        for name in ("offer", "dig"):
            assert code_of(await call(name, {})) == "invalid_tool_output", name
        assert (await call("double", {"number": 1})).value == 2

    async def test_a_message_of_any_characters_arrives_as_it_is(self, call: CallTool) -> None:
        error = await error_of(call, "refuse_in_lines", {})
        assert (error.code, error.message) == ("tool_error", LINES)

    # --- many calls

    async def test_many_calls_at_once_have_their_own_answers(self, call: CallTool) -> None:
        replies = await at_once(call, [("double", {"number": number}) for number in range(64)])
        assert [reply.value for reply in replies] == [2 * number for number in range(64)]

    async def test_a_call_that_fails_leaves_those_beside_it(self, call: CallTool) -> None:
        one = {"number": 1}
        calls: list[tuple[str, object]] = [
            ("double", one),
            ("refuse", {}),
            ("double", one),
            ("missing", {}),
            ("double", one),
        ]
        codes = [code_of(reply) for reply in await at_once(call, calls)]
        assert codes == [None, "tool_error", None, "tool_not_found", None]

    async def test_parallel_calls_run_at_the_same_time(self, call: CallTool) -> None:
        replies = await at_once(call, [("meet", {"number": number}) for number in range(5)])
        assert [reply.value for reply in replies] == [*range(5)]

    async def test_calls_are_numbered_in_order_and_carry_the_name_of_the_protocol(self, world: World) -> None:
        async with self._guest(world) as call:
            for number in range(3):
                await call("double", {"number": number})
        events = await world.recorded()
        assert [event.sequence for event in events] == [1, 2, 3]
        assert {event.protocol for event in events} == {world.protocol.name}
        assert {event.outcome for event in events} == {"succeeded"}

    async def test_a_slow_call_keeps_no_other_waiting(self, world: World, call: CallTool) -> None:
        replies: list[Reply] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, replies, call, "hold", {"number": 7})
            for number in range(3):
                assert (await call("double", {"number": number})).value == 2 * number
            await world.waiting.wait()
            assert replies == []
            world.released.set()
        assert replies[0].value == 7

    async def test_more_calls_than_may_be_in_flight_wait_for_their_turn(self, world: World) -> None:
        async with self._guest(world, limits=Limits(calls_in_flight=2)) as call:
            replies: list[Reply] = []
            async with anyio.create_task_group() as tasks:
                for number in range(6):
                    tasks.start_soon(answer, replies, call, "hold", {"number": number})
                await world.waiting.wait()
                world.released.set()
            assert {reply.value for reply in replies} == {*range(6)}
            assert len(replies) == 6
            assert 1 <= world.most_at_once <= 2

    async def test_more_calls_at_once_than_a_batch_holds_have_their_own_answers(self, world: World) -> None:
        async with self._guest(world, limits=Limits(calls=500)) as call:
            replies = await at_once(call, [("echo", {"value": f"n{number}" * 20}) for number in range(300)])
            assert [reply.value for reply in replies] == [f"n{number}" * 20 for number in range(300)]

    # --- permissions

    async def test_a_tool_runs_only_with_its_scope(self, world: World) -> None:
        async with self._guest(world) as call:
            assert code_of(await call("secret", {})) == "scope_denied"
            assert world.ran == []
        async with self._guest(world, ExecutionContext(user_id="ada", scopes={"secrets"})) as call:
            assert (await call("secret", {})).value == "hunter2"

    async def test_a_policy_decides_on_every_call(self, world: World, call: CallTool) -> None:
        async def approve(request: ApprovalRequest) -> Approved | Denied:
            return Denied(request.doubts[0].text)

        world.approve = approve
        assert (await call("power", {"base": 3, "exponent": 2})).value == 9
        error = await error_of(call, "power", {"base": 3, "exponent": 11})
        assert (error.code, error.message) == (
            "policy_denied",
            "tools.power: rule no-huge-powers denies this call: too large",
        )
        error = await error_of(call, "power", {"base": 3, "exponent": 6})
        assert (error.code, "rule large-powers" in error.message) == ("approval_denied", True)
        events = await world.recorded()
        assert [each.verdict for each in events] == ["allow", "deny", "ask"]
        assert [each.rule for each in events] == [None, "no-huge-powers", "large-powers"]
        assert len({each.policy for each in events} - {None}) == 1

    async def test_calls_over_the_budget_do_not_run(self, world: World) -> None:
        async with self._guest(world, limits=Limits(calls=2)) as call:
            codes = [code_of(await call("double", {"number": 1})) for _ in range(4)]
            assert codes == [None, None, "call_budget_exceeded", "call_budget_exceeded"]
            assert world.ran == ["double", "double"]

    async def test_executions_at_the_same_time_have_their_own_callers(self, world: World) -> None:
        async with (
            self._guest(world, ExecutionContext(user_id="ada")) as of_ada,
            self._guest(world, ExecutionContext(user_id="eve")) as of_eve,
        ):
            assert [(await call("whoami", {})).value for call in (of_ada, of_eve, of_ada)] == ["ada", "eve", "ada"]

    async def test_an_execution_that_has_ended_makes_no_calls(self, world: World) -> None:
        grant = world.grant()
        async with self._guest_of(world, grant) as (call, _):
            assert (await call("whoami", {})).error is None
            world.grants.close(grant)
            assert code_of(await call("double", {"number": 1})) in {"execution_ended", "invalid_token"}
        assert world.ran == []

    async def test_foreign_and_broken_tokens_open_nothing(self, world: World) -> None:
        async with self._world() as other:
            grant, foreign = world.grant(ExecutionContext(user_id="ada")), other.grant()
            async with world.serving(grant) as endpoint:
                match endpoint:
                    case HttpEndpoint():
                        signed, signature = endpoint.token.rsplit(".", 1)
                        broken = ("x", "a.b.c", f"{signed}.", f"{signed}.{signature[::-1]}")
                        for token in (other.grants.issue(foreign), *broken):
                            wrong = replace(endpoint, token=token)
                            async with self.connect(world.protocol, world.host, wrong) as call:
                                assert code_of(await call("double", {"number": 1})) == "invalid_token", token
                        assert world.ran == other.ran == []
                    case PipeEndpoint(handler=handler):  # pipes need no tokens, because each belongs to an execution
                        assert (await handler(CallRequest("whoami", {}, 1))).value == "ada"

    async def test_a_call_that_needs_an_approval_runs_only_with_one(self, world: World, call: CallTool) -> None:
        assert (await call("pay", {"euros": 5})).value == "paid 5"
        error = await error_of(call, "pay", {"euros": 500})
        assert (error.code, "too much" in error.message) == ("approval_denied", True)
        assert world.ran == ["pay"]

    async def test_a_denied_call_is_on_record_with_its_caller_and_its_reason(self, world: World) -> None:
        async with self._guest(world, ExecutionContext(user_id="eve", organization_id="acme")) as call:
            await call("secret", {})
        [event] = await world.recorded()
        assert (event.user_id, event.organization_id, event.tool) == ("eve", "acme", "secret")
        assert (event.outcome, event.code) == ("denied", "scope_denied")

    async def test_a_rate_is_counted_for_each_user_of_each_organization(self, world: World) -> None:
        for organization, code in (("acme", None), ("acme", "rate_limited"), ("other", None)):
            async with self._guest(world, ExecutionContext(user_id="ada", organization_id=organization)) as call:
                assert code_of(await call("rare", {})) == code

    async def test_tools_come_and_go(self, world: World, call: CallTool) -> None:
        world.tools.remove("double")
        assert code_of(await call("double", {"number": 1})) == "tool_not_found"

        @tool(name="double")
        async def triple(number: int) -> int:
            return 3 * number

        world.tools.register(triple)
        assert (await call("double", {"number": 1})).value == 3

    async def test_a_tool_with_two_scopes_needs_both(self, world: World) -> None:
        for scopes, code in (({"secrets"}, "scope_denied"), ({"keys"}, "scope_denied"), ({"secrets", "keys"}, None)):
            async with self._guest(world, ExecutionContext(scopes=scopes)) as call:
                assert code_of(await call("both", {})) == code
        assert world.ran == ["both"]

    async def test_a_tool_with_alternative_scopes_needs_one_of_them(self, world: World) -> None:
        for scope, code in ("others", "scope_denied"), ("secrets", None), ("keys", None):
            async with self._guest(world, ExecutionContext(scopes={scope})) as call:
                assert code_of(await call("either", {})) == code, scope
        assert world.ran == ["either"] * 2

    async def test_a_call_whose_approval_fails_does_not_run(self, world: World, call: CallTool) -> None:
        error = await error_of(call, "pay", {"euros": -1})
        assert "hunter2" not in error.message
        assert world.ran == []
        assert (await call("pay", {"euros": 1})).error is None

    async def test_a_call_whose_approval_does_not_come_in_time_does_not_run(self) -> None:
        async with self._world(approval_seconds=APPROVAL_SECONDS) as world, self._guest(world) as call:
            error = await error_of(call, "pay", {"euros": SLOW_EUROS})
            assert error.code == "approval_denied"
            assert f"no decision came within {APPROVAL_SECONDS} s" in error.message
            assert code_of(await call("pay", {"euros": 1})) == "approval_denied", "nobody is asked a second time"
            assert (world.ran, world.asked) == ([], [{"euros": SLOW_EUROS}])
            assert (await call("double", {"number": 1})).value == 2

    async def test_a_call_that_waits_for_its_approval_keeps_no_other_waiting(
        self, world: World, call: CallTool
    ) -> None:
        replies: list[Reply] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, replies, call, "pay", {"euros": SLOW_EUROS})
            await world.waiting.wait()
            for number in range(3):
                assert (await call("double", {"number": number})).value == 2 * number
            assert (await call("pay", {"euros": 1})).value == "paid 1"
            assert replies == []
            world.released.set()
        assert replies[0].value == f"paid {SLOW_EUROS}"

    async def test_a_call_that_is_given_up_while_it_waits_for_its_approval_does_not_run(
        self, world: World, call: CallTool
    ) -> None:
        await world.give_up(call, "pay", {"euros": SLOW_EUROS})
        await world.cancelled.wait()
        world.released.set()
        assert (await call("double", {"number": 2})).value == 4
        assert world.ran == ["double"]

    async def test_nobody_is_asked_about_a_call_whose_input_does_not_fit(self, world: World, call: CallTool) -> None:
        assert code_of(await call("pay", {"euros": "many"})) == "invalid_arguments"
        assert world.asked == []

    async def test_each_of_many_calls_is_approved_or_denied_by_itself(self, world: World, call: CallTool) -> None:
        replies = await at_once(call, [("pay", {"euros": euros}) for euros in (1, 500, 2, 600, 3)])
        assert [code_of(reply) for reply in replies] == [None, "approval_denied", None, "approval_denied", None]
        assert world.ran == ["pay"] * 3

    async def test_calls_that_fail_count_against_the_budget_too(self, world: World) -> None:
        async with self._guest(world, limits=Limits(calls=2)) as call:
            codes = [code_of(await call(name, {})) for name in ("refuse", "break_down", "whoami")]
            assert codes == ["tool_error", "tool_failed", "call_budget_exceeded"]

    async def test_the_end_of_an_execution_cancels_its_calls(self, world: World) -> None:
        grant, replies = world.grant(), list[Reply]()
        async with self._guest_of(world, grant) as (call, endpoint), anyio.create_task_group() as tasks:
            if not isinstance(endpoint, HttpEndpoint):  # a pipe's client ends with its execution
                return
            tasks.start_soon(answer, replies, call, "wait", dict[str, object]())
            await world.waiting.wait()
            world.grants.close(grant)
            await world.cancelled.wait()
        assert replies[0].error is not None
        assert replies[0].error.code in {"execution_ended", "invalid_token", "cancelled", "bridge_error"}

    async def test_a_token_opens_nothing_after_its_time_and_a_renewed_one_does(self, world: World) -> None:
        grant = world.grant()
        async with world.serving(grant) as endpoint:
            if not isinstance(endpoint, HttpEndpoint):  # pipes need no tokens, because each belongs to an execution
                return
            dying = world.host.issue(grant)
            world.kill_tokens()
            for token, code in (dying, "invalid_token"), (world.host.renew(grant)[0], None):
                async with self.connect(world.protocol, world.host, replace(endpoint, token=token)) as call:
                    assert code_of(await call("double", {"number": 1})) == code
        assert world.ran == ["double"]

    async def test_a_call_outlives_the_token_that_it_was_made_with(self, world: World) -> None:
        replies: list[Reply] = []
        async with self._guest_of(world, world.grant()) as (call, endpoint), anyio.create_task_group() as tasks:
            tasks.start_soon(answer, replies, call, "hold", {"number": 7})
            await world.waiting.wait()
            world.kill_tokens()
            if isinstance(endpoint, HttpEndpoint):  # a pipe has no token
                assert code_of(await call("double", {"number": 1})) == "invalid_token"
            world.released.set()
        assert replies[0].value == 7
        assert world.ran == []

    async def test_failed_and_cancelled_calls_are_on_record_as_such(self, world: World) -> None:
        async with self._guest(world) as call:
            await call("break_down", {})
            await call("double", {"number": "seven"})
            await world.give_up(call, "wait", {})
            await world.cancelled.wait()
        outcomes = [(event.tool, event.outcome, event.code) for event in await world.recorded()]
        assert outcomes[0] == ("break_down", "failed", "tool_failed")
        assert outcomes[1][2] == "invalid_arguments"
        assert outcomes[2][:2] == ("wait", "cancelled")

    # --- bounds

    async def test_an_input_over_its_bound_is_refused(self, world: World) -> None:
        async with self._guest(world, limits=Limits(tool_input_bytes=1_000)) as call:
            assert code_of(await call("echo", {"value": "x" * 2_000})) == "message_too_large"
            assert world.ran == []
            assert (await call("echo", {"value": "x" * 100})).value == "x" * 100

    async def test_an_output_over_its_bound_is_withheld(self, world: World) -> None:
        async with self._guest(world, limits=Limits(tool_output_bytes=1_000)) as call:
            reply = await call("echo", {"value": "x" * 2_000})
            assert code_of(reply) == "message_too_large"
            assert reply.value is None

    async def test_an_input_that_is_nested_too_deeply_is_refused(self, world: World, call: CallTool) -> None:
        for depth in (200, 5_000):
            assert (await call("echo", {"value": nested(depth)})).error is not None
        assert world.ran == []
        assert (await call("echo", {"value": nested(50)})).value == nested(50)

    async def test_a_guest_that_gives_up_cancels_its_call(self, world: World, call: CallTool) -> None:
        await world.give_up(call, "wait", {})
        await world.cancelled.wait()
        assert (await call("double", {"number": 2})).value == 4

    async def test_a_guest_that_gives_up_cancels_no_call_of_another(self, world: World, call: CallTool) -> None:
        async with self._guest(world) as other:
            replies: list[Reply] = []
            async with anyio.create_task_group() as staying:
                staying.start_soon(answer, replies, other, "hold", {"number": 7})
                await world.waiting.wait()
                world.waiting = anyio.Event()
                await world.give_up(call, "wait", {})
                await world.cancelled.wait()
                assert replies == []
                world.released.set()
            assert replies[0].value == 7

    async def test_a_call_that_is_given_up_leaves_those_beside_it_their_replies(self, world: World) -> None:
        first, second = list[Reply](), list[Reply]()
        async with self._guest(world) as call, anyio.create_task_group() as staying:
            async with anyio.create_task_group() as leaving:
                staying.start_soon(answer, first, call, "hold", {"number": 1})
                leaving.start_soon(call, "wait", dict[str, object]())
                staying.start_soon(answer, second, call, "hold", {"number": 2})
                await world.waiting.wait()
                leaving.cancel_scope.cancel()
            assert (await call("double", {"number": 3})).value == 6
            assert (first, second) == ([], [])
            world.released.set()
        assert [reply.value for reply in (*first, *second)] == [1, 2]
        await world.cancelled.wait()  # at the latest once its guest has disconnected

    # --- descriptions

    async def test_a_document_shows_only_tools_that_the_scopes_allow(self, world: World) -> None:
        for scopes, shown in (frozenset[str](), False), (frozenset({"secrets"}), True):
            document = await world.protocol.document(world.grant(ExecutionContext(scopes=scopes)))
            if document is not None:
                assert b"whoami" in document.content
                assert (b"secret" in document.content) is shown


# --- streams ------------------------------------------------------------------------------------------------

_MOST_AHEAD_BYTES = 20_000_000
"""Maximum bytes of an unread stream in host, operating systems and guest together."""


class BridgeStreamSuite(BridgeSuite):
    """`BridgeSuite` for a protocol with streams: also implement `stream`."""

    def stream(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint, tool: str, input: object
    ) -> AbstractAsyncContextManager[AsyncIterator[Reply]]:
        """Calls a streaming tool as a guest, during the block. Each reply is an item.

        A failure is the last reply. Items must be requested only when the block reads them. The end of the block closes
        the stream.
        """
        raise NotImplementedError

    async def test_items_arrive_in_order_and_then_the_end(self, world: World) -> None:
        for number in (0, 1, 200):
            async with self._items(world, "count", {"to": number}) as items:
                assert [reply.value async for reply in items] == [*range(number)]

    async def test_an_item_arrives_before_the_tool_has_the_next_one(self, world: World) -> None:
        async with self._items(world, "steps") as items:
            assert (await anext(items)).value == "first"
            await world.waiting.wait()
            assert not world.closed.is_set()
            world.released.set()
            assert [reply.value async for reply in items] == ["second"]
            assert world.closed.is_set()

    async def test_items_of_all_kinds_arrive_as_they_are(self) -> None:
        async with self._world() as world, self._items(world, "values") as items:
            items_read = [reply.value async for reply in items]
        assert len(items_read) == len(VALUES)
        for one, other in zip(items_read, VALUES, strict=True):
            assert same(one, other), f"{other!r} came as {one!r}"

    async def test_a_tool_that_fails_after_some_items_ends_its_stream_with_the_error(self) -> None:
        async with self._world() as world, self._items(world, "stumble") as items:
            replies = [reply async for reply in items]
        assert [reply.value for reply in replies[:2]] == [1, 2]
        [last] = replies[2:]
        assert last.error is not None
        assert (last.error.code, last.error.message) == ("tool_error", "no more today")

    async def test_a_stream_that_is_left_is_closed(self, world: World) -> None:
        async with self._items(world, "steps") as items:
            assert (await anext(items)).value == "first"
        await world.closed.wait()

    async def test_a_stream_that_is_not_read_keeps_its_tool_waiting_and_nobody_else(self, world: World) -> None:
        async with self._items(world, "flood") as items, self._guest(world) as call:
            assert (await anext(items)).value == "x" * FLOOD_ITEM_BYTES
            for number in range(200):
                assert (await call("double", {"number": number})).value == 2 * number
            assert world.yielded * FLOOD_ITEM_BYTES <= _MOST_AHEAD_BYTES < FLOOD_ITEMS * FLOOD_ITEM_BYTES
        await world.closed.wait()

    async def test_streams_and_calls_at_the_same_time_have_their_own_answers(
        self, world: World, call: CallTool
    ) -> None:
        async with self._items(world, "count", {"to": 5}) as one, self._items(world, "count", {"to": 3}) as other:
            assert [(await anext(one)).value, (await anext(other)).value] == [0, 0]
            assert (await call("double", {"number": 4})).value == 8
            assert [reply.value async for reply in other] == [1, 2]
            assert [reply.value async for reply in one] == [1, 2, 3, 4]

    async def test_a_stream_runs_only_with_its_scope(self, world: World) -> None:
        async with self._items(world, "secrets") as items:
            assert [code_of(reply) async for reply in items] == ["scope_denied"]
        assert world.ran == []
        async with self._items(world, "secrets", context=ExecutionContext(scopes={"secrets"})) as items:
            assert [reply.value async for reply in items] == ["hunter2"]

    async def test_a_stream_that_is_refused_says_why(self, world: World) -> None:
        refused: dict[str, tuple[str, object]] = {
            "tool_not_found": ("missing", {}),
            "invalid_arguments": ("count", {"to": "many"}),
        }
        for code, called in refused.items():
            async with self._items(world, *called) as items:
                assert [code_of(reply) async for reply in items] == [code]
        assert {event.outcome for event in await world.recorded()} == {"failed"}

    async def test_a_stream_that_is_read_slowly_arrives_whole(self, world: World, call: CallTool) -> None:
        async with self._items(world, "count", {"to": 60}) as items:
            for number in range(60):
                assert (await anext(items)).value == number
                if number % 3 == 0:
                    assert (await call("double", {"number": number})).value == 2 * number
            assert [reply async for reply in items] == []

    async def test_a_stream_outlives_the_token_that_it_was_made_with(self, world: World) -> None:
        async with self._items(world, "steps") as items:
            assert (await anext(items)).value == "first"
            await world.waiting.wait()
            world.kill_tokens()
            world.released.set()
            assert [reply.value async for reply in items] == ["second"]

    async def test_the_items_of_a_stream_together_are_bounded(self, world: World) -> None:
        async with self._items(world, "flood", limits=Limits(tool_output_bytes=300_000)) as items:
            replies = [reply async for reply in items]
        assert code_of(replies[-1]) == "message_too_large"
        assert 1 <= len(replies) <= 6
        await world.closed.wait()

    async def test_a_stream_is_one_call_on_record(self, world: World) -> None:
        async with self._items(world, "count", {"to": 50}) as items:
            assert len([reply async for reply in items]) == 50
        [event] = await world.recorded()
        assert (event.tool, event.outcome, event.sequence) == ("count", "succeeded", 1)

    async def test_the_end_of_an_execution_ends_its_streams(self, world: World) -> None:
        grant = world.grant()
        async with world.serving(grant) as endpoint:
            if not isinstance(endpoint, HttpEndpoint):  # a pipe's client ends with its execution
                return
            async with self.stream(world.protocol, world.host, endpoint, "steps", dict[str, object]()) as items:
                assert (await anext(items)).value == "first"
                world.grants.close(grant)
                await world.closed.wait()
                rest = [reply async for reply in items]
                assert all(reply.error is not None for reply in rest)

    @asynccontextmanager
    async def _items(
        self,
        world: World,
        tool: str,
        input: object = None,
        context: ExecutionContext | None = None,
        limits: Limits | None = None,
    ) -> AsyncGenerator[AsyncIterator[Reply]]:
        """Opens the stream of a call in a new execution."""
        async with (
            world.serving(world.grant(context, limits)) as endpoint,
            self.stream(world.protocol, world.host, endpoint, tool, {} if input is None else input) as items,
        ):
            yield items


# --- malformed messages -------------------------------------------------------------------------------------


class SendMessage(Protocol):
    """Function that sends bytes in place of a message with calls. Returns the error code, or None after success."""

    async def __call__(self, message: bytes, pause: Callable[[], Awaitable[object]] | None = None, /) -> str | None:
        """With `pause`, sends one byte at a time, and awaits `pause()` after each.

        Returns as soon as there is a reply, even if bytes are still missing.
        """
        ...


_DEEP = 100_000
_LONG = 20_000_000
_SLOW_SENDERS = 12
_BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "a byte": b"\x00",
    "no UTF-8": b'{"calls":"\xff\xfe"}',
    "half a message": b'{"calls":[{"sequence":1,"tool":"dou',
    "another shape": b'{"calls":{"tool":"double"}}',
    "a list": b"[]",
    "a number": b"7",
    "no JSON": b"double(1)",
    "numbers that are none": b'{"calls":[{"sequence":NaN,"tool":"double","input":{"number":Infinity}}]}',
    "depth": b"[" * _DEEP + b"]" * _DEEP,
    "depth without an end": b'{"a":' * _DEEP,
    "a long number": b"9" * 100_000,
    "tags of protobuf without an end": b"\xff" * 1_000,
    "a length of protobuf beyond its end": b"\x0a\xff\xff\xff\xff\x0f",
    "a group of protobuf within itself": b"\x0b" * 10_000,
}


class BridgeMessageSuite(BridgeSuite):
    """`BridgeSuite` for a protocol with untrusted clients: also implement `raw` and `message`."""

    def raw(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint
    ) -> AbstractAsyncContextManager[SendMessage]:
        """Opens an endpoint that accepts any bytes, during the block."""
        raise NotImplementedError

    def message(self, tool: str, input: object) -> bytes:
        """Encodes a message with one call, for `raw`."""
        raise NotImplementedError

    @asynccontextmanager
    async def _sending(self, world: World, grant: Grant) -> AsyncGenerator[SendMessage]:
        async with world.serving(grant) as endpoint, self.raw(world.protocol, world.host, endpoint) as send:
            yield send

    async def test_what_is_no_message_is_refused_and_harms_nobody(self, world: World, call: CallTool) -> None:
        async with self._sending(world, world.grant()) as send:
            for name, message in _BROKEN.items():
                assert await send(message) is not None, name
                assert (await call("double", {"number": 1})).value == 2
            assert world.ran == ["double"] * len(_BROKEN)

    async def test_a_message_over_its_bound_is_refused(self, world: World) -> None:
        async with self._sending(world, world.grant(limits=Limits(tool_input_bytes=1_000))) as send:
            assert await send(b"1" * _LONG) is not None

    async def test_a_message_of_nobody_is_refused_as_such(self, world: World) -> None:
        async with self._world() as other, world.serving(world.grant()) as endpoint:
            assert isinstance(endpoint, HttpEndpoint)
            for token in other.grants.issue(other.grant()), "x":
                async with self.raw(world.protocol, world.host, replace(endpoint, token=token)) as send:
                    for message in b"", b"{", b"[" * _DEEP:
                        assert await send(message) == "invalid_token"

    async def test_a_message_that_comes_drop_by_drop_is_served_and_keeps_nobody_waiting(
        self, world: World, call: CallTool
    ) -> None:
        async with self._sending(world, world.grant()) as send:
            message = self.message("nothing", {})
            sent = 0

            async def pause() -> None:
                nonlocal sent
                sent += 1
                if sent % 16 == 0:
                    assert (await call("double", {"number": sent})).value == 2 * sent

            assert await send(message, pause) is None
            assert (world.ran[0], world.ran.count("nothing")) == ("double", 1)

    async def test_messages_that_stop_halfway_keep_nobody_waiting_and_end_with_their_execution(
        self, world: World, call: CallTool
    ) -> None:
        grant, codes = world.grant(), list[str | None]()
        message = self.message("double", {"number": 1})
        started_count = 0
        all_started = anyio.Event()

        async def send_half(send: SendMessage) -> None:
            sent = 0

            async def pause() -> None:
                nonlocal started_count, sent
                sent += 1
                if sent == len(message) // 2:
                    started_count += 1
                    if started_count == _SLOW_SENDERS:
                        all_started.set()
                    await anyio.sleep_forever()

            codes.append(await send(message, pause))

        async with self._sending(world, grant) as send, anyio.create_task_group() as tasks:
            for _ in range(_SLOW_SENDERS):
                tasks.start_soon(send_half, send)
            await all_started.wait()
            for number in range(10):
                assert (await call("double", {"number": number})).value == 2 * number
            assert codes == []
            world.grants.close(grant)
        assert len(codes) == _SLOW_SENDERS
        assert None not in codes
        assert world.ran == ["double"] * 10
