"""Every error that corral raises or reports.

Each branch below `CorralError` shows who must act: `ConfigError` the caller, `ProgramError` and `ToolError` the model,
`AccessDenied` a policy, `SandboxError`, `BridgeError` and `LedgerError` the
operator.

A failed program is data (`ExecutionResult.error`); `ExecutionResult.raise_for_error()` raises it as one of these. Tool
calls throw `ToolError` and `AccessDenied` inside the program. Each class has a stable `code`, which crosses process
boundaries; hosts should compare codes.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import ClassVar

__all__ = [
    "AccessDenied",
    "ApprovalDenied",
    "BridgeError",
    "CallBudgetExceeded",
    "CommandFailed",
    "ConfigError",
    "CorralError",
    "DecisionDenied",
    "Diverged",
    "EgressBlocked",
    "ExecutionCancelled",
    "ExecutionEnded",
    "FileError",
    "FilesExceeded",
    "HeldElsewhere",
    "HostLost",
    "InvalidArguments",
    "InvalidToken",
    "InvalidToolOutput",
    "JournalFull",
    "LedgerDamaged",
    "LedgerError",
    "LedgerFailed",
    "LimitNotEnforceable",
    "MalformedMessage",
    "MemoryExceeded",
    "MessageTooLarge",
    "MissingExtra",
    "Outdated",
    "OutputExceeded",
    "PolicyDenied",
    "ProgramError",
    "ProgramFailed",
    "ProgramRejected",
    "ProgramTimeout",
    "RateLimited",
    "SandboxError",
    "SandboxLost",
    "ScopeDenied",
    "SessionElsewhere",
    "ShellError",
    "ShellLost",
    "StartFailed",
    "ToolDefinitionError",
    "ToolError",
    "ToolFailed",
    "ToolNotFound",
    "UncertainCall",
    "UnknownProvider",
    "error_class",
]


class CorralError(Exception):
    """Base of every error of corral. `str(error)` is the message; `code` is stable across releases.

    A tool passes `outcome_known=False` if the call may have taken effect: the remote system sent no reply, or an
    unreadable one.
    """

    code: ClassVar[str] = "corral_error"
    """By default the name of the class in snake case; for classes of other modules, the code of their base class."""

    def __init__(self, *args: object, outcome_known: bool = True) -> None:
        super().__init__(*args)
        self.outcome_known = outcome_known

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__ and "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)([A-Z])", r"_\1", cls.__name__).lower()


class ConfigError(CorralError):
    """The host program is set up wrongly. Always raised, never part of a result."""


class UnknownProvider(ConfigError):
    """No sandbox provider or bridge protocol has that name."""


class MissingExtra(ConfigError):
    """An optional dependency is not installed; the message names the extra to install."""


class LimitNotEnforceable(ConfigError):
    """The sandbox cannot enforce a limit. Limits are never dropped silently."""


class ToolDefinitionError(ConfigError):
    """A tool cannot be declared as written: its name, its schema or its signature."""


class ProgramError(CorralError):
    """The model's program was refused or failed."""


class ProgramRejected(ProgramError):
    """The program never started: a syntax error, an import that is not allowed, or too much source.

    `line` and `column` are in the model's source and count from 1; None if the error has no position.
    """

    def __init__(self, message: str = "", *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class ProgramFailed(ProgramError):
    """The program threw, waited for something that can never happen, or returned a value that cannot leave the
    sandbox."""


class ProgramTimeout(ProgramError):
    """The program ran out of wall-clock or processor time."""


class MemoryExceeded(ProgramError):
    """The program ran out of memory."""


class OutputExceeded(ProgramError):
    """The program's result is larger than allowed."""


class FilesExceeded(ProgramError):
    """The program's session exceeded its number of files or bytes, where the kernel does not prevent that."""


class CallBudgetExceeded(ProgramError):
    """The program made more tool calls than allowed."""


class ToolError(CorralError):
    """A tool call failed. Tools raise it with a message for the program."""


class ToolNotFound(ToolError):
    """No tool has that name; the message lists similar names."""


class InvalidArguments(ToolError):
    """The input of a call does not fit the tool's schema; the tool did not run."""


class ToolFailed(ToolError):
    """The tool raised or timed out. The message carries a correlation id; the details are in the host's log."""

    def __init__(self, message: str = "", *, correlation_id: str | None = None, outcome_known: bool = True) -> None:
        super().__init__(message, outcome_known=outcome_known)
        self.correlation_id = correlation_id


class InvalidToolOutput(ToolError):
    """The tool ran, but its result was withheld: it violates a strict output schema or cannot be encoded."""


class UncertainCall(ToolError):
    """The call was running when its host was lost, so its effect is unknown; it was not repeated."""


class AccessDenied(CorralError):
    """A policy of the host does not permit the call."""


class InvalidToken(AccessDenied):
    """The execution token is missing, malformed or expired, or was issued for something else."""


class ExecutionEnded(AccessDenied):
    """The call's execution ended before the tool ran."""


class ScopeDenied(AccessDenied):
    """The caller's context lacks a scope that the tool requires."""


class PolicyDenied(AccessDenied):
    """A rule of the policy denies the call, or none allows it."""


class RateLimited(AccessDenied):
    """Too many calls. The next one is allowed after `retry_after_seconds`; None if that is unknown."""

    def __init__(self, message: str = "", *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ApprovalDenied(AccessDenied):
    """The call required approval and was not approved."""


class EgressBlocked(AccessDenied):
    """An outbound request was aimed at an address or host that is not allowed."""


class DecisionDenied(CorralError):
    """A person has no right to decide on the call, according to `Corral(may_decide=...)`."""


class SandboxError(CorralError):
    """The sandbox failed."""


class StartFailed(SandboxError):
    """The sandbox could not be started."""


class SessionElsewhere(StartFailed):
    """Another host behind the same address has the session open; `host` is its name."""

    def __init__(self, message: str = "", *, host: str = "") -> None:
        super().__init__(message)
        self.host = host


class SandboxLost(SandboxError):
    """The sandbox ended without a result."""


class FileError(CorralError):
    """A file of a session could not be read or changed; the message has its path and the reason."""


class ShellError(CorralError):
    """An operation of a shell failed."""


class ShellLost(ShellError):
    """The machine behind a shell is gone or no longer reachable."""


class CommandFailed(ShellError):
    """A command run with `check=True` ended with a non-zero exit code or timed out."""

    def __init__(self, command: str, exit_code: int | None, stdout: str, stderr: str) -> None:
        end = "did not end in time" if exit_code is None else f"ended with exit code {exit_code}"
        last = (stderr or stdout).strip()[-500:]
        super().__init__(f"{command[:200]!r} {end}" + (f": {last}" if last else ""))
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr


class BridgeError(CorralError):
    """A message over the bridge was malformed or too large."""


class MalformedMessage(BridgeError):
    """A message breaks the protocol: wrong framing, nonce, kind or shape."""


class MessageTooLarge(BridgeError):
    """A message is larger than its kind allows; it was rejected before parsing."""


class HostLost(BridgeError):
    """The host of the execution did not answer the host that forwarded the request. The call can have taken effect."""


class LedgerError(CorralError):
    """A durable execution could not be recorded or continued."""


class LedgerFailed(LedgerError):
    """The ledger could not be written or read. Earlier records are kept."""


class LedgerDamaged(LedgerError):
    """A row was altered, belongs to another execution or is missing, or its key is gone."""


class JournalFull(LedgerError):
    """The execution has recorded more than `Limits.journal_bytes`."""


class HeldElsewhere(LedgerError):
    """Another host runs the execution, or it has ended."""


class Outdated(LedgerError):
    """The execution was recorded with another version of an engine, an interpreter or a package."""


class Diverged(LedgerError):
    """A replayed program did not make the calls on record."""


class ExecutionCancelled(CorralError):
    """The host ended the execution, and with it any running call."""

    code = "cancelled"


def _with_subclasses(root: type[CorralError]) -> list[type[CorralError]]:
    return [root, *(cls for child in root.__subclasses__() for cls in _with_subclasses(child))]


CALL_ERRORS: tuple[type[CorralError], ...] = (
    CorralError,
    CallBudgetExceeded,
    ExecutionCancelled,
    *(each for branch in (ToolError, AccessDenied, BridgeError) for each in _with_subclasses(branch)),
)
"""Classes of errors that a tool call can raise in a program."""
_BY_CODE = {cls.code: cls for cls in _with_subclasses(CorralError)}


def error_class(code: str) -> type[CorralError]:
    """Returns the class with this `code`, or `CorralError` for a code from a later release."""
    return _BY_CODE.get(code, CorralError)


@contextmanager
def requires_extra(feature: str, extra: str) -> Generator[None]:
    """Wraps imports of an extra's modules. Raises MissingExtra if one of them is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{feature} needs the module {error.name}: pip install 'corral[{extra}]'") from error
