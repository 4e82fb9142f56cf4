"""Guards between a guest's call and the tool. Each takes a handler and returns a handler; `pipeline` orders them.

A guard refuses a call by raising an error of `corral.errors`, which `convert_errors` turns into a reply. So a handler
from `pipeline` never raises, whatever a guest or a tool does.
"""

from __future__ import annotations

import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

import anyio

from corral.audit import AuditEvent, AuditLog, Outcome, Telemetry, new_event_id
from corral.calls.calls import Call, Handler
from corral.calls.dispatch import being_cancelled, dispatch, dispatch_undo, encode_output, unexpected
from corral.calls.grants import Grants, current_grant
from corral.calls.rates import RateLimits
from corral.calls.records import CallRecorder
from corral.calls.scopes import denied_unseen, require_scopes
from corral.concurrency.event_loop import asyncio_loop
from corral.concurrency.fairness import Shares, run_in_turn
from corral.errors import (
    AccessDenied,
    ApprovalDenied,
    CallBudgetExceeded,
    CorralError,
    ExecutionCancelled,
    ExecutionEnded,
    InvalidArguments,
    MessageTooLarge,
    PolicyDenied,
    ToolNotFound,
    error_class,
)
from corral.logs import get_logger
from corral.model import LearntResults
from corral.policy import Policy, PolicyCall, PolicySource, Verdict, names_of
from corral.policy.flow import DataFlow
from corral.policy.rules import RANKS
from corral.rendering.preview import json_text
from corral.tools import Tool, traced_elsewhere
from corral.tools.json_schema.problems import format_path
from corral.types import (
    ApprovalRequest,
    Approve,
    Approved,
    CallError,
    CallState,
    Decision,
    Denied,
    Doubt,
    ExecutionError,
    JsonSchema,
    Later,
    Reply,
)

logger = get_logger("corral.tools")
_audit_logger = get_logger("corral.audit")

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
_FAILED_AFTER: Mapping[CallState, Outcome] = {"started": "unknown", "returned": "withheld"}
"""Audit outcomes of failed calls whose tool did not itself raise, by the call's state."""
_MOST_PARKED = 32
"""Maximum number of executions that wait for decisions at the same time, shared fairly among users. Each occupies a
sandbox."""


class _WaitingCall:
    """Call that waits for a decision. Its `scope` is cancelled once there is one."""

    def __init__(self, request: ApprovalRequest, seconds: float) -> None:
        self.request = request
        self.decision: Decision | None = None
        """Decision passed to `ParkedCalls.decide`."""
        self.parked = False
        """True once `approve` has answered `Later`."""
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self._loop = asyncio_loop()

    def decide(self, decision: Decision) -> None:
        self.decision = decision
        if self._loop is None or self._loop is asyncio_loop():
            self.scope.cancel()
        else:
            self._loop.call_soon_threadsafe(self.scope.cancel)


class ParkedCalls:
    """Calls of one Corral that wait in this process for a decision by `approve` or `decide`.

    A call of a durable execution is left to its journal when `approve` answers `Later` or does not answer in time; its
    reply is `Reply(parked=True)`.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], _WaitingCall] = {}

    def requests(self) -> tuple[ApprovalRequest, ...]:
        """Returns the open requests, oldest first."""
        return tuple(each.request for each in list(self._waiting.values()))

    def decide(self, execution_id: str, sequence: int, decision: Decision) -> bool:
        """Decides on a call; the first decision holds. Returns False if the call does not wait for a decision."""
        waiting = self._waiting.pop((execution_id, sequence), None)
        if waiting is None:
            return False
        waiting.decide(decision)
        return True

    @contextmanager
    def waiting(self, request: ApprovalRequest, seconds: float) -> Generator[_WaitingCall]:
        """Makes a call known to `decide` during the block."""
        key = request.execution_id, request.sequence  # unique, because the host assigns or checks call numbers
        waiting = self._waiting[key] = _WaitingCall(request, seconds)
        try:
            yield waiting
        finally:
            self._waiting.pop(key, None)

    def park(self, waiting: _WaitingCall) -> bool:
        """Lets a call wait for `decide` only. Returns False if too many executions already have such calls."""
        own = waiting.request
        parked = {
            each.request.execution_id: each.request.context.owner
            for each in list(self._waiting.values())
            if each.parked
        }
        shares = Shares(_MOST_PARKED, parked.values())
        waiting.parked = own.execution_id in parked or shares.has_room(own.context.owner)
        return waiting.parked


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
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
    policy: PolicySource | None = None
    """Rules about calls as data."""
    flow: DataFlow | None = None
    """None follows no data."""


Pipeline: TypeAlias = Callable[[GuardSettings], Handler]
"""Function that orders guards; `Corral(pipeline=...)` replaces `pipeline`."""
_Place: TypeAlias = "tuple[_Place, object] | None"
"""Linked path to a value: the path of its container, and its name or index in there."""


def pipeline(settings: GuardSettings) -> Handler:
    """Returns the handler of all calls.

    Its stages are audit ▸ authenticate ▸ trace ▸ authorize ▸ limit ▸ validate ▸ policy ▸ approve ▸ dispatch. The last
    line adds the outermost one.
    """
    handler = dispatch(settings.logger)
    handler = sequence_calls(handler)
    handler = encode_output(handler, settings.learnt)
    handler = require_approval(handler, settings.approve, settings.approval_seconds, settings.parked)
    handler = enforce_policy(handler, settings.policy, settings.rates)
    handler = follow_flow(handler, settings.flow)
    handler = validate_input(handler)
    handler = limit_rates(handler, settings.rates)
    handler = limit_calls(handler)
    handler = authorize(handler)
    handler = convert_errors(handler)
    handler = record_calls(handler)
    handler = trace_calls(handler, settings.telemetry)
    handler = authenticate(handler, settings.grants)
    handler = convert_errors(handler)
    return audit_calls(handler, settings.audit)


async def undo_call(
    settings: GuardSettings, call: Call, output: object, starting: Callable[[], Awaitable[None]]
) -> Reply:
    """audit ▸ authorize ▸ validate ▸ undo a call that had this output; limits and rates do not count.

    `starting` is called directly before the tool's undo.
    """
    handler = dispatch_undo(output, starting, settings.logger)
    handler = validate_input(handler)
    handler = authorize(handler)
    handler = convert_errors(handler)
    return await audit_calls(handler, settings.audit, undoes=True)(call)


def audit_calls(handler: Handler, log: AuditLog | None, *, undoes: bool = False) -> Handler:
    """Writes an audit event for every call. A denial is written before its reply is sent.

    `undoes`: a call that succeeds has been undone.

    While events cannot be written, calls are refused unless the log allows them (`AuditLog.check`).
    """
    if log is None:
        return handler

    async def guarded(call: Call) -> Reply:
        began, started = time.time(), time.perf_counter()
        arguments = log.shown(call.request.input, _input_schema(call) if log.copies_arguments else None)
        try:
            log.check()
            reply = await handler(call)
        except AccessDenied as error:
            reply = Reply(error=CallError.of(error))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await log.record(_event(call, began, started, arguments, CallError.of(ExecutionCancelled())))
            raise
        error = reply.error
        if error is not None and error.code == ToolNotFound.code and (denial := _unseen(call)) is not None:
            error = CallError.of(denial)
        event = _event(call, began, started, arguments, error)
        if reply.parked:
            event = event._replace(outcome="pending", code=None, reason=None)
        elif undoes and event.outcome == "succeeded":
            event = event._replace(outcome="undone")
        if event.outcome == "denied":
            await record_denial(log, event)
        else:
            await log.record(event)
        return reply

    return guarded


async def record_denial(log: AuditLog, event: AuditEvent) -> None:
    """Writes an event and waits for it. If writing fails, the denial still holds and the event goes to the host's
    log."""
    try:
        await log.record_durably(event)
    except AccessDenied:
        _audit_logger.critical("a denial could not be recorded: %s", event.to_json())


def outcome_of(error: CallError | ExecutionError | None) -> Outcome:
    """Returns the audit outcome of a call or an execution."""
    if error is None:
        return "succeeded"
    kind = error_class(error.code)
    if issubclass(kind, AccessDenied | CallBudgetExceeded):
        return "denied"
    return "cancelled" if issubclass(kind, ExecutionCancelled) else "failed"


def _input_schema(call: Call) -> JsonSchema | None:
    if not call.authenticated:
        return None
    tool = call.grant.peek_tool(call.request.tool) or call.grant.tools.hidden(call.request.tool)
    return None if tool is None else tool.input_schema


def _unseen(call: Call) -> AccessDenied | None:
    """Returns the denial of a call whose tool is hidden from its caller; None if there is no such tool."""
    return denied_unseen(call.request.tool, call.grant.tools, call.grant.scopes) if call.authenticated else None


def _event(call: Call, began: float, started: float, arguments: object, error: CallError | None) -> AuditEvent:
    outcome = outcome_of(error)
    if outcome == "failed" and call.state in _FAILED_AFTER:
        outcome = _FAILED_AFTER[call.state]
    grant = call.grant if call.authenticated else None
    context = None if grant is None else grant.context
    verdict = call.verdict
    event = AuditEvent(  # positional, because keywords would be the slowest part of the audit
        new_event_id(began),
        began,
        "call",
        outcome,
        (time.perf_counter() - started) * 1000,
        call.protocol,
        error and error.code,
        error.message if error is not None and outcome == "denied" else None,
        grant and grant.execution_id,
        context and context.user_id,
        context and context.organization_id,
        context and context.session_id,
        call.request.tool or None,
        call.request.sequence,
        arguments,
        error and error.correlation_id,
    )
    if (decision := call.decision) is not None:
        event = event._replace(decision=decision.type, decided_by=decision.by)
    if verdict is not None:
        event = event._replace(policy=verdict.policy, verdict=verdict.would or verdict.decision, rule=verdict.rule)
    if call.doubts:
        event = event._replace(doubts="; ".join(each.cause for each in call.doubts))
    return event


def convert_errors(handler: Handler) -> Handler:
    """Converts errors to replies: Corral's own with their message, others as a failure whose details only go to the
    log."""

    async def guarded(call: Call) -> Reply:
        try:
            return await handler(call)
        except CorralError as error:
            return Reply(error=CallError.of(error))
        except (Exception, anyio.get_cancelled_exc_class()) as error:
            if not isinstance(error, Exception) and being_cancelled():
                raise
            return Reply(error=CallError.of(unexpected(call)))  # or cancelled inside a host's guard, unlike the call

    return guarded


def authenticate(handler: Handler, grants: Grants) -> Handler:
    """Finds the live grant of a call: by its token, unless the bridge has set the grant."""

    async def guarded(call: Call) -> Reply:
        try:
            grant = call.grant
        except AttributeError:
            grant = call.grant = grants.find(call.token)
            call.request = call.request._replace(tool=grant.tools.guest_name(call.request.tool))
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
        entry = recorder.parked.pop(call.request.sequence, None) if recorder.parked else None
        call.continued = entry is not None
        entry = entry or recorder.start(call.request)
        started = time.perf_counter()
        try:
            reply = await handler(call)
        except BaseException:
            entry.output, entry.decision = call.streamed, call.decision
            recorder.cut_short(entry, (time.perf_counter() - started) * 1000, call.state, call.remark)
            raise
        duration_ms = (time.perf_counter() - started) * 1000
        if reply.parked:
            recorder.parked[entry.sequence] = entry
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
        grant.calls += not call.continued
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
        if buckets and not call.continued:
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


def enforce_policy(handler: Handler, policy: PolicySource | None, rates: RateLimits) -> Handler:
    """Asks the policy about a call, and enforces its denial and its rates. `require_approval` enforces the rest.

    A policy that raises denies the call.
    """
    if policy is None:
        return handler

    async def guarded(call: Call) -> Reply:
        grant, request = call.grant, call.request
        question = PolicyCall(
            request.tool,
            request.input,
            grant.context,
            scopes=grant.scopes,
            validated=call.parsed.value,
            names=names_of(request.tool, call.tool),
            is_own=request.tool in grant.services,
            execution_id=grant.execution_id,
            sequence=request.sequence,
        )
        if isinstance(policy, Policy):
            await policy.refresh()
            verdict = await grant.run_by_size(policy.decide, question, size=request.size)
        else:
            verdict = await _verdict(policy, question, call)
        call.verdict = verdict
        if verdict.decision == "deny":
            raise PolicyDenied(": ".join([f"tools.{request.tool}: {verdict.refusal}", *filter(None, [verdict.reason])]))
        if verdict.decision == "ask":
            rule = "the policy" if verdict.rule is None else f"rule {verdict.rule}"
            call.doubts += (Doubt(text=f"{rule}: {verdict.reason}" if verdict.reason else f"{rule} asks for approval"),)
        if verdict.limits and not call.continued:
            await rates.take(rates.buckets_of(verdict.limits, grant.context), request.tool)
        return await handler(call)

    return guarded


def follow_flow(handler: Handler, flow: DataFlow | None) -> Handler:
    """Follows untrusted data. Stores in the call why a person has to look at it, and what its program reads."""
    if flow is None:
        return handler

    async def guarded(call: Call) -> Reply:
        grant, path = call.grant, call.request.tool
        program = grant.flow
        if program is None or path in grant.services:
            return await handler(call)
        label = call.label = flow.label(path, call.tool)
        if label.sends and (size := program.unread):
            await grant.run_by_size(program.read_texts, size=size)
        call.doubts += program.doubts(path, call.tool, label, call.request.input)
        program.calls(path, label, call.request.input)
        try:
            reply = await handler(call)
        except CorralError as error:
            if call.state != "waiting" and label.untrusted:
                program.returned(path, call.request.sequence, label, None, str(error))
            raise
        if reply.encoded is not None:
            text = reply.encoded.text.decode("utf-8", "replace") if label.untrusted else ""
            program.returned(path, call.request.sequence, label, reply.value, text)
        return reply

    return guarded


async def _verdict(policy: PolicySource, question: PolicyCall, call: Call) -> Verdict:
    try:
        answer = policy.decide(question)
        verdict = await answer if inspect.isawaitable(answer) else answer
        if verdict.decision not in RANKS:
            raise ValueError(f"{verdict.decision!r} is not a decision; use one of {', '.join(RANKS)}")
        return verdict
    except anyio.get_cancelled_exc_class():
        if being_cancelled():
            raise
        raise PolicyDenied(str(unexpected(call, "the policy"))) from None
    except Exception:
        raise PolicyDenied(str(unexpected(call, "the policy"))) from None


def require_approval(
    handler: Handler, approve: Approve | None, within_seconds: float, parked: ParkedCalls | None = None
) -> Handler:
    """Asks the execution's `approve`, else this one, about calls of tools with `needs_approval`, and about those for
    which the policy says so.

    A call is allowed only by `Approved` or True, returned in time. The program's clock is paused meanwhile. After one
    request has timed out, the execution makes no more; otherwise a program could keep its clock paused for ever.
    """
    open_requests = parked or ParkedCalls()

    async def guarded(call: Call) -> Reply:
        tool, parsed = call.tool, call.parsed
        if not call.doubts and (tool.needs_approval is False or not await _needed(tool, parsed.value, call)):
            return await handler(call)
        grant, journal = call.grant, call.grant.journal
        decide = grant.approve or approve
        why = f" ({call.doubts[0].text})" if call.doubts else ""
        required = f"tools.{call.request.tool} requires approval{why}"
        if decide is None and journal is None:
            raise ApprovalDenied(f"{required}, but no one is available to approve it")
        if grant.approval_timed_out:
            raise ApprovalDenied(f"{required}, but an earlier request was not answered in time")
        request = ApprovalRequest(
            tool=call.request.tool,
            input=parsed.value if tool.resolve is None else await tool.resolve(parsed.value, grant.context),
            arguments=call.request.input,
            description=tool.description,
            read_only=tool.read_only,
            context=grant.context,
            execution_id=grant.execution_id,
            sequence=call.request.sequence,
            doubts=call.doubts,
            seen=() if grant.flow is None else tuple(grant.flow.seen.exposed),
        )
        with (
            grant.clock.paused() if grant.clock is not None else nullcontext(),
            open_requests.waiting(request, within_seconds) as waiting,
        ):
            call.decision = None if journal is None else journal.decision_of(call.request, tool)
            if call.decision is None:
                if grant.recorder is not None:
                    grant.recorder.approval_requested(request)
                if journal is not None:
                    journal.asks(
                        request,
                        call.request,
                        tool,
                        partial(open_requests.decide, request.execution_id, request.sequence),
                    )
                call.decision = await _decision(decide, waiting, call, open_requests)
                if call.decision is not None and journal is not None:
                    call.decision = await journal.decided(call.request, tool, call.decision)
        refusal = ApprovalDenied(f"tools.{call.request.tool} was not approved")
        if call.decision is None:
            refusal = ApprovalDenied(f"{required}, but no decision came within {within_seconds:g} s")
            if journal is not None:
                journal.park(request)
                return Reply(error=CallError.of(refusal), parked=True)
            grant.approval_timed_out = True
            call.decision = Denied(f"no decision came within {within_seconds:g} s")
        elif isinstance(call.decision, Denied) and call.decision.reason:
            refusal = ApprovalDenied(f"tools.{call.request.tool} was not approved: {call.decision.reason}")
        if grant.recorder is not None:
            grant.recorder.approval_decided(request, call.decision)
        if isinstance(call.decision, Denied):
            raise refusal
        if grant.flow is not None and call.decision.for_session:
            grant.flow.allow(call.request.tool, call.doubts)
        return await handler(call)

    return guarded


async def _needed(tool: Tool, value: Any, call: Call) -> bool:
    if not callable(tool.needs_approval):
        return tool.needs_approval is not False
    needed = tool.needs_approval(value, call.grant.context)
    return bool(await needed if inspect.isawaitable(needed) else needed)


async def _decision(approve: Approve | None, waiting: _WaitingCall, call: Call, parked: ParkedCalls) -> Decision | None:
    """Returns the decision of `approve` or `ParkedCalls.decide`; None if there was none in time, or if a journal keeps
    the call until there is one."""
    answer: Decision | Later | None = None
    with waiting.scope:
        answer = Later() if approve is None else await _answer(approve, waiting.request, call)
        if isinstance(answer, Later) and call.grant.journal is None:
            if parked.park(waiting):
                await anyio.sleep_forever()
            answer = Denied("too many of your programs are waiting for a decision; try again after some are decided")
    return waiting.decision or (None if isinstance(answer, Later) else answer)


async def _answer(approve: Approve, request: ApprovalRequest, call: Call) -> Decision | Later:
    try:
        answered = approve(request)
        answer: object = await answered if inspect.isawaitable(answered) else answered
    except ApprovalDenied as denied:
        return Denied(str(denied))
    except anyio.get_cancelled_exc_class():
        if being_cancelled():
            raise
        return Denied(str(unexpected(call, "asking")))
    except Exception:
        return Denied(str(unexpected(call, "asking")))
    if isinstance(answer, Approved | Denied | Later):
        return answer
    return Approved() if answer is True else Denied()


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
