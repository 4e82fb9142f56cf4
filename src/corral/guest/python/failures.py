"""Errors that calls fail with: classes that are called as the host's."""

from __future__ import annotations


class CorralError(Exception):
    """Base of what a call fails with. `code` is stable; the class is called as the host's."""

    code = "corral_error"
    retry_after_seconds: float | None = None


class ToolError(CorralError):
    """The tool, or the call of it, failed."""


class AccessDenied(CorralError, PermissionError):
    """A policy of the host's refused the call."""


class BridgeError(CorralError):
    """The call did not reach the host, or its reply the program."""


_MODULE = "corral.errors"
"""The module that tracebacks name."""
FAILURES: dict[str, type[CorralError]] = {
    "ToolNotFound": ToolError,
    "InvalidArguments": ToolError,
    "ToolFailed": ToolError,
    "InvalidToolOutput": ToolError,
    "InvalidToken": AccessDenied,
    "ExecutionEnded": AccessDenied,
    "ScopeDenied": AccessDenied,
    "RateLimited": AccessDenied,
    "ApprovalDenied": AccessDenied,
    "EgressBlocked": AccessDenied,
    "CallBudgetExceeded": CorralError,
    "MessageTooLarge": BridgeError,
    "MalformedMessage": BridgeError,
    "Cancelled": CorralError,
}
_ALSO: dict[str, tuple[type[Exception], ...]] = {
    "ToolNotFound": (AttributeError,),
    "InvalidArguments": (ValueError, TypeError),
}
"""Python's usual exception for the same mistake."""
_classes: dict[str, type[CorralError]] = {
    each.__name__: each for each in (CorralError, ToolError, AccessDenied, BridgeError)
}
for _each in _classes.values():
    _each.__module__ = _MODULE


def failure_class(name: str) -> type[CorralError]:
    """The class that calls fail with which the host names so."""
    found = _classes.get(name)
    if found is None:
        base = FAILURES.get(name, CorralError)
        found = type(name, (base, *_ALSO.get(name, ())), {"__module__": _MODULE})
        _classes[name] = found
    return found


def failure_classes() -> dict[str, type[CorralError]]:
    """All that are known, by name, for a program to catch."""
    return {name: failure_class(name) for name in (*_classes, *FAILURES)}


def call_failure(code: str, name: str, message: str, retry_after_seconds: float | None = None) -> CorralError:
    """The error of a call, as the host names it."""
    error = failure_class(name)(message)
    error.code = code
    error.retry_after_seconds = retry_after_seconds
    return error
