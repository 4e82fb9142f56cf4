"""Tests of streams over a bridge protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from corral.bridges import BridgeHost, BridgeProtocol
from corral.testing.bridges.suite import BridgeSuite
from corral.testing.bridges.world import FLOOD_ITEM_BYTES, FLOOD_ITEMS, VALUES, World, code_of, same
from corral.types import Endpoint, ExecutionContext, HttpEndpoint, Limits, Reply

_MOST_AHEAD_BYTES = 20_000_000
"""Limit for the bytes of an unread stream in host, operating systems and guest together."""


class BridgeStreamSuite(BridgeSuite):
    """`BridgeSuite` for a protocol with streams: also implement `stream`."""

    def stream(
        self, protocol: BridgeProtocol, host: BridgeHost, endpoint: Endpoint, tool: str, input: object
    ) -> AbstractAsyncContextManager[AsyncIterator[Reply]]:
        """Calls a streaming tool, as a guest, for the duration of the block: each reply is an item.

        A failure is the last reply. Items are requested when the block reads them. The block's end closes the stream.
        """
        raise NotImplementedError

    async def test_items_arrive_in_order_and_then_the_end(self) -> None:
        async with self._world() as world:
            for number in (0, 1, 200):
                async with self._items(world, "count", {"to": number}) as items:
                    assert [reply.value async for reply in items] == [*range(number)]

    async def test_an_item_arrives_before_the_tool_has_the_next_one(self) -> None:
        async with self._world() as world, self._items(world, "steps") as items:
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

    async def test_a_stream_that_is_left_is_closed(self) -> None:
        async with self._world() as world:
            async with self._items(world, "steps") as items:
                assert (await anext(items)).value == "first"
            await world.closed.wait()

    async def test_a_stream_that_is_not_read_keeps_its_tool_waiting_and_nobody_else(self) -> None:
        async with self._world() as world:
            async with self._items(world, "flood") as items, self._guest(world) as call:
                assert (await anext(items)).value == "x" * FLOOD_ITEM_BYTES
                for number in range(200):
                    assert (await call("double", {"number": number})).value == 2 * number
                assert world.yielded * FLOOD_ITEM_BYTES <= _MOST_AHEAD_BYTES < FLOOD_ITEMS * FLOOD_ITEM_BYTES
            await world.closed.wait()

    async def test_streams_and_calls_at_the_same_time_have_their_own_answers(self) -> None:
        async with (
            self._world() as world,
            self._guest(world) as call,
            self._items(world, "count", {"to": 5}) as one,
            self._items(world, "count", {"to": 3}) as other,
        ):
            assert [(await anext(one)).value, (await anext(other)).value] == [0, 0]
            assert (await call("double", {"number": 4})).value == 8
            assert [reply.value async for reply in other] == [1, 2]
            assert [reply.value async for reply in one] == [1, 2, 3, 4]

    async def test_a_stream_runs_only_with_its_scope(self) -> None:
        async with self._world() as world:
            async with self._items(world, "secrets") as items:
                assert [code_of(reply) async for reply in items] == ["scope_denied"]
            assert world.ran == []
            async with self._items(world, "secrets", context=ExecutionContext(scopes={"secrets"})) as items:
                assert [reply.value async for reply in items] == ["hunter2"]

    async def test_a_stream_that_is_refused_says_why(self) -> None:
        async with self._world() as world:
            refused: dict[str, tuple[str, object]] = {
                "tool_not_found": ("missing", {}),
                "invalid_arguments": ("count", {"to": "many"}),
            }
            for code, (tool, input) in refused.items():
                async with self._items(world, tool, input) as items:
                    assert [code_of(reply) async for reply in items] == [code]
            assert {event.outcome for event in await world.recorded()} == {"failed"}

    async def test_a_stream_that_is_read_slowly_arrives_whole(self) -> None:
        async with (
            self._world() as world,
            self._guest(world) as call,
            self._items(world, "count", {"to": 60}) as items,
        ):
            for number in range(60):
                assert (await anext(items)).value == number
                if number % 3 == 0:
                    assert (await call("double", {"number": number})).value == 2 * number
            assert [reply async for reply in items] == []

    async def test_a_stream_outlives_the_token_that_it_was_made_with(self) -> None:
        async with self._world() as world, self._items(world, "steps") as items:
            assert (await anext(items)).value == "first"
            await world.waiting.wait()
            world.kill_tokens()
            world.released.set()
            assert [reply.value async for reply in items] == ["second"]

    async def test_the_items_of_a_stream_together_are_bounded(self) -> None:
        async with self._world() as world:
            async with self._items(world, "flood", limits=Limits(tool_output_bytes=300_000)) as items:
                replies = [reply async for reply in items]
            assert code_of(replies[-1]) == "message_too_large"
            assert 1 <= len(replies) <= 6
            await world.closed.wait()

    async def test_a_stream_is_one_call_on_record(self) -> None:
        async with self._world() as world:
            async with self._items(world, "count", {"to": 50}) as items:
                assert len([reply async for reply in items]) == 50
            [event] = await world.recorded()
            assert (event.tool, event.outcome, event.sequence) == ("count", "succeeded", 1)

    async def test_the_end_of_an_execution_ends_its_streams(self) -> None:
        async with self._world() as world:
            grant = world.grant()
            async with world.protocol.serve(world.host, grant) as endpoint:
                if not isinstance(endpoint, HttpEndpoint):  # the client of a pipe ends with its execution
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
        grant = world.grant(context, limits)
        try:
            async with (
                world.protocol.serve(world.host, grant) as endpoint,
                self.stream(world.protocol, world.host, endpoint, tool, {} if input is None else input) as items,
            ):
                yield items
        finally:
            world.grants.close(grant)
