"""Errors of failed calls: classes with the host's names."""

from __future__ import annotations


class CorralError(Exception):
    """Base of all errors of calls. `code` is stable; the class has the host's name."""

    code = "corral_error"
    retry_after_seconds: float | None = None


class ToolError(CorralError):
    """The tool failed, or the call was wrong."""


class AccessDenied(CorralError, PermissionError):
    """A policy of the host refused the call."""


class BridgeError(CorralError):
    """The call did not reach the host, or its reply did not reach the program."""


_MODULE = "corral.errors"
"""Name of the module in tracebacks."""
FAILURES: dict[str, type[CorralError]] = {
    "ToolNotFound": ToolError,
    "InvalidArguments": ToolError,
    "ToolFailed": ToolError,
    "InvalidToolOutput": ToolError,
    "UncertainCall": ToolError,
    "InvalidToken": AccessDenied,
    "ExecutionEnded": AccessDenied,
    "ScopeDenied": AccessDenied,
    "PolicyDenied": AccessDenied,
    "RateLimited": AccessDenied,
    "ApprovalDenied": AccessDenied,
    "EgressBlocked": AccessDenied,
    "CallBudgetExceeded": CorralError,
    "MessageTooLarge": BridgeError,
    "MalformedMessage": BridgeError,
    "HostLost": BridgeError,
    "ExecutionCancelled": CorralError,
}
_ALSO: dict[str, tuple[type[Exception], ...]] = {
    "ToolNotFound": (AttributeError,),
    "InvalidArguments": (ValueError, TypeError),
}
"""Python's own exceptions for the same mistakes, by the host's name."""
_classes: dict[str, type[CorralError]] = {
    each.__name__: each for each in (CorralError, ToolError, AccessDenied, BridgeError)
}
for _each in _classes.values():
    _each.__module__ = _MODULE


def failure_class(name: str) -> type[CorralError]:
    """Returns the class for the host's name of an error."""
    error_class = _classes.get(name)
    if error_class is None:
        base = FAILURES.get(name, CorralError)
        error_class = type(name, (base, *_ALSO.get(name, ())), {"__module__": _MODULE})
        _classes[name] = error_class
    return error_class


def failure_classes() -> dict[str, type[CorralError]]:
    """Returns all known classes, by name, for programs to catch."""
    return {name: failure_class(name) for name in (*_classes, *FAILURES)}


def call_failure(code: str, name: str, message: str, retry_after_seconds: float | None = None) -> CorralError:
    """Makes the error of a call from the host's name for it."""
    error = failure_class(name)(message)
    error.code = code
    error.retry_after_seconds = retry_after_seconds
    return error
