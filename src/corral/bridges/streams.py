"""Calls of tools that stream: their items go to the program one by one, within the bounds of any output."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel

from corral.bridges.calls import Call, Handler
from corral.bridges.dispatch import encoded_output, failure_of, too_much
from corral.errors import CallBudgetExceeded, ExecutionEnded, InvalidToolOutput, ToolFailed
from corral.logs import get_logger
from corral.tools.streams import CHECKPOINT_EVERY, CLOSING_SECONDS
from corral.types import OpenStream, Reply, StreamSink

__all__ = ["deliver_streams"]

_MOST_OPEN = 32
"""Open streams of one execution: each may have a window of unread bytes in the guest."""

logger = get_logger("corral.tools")


def deliver_streams(handler: Handler) -> Handler:
    """Runs tools that stream, item by item; the call ends with its stream.

    Over a bridge without streams the tool is run as any other, and its items become a list.
    """

    async def guarded(call: Call) -> Reply:
        if not call.tool.stream or call.request.open_stream is None:
            return await handler(call)
        grant = call.grant
        if not grant.live:
            raise ExecutionEnded("the execution of this call has ended")
        most = min(_MOST_OPEN, grant.limits.calls_in_flight - 1)  # so that there is room for calls within the loop
        if grant.streams >= most:
            raise CallBudgetExceeded(
                f"tools.{call.request.tool} was not called: {grant.streams} streams are open, and {most} are allowed; "
                "read one to its end or leave its loop first"
            )
        grant.streams += 1
        try:
            await _Delivery(call).run(call.request.open_stream)
        finally:
            grant.streams -= 1
        return Reply(nothing=True)

    return guarded


class _Delivery:
    """One stream, from the call of its tool to the end of the iterator.

    There is one cancel scope for all of it, because a generator may hold scopes of its own open from one item to the
    next, and scopes must nest.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._tool = call.tool
        self._grant = call.grant
        self._scope = anyio.CancelScope()
        self._timeout = self._tool.timeout_seconds
        self._stepping = self._abandoned = False
        self._items = self._bytes = 0

    async def run(self, open_stream: OpenStream) -> None:
        """Delivers all items, or those up to where the program stops reading.

        Raises:
            CorralError: the tool failed, an item was withheld, or the stream has more bytes than allowed.
        """
        call = self._call
        call.progress = "started"
        try:
            with self._scope:
                await self._deliver(open_stream)
        finally:
            end = ", until the program stopped reading" if self._abandoned else ""
            call.streamed = f"… {self._items} item{'' if self._items == 1 else 's'}, {self._bytes} bytes, streamed{end}"
        if self._scope.cancelled_caught and not self._abandoned:
            raise ToolFailed(
                f"tools.{call.request.tool} did not yield within {self._timeout} s; it may have taken effect",
                outcome_known=False,
            )
        call.progress = "returned"
        if call.remark is not None:
            logger.warning("in execution %s: %s", self._grant.execution_id, call.remark)

    async def _deliver(self, open_stream: OpenStream) -> None:
        iterator: AsyncIterator[object] | None = None
        try:
            self._begin_step()
            iterator = await self._started()
            sink = open_stream(self._abandon)
            while not self._abandoned and (item := await self._next(iterator)):
                await self._put(item[0], sink)
                self._begin_step()
        finally:
            self._end_step()
            if iterator is not None:
                await self._close(iterator)

    async def _started(self) -> AsyncIterator[object]:
        try:
            return await self._tool.open_stream(self._call.parsed, self._grant.context)
        except BaseException as error:
            if (failure := failure_of(self._call, error)) is error:
                raise
            raise failure from error

    async def _next(self, iterator: AsyncIterator[object]) -> tuple[object] | None:
        try:
            return (await anext(iterator),)
        except StopAsyncIteration:
            return None
        except BaseException as error:
            if (failure := failure_of(self._call, error)) is error:
                raise
            raise failure from error

    async def _put(self, item: object, sink: StreamSink) -> None:
        self._end_step()
        call, grant = self._call, self._grant
        try:
            value = encoded_output(call, await self._tool.dump_item(item, call.warn, grant.context))
        except InvalidToolOutput:
            logger.warning("an item was withheld in execution %s", grant.execution_id, exc_info=True)
            raise
        self._bytes += len(value.text)
        if self._bytes > (allowed := grant.limits.tool_output_bytes):
            raise too_much(call, allowed)
        self._items += 1
        # Between two items, calls of sequential tools may run: the program may wait for one before it reads on.
        turns, alone = grant.turns, self._tool.sequential
        if not sink.put(value):
            await turns.lend(sink.room(), alone=alone)
        elif turns.waited_for:
            await turns.lend(anyio.lowlevel.checkpoint(), alone=alone)
        elif self._items % CHECKPOINT_EVERY == 0:
            await anyio.lowlevel.checkpoint()

    def _abandon(self) -> None:
        """Ends the delivery: a step that is being awaited is cancelled, else the iterator is closed in its turn."""
        self._abandoned = True
        if self._stepping:
            self._scope.cancel()

    def _begin_step(self) -> None:
        self._stepping = True
        if self._timeout is not None:
            self._scope.deadline = anyio.current_time() + self._timeout

    def _end_step(self) -> None:
        self._stepping = False
        if self._timeout is not None:
            self._scope.deadline = math.inf

    async def _close(self, iterator: AsyncIterator[object]) -> None:
        close: Any = getattr(iterator, "aclose", None)
        if close is None:
            return
        until = anyio.current_time() + CLOSING_SECONDS
        if self._scope.cancel_called:
            with anyio.CancelScope(shield=True, deadline=until):
                await close()
        else:
            self._scope.shield, self._scope.deadline = True, until
            await close()
