"""End of the pipeline: runs the tool and encodes its output."""

from __future__ import annotations

import asyncio
import math
import secrets

import anyio

from corral.bridges.calls import Call, Handler
from corral.errors import AccessDenied, ExecutionEnded, InvalidToolOutput, MessageTooLarge, ToolError, ToolFailed
from corral.guest import UnencodableValue, encode_value
from corral.logs import get_logger
from corral.tools import ParsedInput, Tool
from corral.tools.streams import TooMuch
from corral.types import EncodedValue, Reply

__all__ = [
    "being_cancelled",
    "dispatch",
    "encode_output",
    "encoded_output",
    "failure_of",
    "too_much",
    "unexpected",
]

logger = get_logger("corral.tools")


def dispatch() -> Handler:
    """Runs the tool on validated input. Its `ToolError`s reach the program; its other errors reach only the log."""

    async def run(call: Call) -> Reply:
        tool, parsed = call.tool, call.parsed
        grant = call.grant
        if not grant.live:  # it may have ended while the call waited for its turn or an approval
            raise ExecutionEnded("the execution of this call has ended")
        most_bytes = grant.limits.tool_output_bytes
        call.progress = "started"
        try:
            if tool.timeout_seconds is None:
                value = await tool.execute(parsed, grant.context, most_bytes=most_bytes)
            else:
                value = await _within(tool.timeout_seconds, tool, parsed, call)
        except TooMuch:
            raise too_much(call, most_bytes) from None
        except BaseException as error:
            failure = failure_of(call, error)
            if failure is error:
                raise
            raise failure from error
        call.progress = "returned"
        try:
            value = await tool.dump_output(value, call.warn, grant.context)
        except InvalidToolOutput:  # its message is for the model and says little on purpose
            logger.warning("a result was withheld in execution %s", grant.execution_id, exc_info=True)
            raise
        if call.remark is not None:
            logger.warning("in execution %s: %s", grant.execution_id, call.remark)
        return Reply(value=value, nothing=value is None and _returns_nothing(tool))

    return run


def failure_of(call: Call, error: BaseException) -> BaseException:
    """Returns what the call fails with for an error of its tool, which is the current exception."""
    match error:
        case ToolError() | AccessDenied():
            if error.outcome_known:
                call.progress = "raised"
            return error
        case KeyboardInterrupt():
            return error
        case _ if isinstance(error, anyio.get_cancelled_exc_class()) and being_cancelled():
            return error
        case _:  # SystemExit too: tools wrap command lines, and must not end the host
            call.progress = "raised"
            return unexpected(call)


def too_much(call: Call, allowed: int) -> MessageTooLarge:
    """Returns the error of a tool that was stopped at its bound."""
    return MessageTooLarge(
        f"tools.{call.request.tool} ran, and was stopped: it yields more than {allowed} bytes, all that are allowed; "
        "ask for less at a time"
    )


def encoded_output(call: Call, value: object) -> EncodedValue:
    """Encodes a result, or an item of a stream.

    Raises:
        InvalidToolOutput: a program cannot receive it.
    """
    try:
        return encode_value(value)
    except UnencodableValue as problem:
        raise InvalidToolOutput(
            f"tools.{call.request.tool} ran, but its result was withheld: a program cannot receive it: {problem}"
        ) from problem


def encode_output(handler: Handler) -> Handler:
    """Encodes the output and enforces `tool_output_bytes`."""

    async def guarded(call: Call) -> Reply:
        reply = await handler(call)
        if reply.error is not None or reply.nothing:
            return reply
        value = encoded_output(call, reply.value)
        allowed = call.grant.limits.tool_output_bytes
        if len(value.text) > allowed:
            raise MessageTooLarge(
                f"tools.{call.request.tool} ran, but its result was withheld: it has {len(value.text)} bytes, and "
                f"{allowed} are allowed; ask for less at a time"
            )
        return Reply(value=reply.value, encoded=value)

    return guarded


def unexpected(call: Call, failed: str | None = None) -> ToolFailed:
    """Logs the current exception with a correlation id; returns the error for the program, which names `failed`."""
    failed = failed or f"tools.{call.request.tool}"
    correlation = secrets.token_hex(6)
    execution = call.grant.execution_id if call.authenticated else None
    logger.exception("%s failed in execution %s (correlation id %s)", failed, execution, correlation)
    return ToolFailed(f"{failed} failed (correlation id {correlation})", correlation_id=correlation)


async def _within(seconds: float, tool: Tool, parsed: ParsedInput, call: Call) -> object:
    grant = call.grant
    with anyio.move_on_after(seconds):
        return await tool.execute(parsed, grant.context, most_bytes=grant.limits.tool_output_bytes)
    raise ToolFailed(
        f"tools.{call.request.tool} did not answer within {seconds:g} s; it may have taken effect", outcome_known=False
    )


def being_cancelled() -> bool:
    """True if this call is cancelled; False for a cancellation inside the tool."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another event loop
        return False
    return task is not None and task.cancelling() > 0


def _returns_nothing(tool: Tool) -> bool:
    return tool.output_schema is None or tool.output_schema.get("type") == "null"
