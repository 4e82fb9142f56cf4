"""The end of an execution: its result for the caller, and its event for the audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from corral.audit import AuditEvent, AuditLog, digest, new_event_id
from corral.calls import outcome_of, record_denial, remarks_on
from corral.checking import Gate
from corral.errors import (
    Cancelled,
    CorralError,
    MemoryExceeded,
    ProgramFailed,
    ProgramRejected,
    ProgramTimeout,
    SandboxError,
    SandboxLost,
)
from corral.programs.loops import loops_over_calls
from corral.results import CallRecord, ExecutionResult
from corral.running.request import ExecutionRequest
from corral.types import Diagnostic, ExecutionError, Exit, Program

_MOST_LEARNT = 5
"""Tools of whose results a model is told."""
_ENDED_FROM_OUTSIDE = frozenset({ProgramTimeout.code, SandboxLost.code, MemoryExceeded.code})


def broken(error: BaseException) -> Exit:
    """Returns the end of an execution that failed on the host's side."""
    shown = error if isinstance(error, CorralError) else SandboxError("the sandbox could not be used")
    return Exit(
        status="failed",
        exit_code=1,
        error=ExecutionError(code=shown.code, name=type(shown).__name__, message=str(shown)),
    )


def rejected(error: ProgramRejected) -> Exit:
    """Returns the end of a program that must not run."""
    return Exit(
        status="rejected",
        exit_code=1,
        error=ExecutionError(
            code=error.code, name=type(error).__name__, message=str(error), line=error.line, column=error.column
        ),
    )


def prefer_early_outcome(exit: Exit, early: Exit | None) -> Exit:
    """Returns the outcome that the program had reported before its remaining calls were cut short, if it had."""
    if early is None or exit.error is None or exit.error.code not in _ENDED_FROM_OUTSIDE:
        return exit
    message = f"calls that nobody awaited were cut short: {exit.error.message}"
    remark = Diagnostic(severity="warning", message=message, code=exit.error.code)
    return replace(early, diagnostics=(*early.diagnostics, remark))


def concluded(
    running: ExecutionResult,
    program: Program | None,
    exit: Exit | None,
    *,
    records: Sequence[CallRecord],
    gate: Gate | None,
    learnt: Callable[[str], str] = lambda name: "",  # noqa: ARG005
) -> ExecutionResult:
    """Completes a result with the end of its program. No exit: the execution was cancelled.

    `learnt` is what a model is told of the results of a tool that does not declare them.
    """
    if exit is None:
        error = ExecutionError(code=Cancelled.code, name=Cancelled.__name__, message="the execution was cancelled")
        return replace(running, status="cancelled", exit_code=130, error=error)
    dropped = exit.dropped_log_bytes
    return replace(
        running,
        status=exit.status,
        value=exit.value,
        error=exit.error,
        exit_code=exit.exit_code,
        unawaited=exit.unawaited,
        diagnostics=(
            *_remarks(program, exit),
            *exit.diagnostics,
            *remarks_on(records, exit.error, running.language),
            *_looped_texts(program, records),
            *_check_remarks(gate),
            *_learnt_remarks(program, exit, records, learnt),
        ),
        truncated=(f"{dropped} bytes of console output over the limit were dropped",) if dropped else (),
    )


async def record_execution(
    audit: AuditLog,
    request: ExecutionRequest,
    result: ExecutionResult,
    *,
    began: float,
    protocol: str,
    hidden_denial: ExecutionError | None,
) -> None:
    """Writes the audit event of an execution. A denial is recorded before the result is returned."""
    context = request.context
    error = (hidden_denial if result.status == "rejected" else None) or result.error
    outcome = outcome_of(error)
    if outcome == "denied" and result.status != "rejected":
        outcome = "failed"  # the program threw the denial of a call; that call has its own event
    event = AuditEvent(
        id=new_event_id(began),
        time=began,
        kind="execution",
        outcome=outcome,
        code=error and error.code,
        reason=error.message if error is not None and outcome == "denied" else None,
        execution_id=result.execution_id,
        user_id=context.user_id,
        organization_id=context.organization_id,
        session_id=context.session_id,
        duration_ms=result.duration_ms,
        protocol=protocol,
        language=result.language,
        isolation=result.isolation and str(result.isolation),
        calls=len(result.tool_calls),
        program=digest(request.source),
    )
    if outcome == "denied":
        await record_denial(audit, event)
    else:
        await audit.record(event)


def _remarks(program: Program | None, exit: Exit) -> tuple[Diagnostic, ...]:
    """Returns recovery's remarks. The remark that a program has no result is left out if it has one."""
    if program is None or exit.value is not None or exit.error is not None:
        return tuple(each for each in (program.diagnostics if program else ()) if each.severity != "info")
    return program.diagnostics


def _looped_texts(program: Program | None, records: Sequence[CallRecord]) -> Iterator[Diagnostic]:
    """Remarks on loops over results that were texts, of which they took the characters."""
    texts: dict[str, str] = {}
    others: set[str] = set()
    for record in records:
        if "output" not in record.unread and isinstance(record.output, str) and len(record.output) > 1:
            texts.setdefault(record.name, record.output)
        else:
            others.add(record.name)
    if program is None or texts.keys() <= others:
        return
    for loop in loops_over_calls(program):
        if (text := texts.get(loop.path)) is not None and loop.path not in others:
            message = f"{loop.shown} was a text of {len(text):,} characters: the loop went through its characters"
            yield Diagnostic(severity="warning", code="looped_text", message=message, line=loop.line)


def _check_remarks(gate: Gate | None) -> tuple[Diagnostic, ...]:
    verdict = None if gate is None else gate.verdict
    if verdict is not None and verdict.unchecked is not None:
        message = f"the program was not checked: {verdict.unchecked}"
        return (Diagnostic(severity="info", message=message, code="unchecked", show="on_failure"),)
    return () if verdict is None else verdict.diagnostics


def _learnt_remarks(
    program: Program | None, exit: Exit, records: Sequence[CallRecord], learnt: Callable[[str], str]
) -> Iterator[Diagnostic]:
    """Yields what is known of results that no tool declares, if the program failed or was rejected."""
    names: list[str] = []
    if exit.error is not None and exit.error.code == ProgramFailed.code:
        names = [record.name for record in records if record.progress == "returned"]
    elif exit.error is not None and exit.error.code == ProgramRejected.code and program is not None:
        names = [] if program.references is None else [each.path for each in program.references.named]
    told = ((name, learnt(name)) for name in dict.fromkeys(names))
    for name, text in islice(((name, text) for name, text in told if text), _MOST_LEARNT):
        yield Diagnostic(severity="info", code="seen_in_results", message=f"tools.{name}, {text}")
