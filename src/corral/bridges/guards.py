"""The guards between a guest's call and the tool. Each takes a handler and returns a handler; `pipeline` orders them.

A guard refuses by raising an error of `corral.errors`. The outermost one turns errors into replies, so a handler made
by `pipeline` never raises for anything a guest or a tool does.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import deque
from typing import NamedTuple

import anyio

from corral.bridges.records import CallRecorder
from corral.errors import (
    AccessDenied,
    ApprovalDenied,
    CallBudgetExceeded,
    CorralError,
    InvalidToolOutput,
    MessageTooLarge,
    ScopeDenied,
    ToolError,
    ToolFailed,
)
from corral.guest import UnencodableValue, encode_value
from corral.tools import ParsedInput, Tool, ToolRegistry
from corral.types import Call, CallError, Handler, Limits, Reply

__all__ = ["answered", "approved", "authorized", "dispatch", "encoded", "limited", "pipeline", "recorded", "validated"]

logger = logging.getLogger("corral.tools")


def pipeline(tools: ToolRegistry, limits: Limits, recorder: CallRecorder) -> Handler:
    """audit ▸ authenticate ▸ authorize ▸ limit ▸ validate ▸ approve ▸ dispatch, as far as each is built."""
    handler = dispatch()
    handler = encoded(handler, limits)
    handler = approved(handler)
    handler = validated(handler, tools)
    handler = limited(handler, limits)
    handler = authorized(handler, tools)
    # authenticate: for protocols that carry a token; a pipe's context comes from the host itself.
    # audit: an event per call for the host's sinks, denials included.
    handler = answered(handler)
    return recorded(handler, recorder)


def recorded(handler: Handler, recorder: CallRecorder) -> Handler:
    """Records every call and its outcome; at level DEBUG also in the log, without its values."""

    async def record(call: Call) -> Reply:
        entry = recorder.start(call)
        started = time.perf_counter()
        try:
            reply = await handler(call)
        except BaseException:
            recorder.cut_short(entry, (time.perf_counter() - started) * 1000)
            raise
        duration_ms = (time.perf_counter() - started) * 1000
        recorder.finish(entry, reply, duration_ms)
        if logger.isEnabledFor(logging.DEBUG):
            outcome = "answered" if reply.error is None else reply.error.name
            logger.debug("tools.%s %s in %.1f ms in execution %s", call.tool, outcome, duration_ms, call.execution_id)
        return reply

    return record


def answered(handler: Handler) -> Handler:
    """Turns errors into replies: ours with their text, anything else as a failure whose details go to the log only."""

    async def answer(call: Call) -> Reply:
        try:
            return await handler(call)
        except CorralError as error:
            return Reply(error=CallError.of(error))
        except Exception:
            return Reply(error=CallError.of(_unexpected(call)))

    return answer


def authorized(handler: Handler, tools: ToolRegistry) -> Handler:
    """Compares the scopes that a tool asks for with those of the caller's context. Nothing is implied."""

    async def authorize(call: Call) -> Reply:
        tool = tools.resolve(call.tool)
        held = call.context.scopes
        if missing := tool.scopes - held:
            raise ScopeDenied(f"tools.{call.tool} needs the scope {', '.join(sorted(missing))}")
        if tool.any_scope and not tool.any_scope & held:
            raise ScopeDenied(f"tools.{call.tool} needs one of the scopes {', '.join(sorted(tool.any_scope))}")
        return await handler(call)

    return authorize


def limited(handler: Handler, limits: Limits) -> Handler:
    """Holds the budget of calls, and makes calls wait while too many are running."""
    made = 0
    running = 0
    waiting: deque[anyio.Event] = deque()

    def leave() -> None:
        nonlocal running
        if waiting:
            waiting.popleft().set()  # the place passes on, so that nobody can come between
        else:
            running -= 1

    async def limit(call: Call) -> Reply:
        nonlocal made, running
        made += 1
        if made > limits.calls:
            raise CallBudgetExceeded(f"the budget of {limits.calls} tool calls is used up")
        if running < limits.calls_in_flight:
            running += 1
        else:
            waiting.append(turn := anyio.Event())
            try:
                await turn.wait()
            except BaseException:
                if turn.is_set():
                    leave()
                else:
                    waiting.remove(turn)
                raise
        try:
            return await handler(call)
        finally:
            leave()

    return limit


class Validated(NamedTuple):
    """What `validated` makes of a call's input: the tool that was found, and the input it takes."""

    tool: Tool
    input: ParsedInput


def validated(handler: Handler, tools: ToolRegistry) -> Handler:
    """Finds the tool and validates the input; the handlers behind it see both, and no other tool."""

    async def validate(call: Call) -> Reply:
        tool = tools.resolve(call.tool)
        return await handler(call.with_input(Validated(tool, tool.parse_input(call.input))))

    return validate


def approved(handler: Handler) -> Handler:
    """Refuses what needs an approval: there is nobody yet who could be asked."""

    async def approve(call: Call) -> Reply:
        assert isinstance(call.input, Validated)
        if call.input.tool.needs_approval:
            raise ApprovalDenied(f"tools.{call.tool} needs an approval, and nobody can be asked for it here")
        return await handler(call)

    return approve


def encoded(handler: Handler, limits: Limits) -> Handler:
    """Encodes the output for its way back, within its bound."""

    async def encode(call: Call) -> Reply:
        reply = await handler(call)
        if reply.error is not None or reply.nothing:
            return reply
        try:
            value = encode_value(reply.value)
        except UnencodableValue as problem:
            raise InvalidToolOutput(f"tools.{call.tool} returned what a program cannot receive: {problem}") from problem
        if len(value.text) > limits.tool_output_bytes:
            raise MessageTooLarge(
                f"tools.{call.tool} returned {len(value.text)} bytes; {limits.tool_output_bytes} are allowed, "
                "so ask it for less at a time"
            )
        return Reply(value=reply.value, encoded=value)

    return encode


def dispatch() -> Handler:
    """Runs the tool on validated input. Its `ToolError`s reach the program; all else that it raises only the log."""

    async def run(call: Call) -> Reply:
        assert isinstance(call.input, Validated)
        tool, parsed = call.input
        try:
            if tool.timeout_seconds is None:
                value = await tool.execute(parsed, call.context)
            else:
                value = await _within(tool.timeout_seconds, tool, parsed, call)
        except (ToolError, AccessDenied):
            raise
        except KeyboardInterrupt:
            raise
        except anyio.get_cancelled_exc_class() as error:
            if anyio.current_effective_deadline() == -math.inf:
                raise  # this execution is being cancelled
            raise _unexpected(call) from error  # something inside the tool was, and the program must hear of it
        except BaseException as error:  # SystemExit too: tools wrap command lines, and must not end the host
            raise _unexpected(call) from error
        try:
            value = tool.dump_output(value)
        except InvalidToolOutput:  # its message is for the model and says little on purpose
            logger.warning(
                "tools.%s broke its output schema in execution %s", call.tool, call.execution_id, exc_info=True
            )
            raise
        return Reply(value=value, nothing=value is None and _returns_nothing(tool))

    return run


async def _within(seconds: float, tool: Tool, parsed: ParsedInput, call: Call) -> object:
    with anyio.move_on_after(seconds):
        return await tool.execute(parsed, call.context)
    raise ToolFailed(f"tools.{call.tool} did not answer within {seconds:g} s")


def _returns_nothing(tool: Tool) -> bool:
    return tool.output_schema is None or tool.output_schema.get("type") == "null"


def _unexpected(call: Call) -> ToolFailed:
    """Logs the exception being handled, and makes the error that a program may see of it."""
    correlation = secrets.token_hex(6)
    logger.exception("tools.%s failed in execution %s (correlation id %s)", call.tool, call.execution_id, correlation)
    return ToolFailed(f"tools.{call.tool} failed (correlation id {correlation})")
