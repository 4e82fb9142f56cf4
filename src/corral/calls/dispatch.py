"""End of the pipeline: runs the tool and encodes its output, or delivers its items one by one."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import anyio.lowlevel

from corral.calls.calls import Call, Handler
from corral.errors import (
    AccessDenied,
    CallBudgetExceeded,
    ExecutionEnded,
    InvalidToolOutput,
    MessageTooLarge,
    ToolError,
    ToolFailed,
)
from corral.guest import UnencodableValue, encode_by_size
from corral.logs import get_logger
from corral.model import LearntResults
from corral.tools import ParsedInput, Tool, ToolCall
from corral.tools.streams import CHECKPOINT_EVERY, CLOSING_SECONDS, TooMuch
from corral.types import CallState, OpenStream, Reply, StreamSink

if TYPE_CHECKING:
    from _typeshed import OptExcInfo

logger = get_logger("corral.tools")

_CALLING = re.compile(
    r"(?:corral\.(?:bridges|calls|concurrency|integrations|tools)|agents|anyio|asyncio|concurrent|contextlib|contextvars|"
    r"google|langchain_core|mcp|pydantic_ai|threading)(?:\.|$)"
)
"""Modules whose frames precede the tool's own in a traceback."""
_MOST_OPEN = 32
"""Maximum number of open streams in one execution: each can have a full window of unread bytes in the guest."""


def dispatch(tool_logger: logging.Logger | None = None) -> Handler:
    """Runs the tool on validated input. Programs see its `ToolError`s; other errors only go to the log.

    A tool that streams is run item by item; over a bridge without streams, its items are collected in a list.
    `tool_logger` is the parent of all tools' loggers.
    """

    async def run(call: Call) -> Reply:
        tool, parsed = call.tool, call.parsed
        grant = call.grant
        if not grant.live:  # it may have ended while the call waited for its turn or an approval
            raise ExecutionEnded("the execution of this call has ended")
        if grant.journal is not None:  # which records a stream as one list
            if not tool.read_only:
                await grant.journal.starting(call.request)
        elif tool.stream and call.request.open_stream is not None:
            return await _stream(call, call.request.open_stream, tool_logger)
        most_bytes = grant.limits.tool_output_bytes
        call.state = "started"
        tool_call = _tool_call(call, tool_logger)
        try:
            if tool.timeout_seconds is None:
                value = await tool.execute(parsed, tool_call, most_bytes=most_bytes)
            else:
                value = await _within(tool.timeout_seconds, tool, parsed, tool_call, most_bytes)
        except TooMuch:
            raise _too_much(call, most_bytes) from None
        except BaseException as error:
            _raise_failure(call, error)
        finally:
            tool_call.end()
        call.state = "returned"
        try:
            value = await tool.dump_output(value, call.warn, grant.context)
        except InvalidToolOutput as error:
            detail = logger.isEnabledFor(logging.DEBUG)  # causes may quote values
            message = "a result was withheld in execution %s: %s"
            logger.warning(message, grant.execution_id, error, exc_info=detail, extra=call.log_fields)
            raise
        if call.remark is not None:
            logger.warning("in execution %s: %s", grant.execution_id, call.remark, extra=call.log_fields)
        return Reply(value=value, nothing=value is None and _returns_nothing(tool))

    return run


def dispatch_undo(
    output: object, starting: Callable[[], Awaitable[None]], tool_logger: logging.Logger | None = None
) -> Handler:
    """Calls `starting`, and undoes a call that had this output."""

    async def run(call: Call) -> Reply:
        tool_call, seconds = _tool_call(call, tool_logger, undoing=True), call.tool.timeout_seconds
        await starting()
        call.state = "started"
        try:
            with anyio.move_on_after(seconds):
                await call.tool.take_back(call.parsed, output, tool_call)
                call.state = "returned"
                return Reply(nothing=True)
        except BaseException as error:
            # an unexpected error can leave a change half undone
            _raise_failure(call, error, f"undoing tools.{call.request.tool}", unexpected_state="started")
        text = f"undoing tools.{call.request.tool} did not end within {seconds:g} s; it may have taken effect"
        raise ToolFailed(text, outcome_known=False)

    return run


def _tool_call(call: Call, tool_logger: logging.Logger | None, *, undoing: bool = False) -> ToolCall:
    """Returns the view of a call for its tool."""
    grant, request = call.grant, call.request
    return ToolCall(
        grant.context,
        execution_id=grant.execution_id,
        sequence=request.sequence,
        tool=request.tool,
        report=None if grant.recorder is None else partial(grant.recorder.report, request),
        logger=tool_logger,
        undoing=undoing,
    )


def _raise_failure(
    call: Call, error: BaseException, failed: str | None = None, *, unexpected_state: CallState = "raised"
) -> NoReturn:
    """Raises the error of a call whose tool raised `error`, the current exception."""
    if isinstance(error, ToolError | AccessDenied):
        if error.outcome_known:
            call.state = "raised"
        raise error
    is_cancelled = isinstance(error, anyio.get_cancelled_exc_class()) and being_cancelled()
    if is_cancelled or isinstance(error, KeyboardInterrupt):
        raise error
    call.state = unexpected_state  # SystemExit too: tools that wrap command lines must not end the host
    raise unexpected(call, failed) from error


def _too_much(call: Call, allowed: int) -> MessageTooLarge:
    """Returns the error of a tool that was stopped for yielding too much."""
    return MessageTooLarge(
        f"tools.{call.request.tool} ran, and was stopped: it yields more than the {allowed} bytes allowed; "
        "ask for less at a time"
    )


def _withheld(call: Call, problem: UnencodableValue) -> InvalidToolOutput:
    """Returns the error for a result or stream item that a program cannot receive."""
    return InvalidToolOutput(
        f"tools.{call.request.tool} ran, but its result was withheld: a program cannot receive it: {problem}"
    )


def encode_output(handler: Handler, learnt: LearntResults | None = None) -> Handler:
    """Encodes the output and enforces `tool_output_bytes`. `learnt` learns types from outputs that are not streamed."""

    async def guarded(call: Call) -> Reply:
        reply = await handler(call)
        if reply.error is not None or reply.nothing:
            if learnt is not None and reply.nothing:
                learnt.observe(call.tool, None, call.grant.context, call.grant.execution_id)
            return reply
        try:
            value = await encode_by_size(reply.value, call.grant.context)
        except UnencodableValue as problem:
            raise _withheld(call, problem) from problem
        allowed = call.grant.limits.tool_output_bytes
        if len(value.text) > allowed:
            raise MessageTooLarge(
                f"tools.{call.request.tool} ran, but its result was withheld: it has {len(value.text)} bytes, and "
                f"{allowed} are allowed; ask for less at a time"
            )
        if learnt is not None:
            learnt.observe(call.tool, reply.value, call.grant.context, call.grant.execution_id)
        return Reply(value=reply.value, encoded=value)

    return guarded


def unexpected(call: Call, failed: str | None = None) -> ToolFailed:
    """Logs the current exception with a correlation id, and returns the error for the program, which names `failed`."""
    failed = failed or f"tools.{call.request.tool}"
    correlation = secrets.token_hex(6)
    execution = call.grant.execution_id if call.authenticated else None
    logger.error(
        "%s failed in execution %s (correlation id %s)",
        failed,
        execution,
        correlation,
        exc_info=_own_frames(sys.exc_info()),
        extra=call.log_fields | {"correlation_id": correlation},
    )
    return ToolFailed(f"{failed} failed (correlation id {correlation})", correlation_id=correlation)


def _own_frames(raised: OptExcInfo) -> OptExcInfo:
    """Removes the frames that lead to the tool, which are always the same. At level DEBUG they are kept."""
    kind, error, own = raised
    if kind is None or error is None or logger.isEnabledFor(logging.DEBUG):
        return raised
    while own is not None and _CALLING.match(own.tb_frame.f_globals.get("__name__") or ""):
        own = own.tb_next
    return raised if own is None else (kind, error, own)


async def _within(seconds: float, tool: Tool, parsed: ParsedInput, call: ToolCall, most_bytes: int) -> object:
    with anyio.move_on_after(seconds):
        return await tool.execute(parsed, call, most_bytes=most_bytes)
    raise ToolFailed(
        f"tools.{call.tool} did not answer within {seconds:g} s; it may have taken effect", outcome_known=False
    )


def being_cancelled() -> bool:
    """True if this call itself was cancelled, rather than something inside the tool."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another event loop
        return False
    return task is not None and task.cancelling() > 0


def _returns_nothing(tool: Tool) -> bool:
    return tool.output_schema is None or tool.output_schema.get("type") == "null"


# --- tools that stream ---------------------------------------------------------------------------------------------


async def _stream(call: Call, open_stream: OpenStream, tool_logger: logging.Logger | None) -> Reply:
    """Runs a tool that streams, item by item. The call ends when its stream does."""
    grant = call.grant
    most = min(_MOST_OPEN, grant.limits.calls_in_flight - 1)  # one is left for calls within the loop
    if grant.streams >= most:
        raise CallBudgetExceeded(
            f"tools.{call.request.tool} was not called: {grant.streams} streams are open, and {most} are allowed; "
            "read one to its end or leave its loop first"
        )
    grant.streams += 1
    tool_call = _tool_call(call, tool_logger)
    try:
        await _Delivery(call, tool_call).run(open_stream)
    finally:
        grant.streams -= 1
        tool_call.end()
    return Reply(nothing=True)


class _Delivery:
    """One stream, from the call of its tool to the end of the iterator.

    Uses a single cancel scope, because scopes must nest and a generator can keep its own open between items.
    """

    def __init__(self, call: Call, tool_call: ToolCall) -> None:
        self._call = call
        self._tool_call = tool_call
        self._tool = call.tool
        self._grant = call.grant
        self._scope = anyio.CancelScope()
        self._timeout = self._tool.timeout_seconds
        self._stepping = self._abandoned = False
        self._items = self._bytes = 0

    async def run(self, open_stream: OpenStream) -> None:
        """Delivers items to the end, or until the program stops reading.

        Raises:
            CorralError: the tool failed, an item was withheld, or the stream has more bytes than allowed.
        """
        call = self._call
        call.state = "started"
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
        call.state = "returned"
        if call.remark is not None:
            logger.warning("in execution %s: %s", self._grant.execution_id, call.remark, extra=call.log_fields)

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
            return await self._tool.open_stream(self._call.parsed, self._tool_call)
        except BaseException as error:
            _raise_failure(self._call, error)

    async def _next(self, iterator: AsyncIterator[object]) -> tuple[object] | None:
        try:
            return (await anext(iterator),)
        except StopAsyncIteration:
            return None
        except BaseException as error:
            _raise_failure(self._call, error)

    async def _put(self, item: object, sink: StreamSink) -> None:
        self._end_step()
        call, grant = self._call, self._grant
        try:
            data = await self._tool.dump_item(item, call.warn, grant.context)
            value = await encode_by_size(data, grant.context)
        except (InvalidToolOutput, UnencodableValue) as problem:
            logger.warning(
                "an item was withheld in execution %s", grant.execution_id, exc_info=True, extra=call.log_fields
            )
            if isinstance(problem, UnencodableValue):
                raise _withheld(call, problem) from problem
            raise
        self._bytes += len(value.text)
        if self._bytes > (allowed := grant.limits.tool_output_bytes):
            raise _too_much(call, allowed)
        self._items += 1
        if grant.flow is not None and call.label is not None:
            text = value.text.decode("utf-8", "replace") if call.label.untrusted else ""
            grant.flow.returned(call.request.tool, call.request.sequence, call.label, data, text)
        # Calls of sequential tools run between items: the program may wait for one before it reads the next item.
        turns, alone = grant.turns, self._tool.sequential
        if not sink.put(value):
            await turns.lend(sink.room(), alone=alone)
        elif turns.waited_for:
            await turns.lend(anyio.lowlevel.checkpoint(), alone=alone)
        elif self._items % CHECKPOINT_EVERY == 0:
            await anyio.lowlevel.checkpoint()

    def _abandon(self) -> None:
        """Ends the delivery: cancels a running step; otherwise the next step closes the iterator."""
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
