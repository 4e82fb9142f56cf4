"""Interprets a guest's EXIT, or its absence. Everything in an EXIT is just the guest's claim, so nothing is trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from corral.errors import (
    AccessDenied,
    CallBudgetExceeded,
    CorralError,
    ExecutionCancelled,
    InvalidArguments,
    MalformedMessage,
    MemoryExceeded,
    MessageTooLarge,
    OutputExceeded,
    ProgramFailed,
    ProgramRejected,
    ProgramTimeout,
    ToolError,
    ToolNotFound,
    error_class,
)
from corral.rendering.lists import first_few
from corral.sandboxes.framed.engines import ENGINES
from corral.sandboxes.framed.session import GuestExit, Seen
from corral.types import Diagnostic, ExecutionError, Exit, Program, Unawaited

_MAX_REMARK = 1_100
_MAX_CUT = 10
"""Maximum number of tools named in a remark."""
_OWN_CODES = frozenset(
    each.code
    for each in (
        *(CallBudgetExceeded, InvalidArguments, MemoryExceeded, MessageTooLarge, OutputExceeded, ToolNotFound),
    )
)
"""Error codes that a guest can report by itself, because any program can cause them without effects. Any other code
must be the code of a call that failed in this run; otherwise it only means that the program failed."""
_MAX_TEXT = 8_100
"""Maximum characters of an error's text that guests keep, with their note of how much is missing."""


def failed_exit(error: CorralError) -> Exit:
    """Returns the exit of a guest that could not report its own outcome."""
    timed_out = isinstance(error, ProgramTimeout)
    return Exit(
        status="timed_out" if timed_out else "failed",
        error=ExecutionError(code=error.code, name=type(error).__name__, message=str(error)),
    )


def cut_short(exit: Exit, tools: Sequence[str]) -> Exit:
    """Adds a remark about the calls that ended with their program."""
    if not tools:
        return exit
    counted = [f"tools.{tool}{f' ×{count}' if count > 1 else ''}" for tool, count in Counter(tools).items()]
    shown = ", ".join(first_few(counted, _MAX_CUT))
    message = f"the program ended before calls did, so they were cut short, maybe after they took effect: {shown}"
    remark = Diagnostic(severity="warning", message=message, code=ExecutionCancelled.code)
    return replace(exit, diagnostics=(*exit.diagnostics, remark))


def read_exit(content: GuestExit, program: Program, seen: Seen) -> Exit:
    """Converts an EXIT to the model's own terms, checked against the host's observations of the run.

    Raises:
        MalformedMessage: a part is malformed or false.
    """
    kind, outcome, unawaited, dropped, remarks = content
    rest: dict[str, Any] = {
        "unawaited": tuple(_unawaited(call, program, seen) for call in unawaited),
        "diagnostics": tuple(_remark(remark, program) for remark in remarks),
        "dropped_log_bytes": max(0, dropped),
    }
    if kind == "value":
        return Exit(value=outcome, **rest)
    match outcome:
        case [str() as code, str() as name, str() as message, str() as stack, str() | None as cause] if (
            len(max(name, message, stack, cause or "", key=len)) <= _MAX_TEXT
        ):
            pass
        case _:
            raise MalformedMessage("the sandbox sent a malformed error")
    if kind == "rejected":
        if seen.ran:
            raise MalformedMessage("the sandbox claims that a program did not run, although it did")
        syntax_error = _syntax_error(name, message, stack, program)
        return Exit(status="rejected", error=syntax_error, **rest)
    engine = ENGINES[program.language]
    trace = engine.trace(stack, program)
    error = ExecutionError(
        code=code if _is_true(code, seen) else ProgramFailed.code,
        name=name,
        message=engine.explain(engine.locate(message, program), program, trace.position),
        cause=cause,
        line=trace.position and trace.position.line,
        column=trace.position and trace.position.column,
        stack=trace.text or None,
    )
    return Exit(status="failed", error=error, **rest)


def _is_true(code: str, seen: Seen) -> bool:
    return code in _OWN_CODES or (code in seen.failures and issubclass(error_class(code), ToolError | AccessDenied))


def _syntax_error(name: str, message: str, stack: str, program: Program) -> ExecutionError:
    engine = ENGINES[program.language]
    position = engine.trace(stack, program).position
    return ExecutionError(
        code=ProgramRejected.code,
        name=name,
        message=engine.syntax_error(message, program, position),
        line=position and position.line,
        column=position and position.column,
    )


def _unawaited(call: object, program: Program, seen: Seen) -> Unawaited:
    match call:
        case [int() as sequence, str() as tool, str() | None as error, str() as stack, bool() as late] if (
            not 1 <= sequence <= len(seen.called) or seen.called[sequence - 1] == tool
        ):
            position = ENGINES[program.language].trace(stack, program).position
            return Unawaited(
                tool=tool,
                sequence=sequence if 1 <= sequence <= len(seen.called) else 0,
                error=error,
                line=position and position.line,
                column=position and position.column,
                late=late,
            )
        case _:
            raise MalformedMessage("the sandbox sent a malformed list of calls")


def _remark(remark: object, program: Program) -> Diagnostic:
    if not isinstance(remark, str) or len(remark) > _MAX_REMARK:
        raise MalformedMessage("the sandbox sent a malformed remark")
    return Diagnostic(severity="warning", message=ENGINES[program.language].locate(remark, program), code="guest")
