"""Guards between a guest's call and the tool. Each takes a handler and returns a handler; `pipeline` orders them.

A guard refuses a call by raising an error of `corral.errors`, which `convert_errors` turns into a reply. So a handler
from `pipeline` never raises, whatever a guest or a tool does.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import anyio

from corral.audit import AuditLog, Telemetry
from corral.calls.approvals import ParkedCalls, require_approval
from corral.calls.auditing import audit_calls
from corral.calls.calls import Call, Handler
from corral.calls.dispatch import being_cancelled, dispatch, dispatch_undo, encode_output, unexpected
from corral.calls.grants import Grants, current_grant
from corral.calls.rates import RateLimits
from corral.calls.records import CallRecorder
from corral.calls.scopes import require_scopes
from corral.concurrency.fairness import run_in_turn
from corral.errors import CallBudgetExceeded, CorralError, ExecutionEnded, InvalidArguments, MessageTooLarge
from corral.logs import get_logger
from corral.model import LearntResults
from corral.rendering.preview import json_text
from corral.tools import traced_elsewhere
from corral.tools.json_schema.problems import format_path
from corral.types import Approve, CallError, Reply

logger = get_logger("corral.tools")

_OBJECT = "[object Object]"
_ACCIDENTAL = re.compile(
    r"(?P<js>\[object (?:(?P<promise>Promise)|(?P<object>Object)"
    r"|(?P<reader>(?:Async)?Generator|(?:Array|Map|Set) Iterator))\])"
    r"|<(?P<coroutine>coroutine object|(?:Task|Future|_GatheringFuture) (?:pending|finished|cancelled))\b"
    r"|<(?P<generator>(?:async_)?generator object|(?:map|filter|zip|enumerate|reversed) object)(?= (?:at 0x|\w))"
    r"|<(?P<function>(?:function|bound method|built-in method) [\w.<>]+)(?= at 0x| of )"
)
"""Texts that result from accidentally converting a value to a string. Each group's name is a key of `_REMEDIES`."""
_REMEDIES = {
    "promise": "a value was not awaited",
    "object": "write JSON.stringify(...), or pass the members you need",
    "reader": "an iterator was not read: write [...values]",
    "coroutine": "a value was not awaited",
    "generator": "an iterator was not read: write list(...), or [... async for ...]",
    "function": "a function was not called",
}
_LOOKED_THROUGH_BYTES = 4_000_000
"""Maximum size of results that are searched for a text. Texts count as part of any larger result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Guard settings of one Corral. Tools and executions can add to them."""

    grants: Grants
    rates: RateLimits
    audit: AuditLog | None = None
    approve: Approve | None = None
    approval_seconds: float = 300.0
    parked: ParkedCalls = field(default_factory=ParkedCalls)
    logger: logging.Logger | None = None
    """Parent of the loggers of tools. None means `corral`."""
    telemetry: Telemetry | None = None
    """None records no spans and metrics."""
    learnt: LearntResults | None = None
    """Learns types from results that tools do not declare."""


Pipeline: TypeAlias = Callable[[Policy], Handler]
"""Function that orders guards; `Corral(pipeline=...)` replaces `pipeline`."""
_Place: TypeAlias = "tuple[_Place, object] | None"
"""Linked path to a value: the path of its container, and its name or index in there."""


def pipeline(policy: Policy) -> Handler:
    """audit ▸ authenticate ▸ trace ▸ authorize ▸ limit ▸ validate ▸ approve ▸ dispatch; the last line is outermost."""
    handler = dispatch(policy.logger)
    handler = sequence_calls(handler)
    handler = encode_output(handler, policy.learnt)
    handler = require_approval(handler, policy.approve, policy.approval_seconds, policy.parked)
    handler = validate_input(handler)
    handler = limit_rates(handler, policy.rates)
    handler = limit_calls(handler)
    handler = authorize(handler)
    handler = convert_errors(handler)
    handler = record_calls(handler)
    handler = trace_calls(handler, policy.telemetry)
    handler = authenticate(handler, policy.grants)
    handler = convert_errors(handler)
    return audit_calls(handler, policy.audit)


async def undo_call(policy: Policy, call: Call, output: object) -> Reply:
    """audit ▸ authorize ▸ validate ▸ undo a call that had this output; limits and rates do not count."""
    handler = dispatch_undo(output, policy.logger)
    handler = validate_input(handler)
    handler = authorize(handler)
    handler = convert_errors(handler)
    return await audit_calls(handler, policy.audit, undoes=True)(call)


def convert_errors(handler: Handler) -> Handler:
    """Converts errors to replies: Corral's own with their message, others as a failure whose details only go to the
    log."""

    async def guarded(call: Call) -> Reply:
        try:
            return await handler(call)
        except CorralError as error:
            return Reply(error=CallError.of(error))
        except anyio.get_cancelled_exc_class():
            if being_cancelled():
                raise
            return Reply(
                error=CallError.of(unexpected(call))
            )  # cancelled inside a host's guard; this call itself was not
        except Exception:
            return Reply(error=CallError.of(unexpected(call)))

    return guarded


def authenticate(handler: Handler, grants: Grants) -> Handler:
    """Finds the live grant of a call: by its token, unless the bridge has set the grant."""

    async def guarded(call: Call) -> Reply:
        try:
            grant = call.grant
        except AttributeError:
            grant = call.grant = grants.find(call.token)
        else:
            if not grant.live:
                raise ExecutionEnded("the execution of this call has ended")
        before = current_grant.set(grant)
        try:
            return await handler(call)
        finally:
            current_grant.reset(before)

    return guarded


def record_calls(handler: Handler) -> Handler:
    """Records the call and its outcome for the result. Also logs them at level DEBUG, without values."""

    async def guarded(call: Call) -> Reply:
        recorder = call.grant.recorder
        if recorder is None:
            return await handler(call)
        entry = recorder.start(call.request)
        started = time.perf_counter()
        try:
            reply = await handler(call)
        except BaseException:
            entry.output, entry.decision = call.streamed, call.decision
            recorder.cut_short(entry, (time.perf_counter() - started) * 1000, call.state, call.remark)
            raise
        duration_ms = (time.perf_counter() - started) * 1000
        if reply.parked:
            return reply
        entry.output, entry.decision = call.streamed, call.decision
        recorder.finish(entry, reply, duration_ms, call.state, call.remark)
        if logger.isEnabledFor(logging.DEBUG):
            outcome = "answered" if reply.error is None else reply.error.name
            execution_id = call.grant.execution_id
            logger.debug(
                "tools.%s %s in %.1f ms in execution %s",
                call.request.tool,
                outcome,
                duration_ms,
                execution_id,
                extra=call.log_fields,
            )
        return reply

    return guarded


def trace_calls(handler: Handler, telemetry: Telemetry | None) -> Handler:
    """Creates an OpenTelemetry span for the call, which is current while its tool runs, and measures the call."""
    if telemetry is None:
        return handler

    async def guarded(call: Call) -> Reply:
        instruments = telemetry.instruments()
        if instruments is None or call.request.tool in traced_elsewhere.get():
            return await handler(call)
        with instruments.call(call.request.tool, call.grant.execution_id, call.request.sequence) as ended:
            reply = await handler(call)
            ended.failed(reply.error)
            return reply

    return guarded


def authorize(handler: Handler) -> Handler:
    """Compares a tool's required scopes with the caller's."""

    async def guarded(call: Call) -> Reply:
        grant = call.grant
        require_scopes(call.tool, call.request.tool, grant.scopes)
        return await handler(call)

    return guarded


def limit_calls(handler: Handler) -> Handler:
    """Enforces the call budget, and queues calls while `calls_in_flight` of their execution are running."""

    async def guarded(call: Call) -> Reply:
        grant = call.grant
        grant.calls += 1
        if grant.calls > (calls := grant.limits.calls):
            raise CallBudgetExceeded(f"the budget of {calls} tool call{'' if calls == 1 else 's'} is used up")
        running = grant.running
        if not running.try_acquire():
            await running.acquire()
        try:
            return await handler(call)
        finally:
            running.release()

    return guarded


def limit_rates(handler: Handler, rates: RateLimits) -> Handler:
    """Enforces rate limits per tool, user and organization, and overall."""

    async def guarded(call: Call) -> Reply:
        grant, tool = call.grant, call.tool
        buckets = grant.buckets.get(tool)
        if buckets is None:
            buckets = grant.buckets[tool] = rates.buckets(tool, call.request.tool, grant.context)
        if buckets:
            await rates.take(buckets, call.request.tool)
        return await handler(call)

    return guarded


def validate_input(handler: Handler) -> Handler:
    """Bounds the size of the input and validates it against the tool's schema."""

    async def guarded(call: Call) -> Reply:
        allowed = call.grant.limits.tool_input_bytes
        if call.request.size > allowed:
            raise MessageTooLarge(
                f"tools.{call.request.tool}: the input has {call.request.size} bytes; {allowed} are allowed"
            )
        if (accident := await _accident(call)) is not None:
            raise InvalidArguments(f"tools.{call.request.tool}: {accident}")
        call.parsed = await call.tool.parse_input(call.request.input, call.grant.context)
        return await handler(call)

    return guarded


async def _accident(call: Call) -> str | None:
    """Describes the first accidental text in an input, such as "[object Promise]".

    A text is not accidental if the program's source contains it, or if it can come from a tool, a file or the network.
    """
    grant = call.grant
    if grant.source is None:
        return None
    match = await grant.run_by_size(_accidental_text, call.request.input, size=call.request.size)
    if match is None:
        return None
    path, shown, sign, remedy = match
    may_be_read = sign == _OBJECT and (grant.has_files or bool(grant.host_services))
    if may_be_read or sign in grant.source:
        return None
    if await run_in_turn(_was_returned, sign, grant.recorder, owner=grant.context.owner):
        return None
    return f'{path} has "{shown}": {remedy}'


def _accidental_text(input: object) -> tuple[str, str, str, str] | None:
    """Finds an accidental text. Returns its path, its form in a message, the matched characters, and the remedy."""
    pending: list[tuple[_Place, object]] = [(None, input)]
    while pending:
        place, value = pending.pop()
        if isinstance(value, str):
            if (match := _ACCIDENTAL.search(value)) is not None:
                sign = match[0]
                remedy = next(text for kind, text in _REMEDIES.items() if match[kind] is not None)
                return _path(place) or "the input", match["js"] or f"{sign} …>", sign, remedy
        elif isinstance(value, dict):
            members = cast("dict[object, object]", value)
            pending += [((place, name), each) for name, each in reversed(members.items())]
        elif isinstance(value, list):
            items = cast("list[object]", value)
            pending += [((place, index), items[index]) for index in range(len(items) - 1, -1, -1)]
    return None


def _path(place: _Place) -> str:
    steps: list[object] = []
    while place is not None:
        place, step = place
        steps.append(step)
    return format_path(tuple(step if isinstance(step, int) else str(step) for step in reversed(steps)))


def _was_returned(text: str, recorder: CallRecorder | None) -> bool:
    """True if a text could come from the result of an earlier call."""
    remaining = _LOOKED_THROUGH_BYTES
    for record in () if recorder is None else recorder.records:
        remaining -= record.unread["output"].size if "output" in record.unread else 0
        if remaining < 0:
            return True
        output = record.output
        if isinstance(output, str) and output.startswith("… "):  # a note in place of the output
            return True
        error = record.error
        # An InvalidArguments message only quotes the program's own input.
        if error is not None and error.code != InvalidArguments.code and text in error.message:
            return True
        if text in json_text(output):
            return True
    return False


def sequence_calls(handler: Handler) -> Handler:
    """Starts calls in order of arrival. A sequential tool waits for all earlier calls, and later calls wait for it."""

    async def guarded(call: Call) -> Reply:
        turns = call.grant.turns
        alone = call.tool.sequential
        if alone or turns.contended:
            await turns.wait(alone=alone)
        else:
            turns.running += 1
        try:
            return await handler(call)
        finally:
            turns.running -= 1
            if turns.contended:
                turns.pass_on()

    return guarded
