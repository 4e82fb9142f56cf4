"""Outermost guard: writes an audit event for every call, whatever its outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping

import anyio

from corral.audit import AuditEvent, AuditLog, Outcome, new_event_id
from corral.calls.calls import Call, Handler
from corral.calls.scopes import denied_unseen
from corral.errors import AccessDenied, CallBudgetExceeded, ExecutionCancelled, ScopeDenied, ToolNotFound, error_class
from corral.logs import get_logger
from corral.types import CallError, CallState, ExecutionError, JsonSchema, Reply

logger = get_logger("corral.audit")

_FAILED_AFTER: Mapping[CallState, Outcome] = {"started": "unknown", "returned": "withheld"}
"""Audit outcomes of failed calls whose tool did not itself raise, by the call's state."""


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
        logger.critical("a denial could not be recorded: %s", event.to_json())


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


def _unseen(call: Call) -> ScopeDenied | None:
    """Returns the denial of a call whose tool is hidden from its caller; None if there is no such tool."""
    return denied_unseen(call.request.tool, call.grant.tools, call.grant.scopes) if call.authenticated else None


def _event(call: Call, began: float, started: float, arguments: object, error: CallError | None) -> AuditEvent:
    outcome = outcome_of(error)
    if outcome == "failed" and call.state in _FAILED_AFTER:
        outcome = _FAILED_AFTER[call.state]
    grant = call.grant if call.authenticated else None
    context = None if grant is None else grant.context
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
        return event._replace(decision=decision.type, decided_by=decision.by)
    return event
