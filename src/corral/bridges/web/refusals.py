"""Errors of requests that fail as a whole, and their HTTP statuses. Each protocol has its own form for them."""

from __future__ import annotations

import math

from corral.bridges.web.request_watch import BODY_SECONDS
from corral.errors import AccessDenied, BridgeError, InvalidToken, MalformedMessage, error_class
from corral.types import CallError

_STATUS = {
    "malformed_message": 400,
    "invalid_token": 401,
    "execution_ended": 401,
    "tool_not_found": 404,
    "message_too_large": 413,
    "invalid_arguments": 422,
    "tool_error": 422,
    "call_budget_exceeded": 429,
    "rate_limited": 429,
    "cancelled": 503,
}

NOT_JSON = CallError.of(BridgeError("the request's content-type must be application/json"))
"""Error of a body that is not declared as JSON, with status 415. A web page's form cannot declare JSON."""


def status_of(error: CallError) -> int:
    """Returns the HTTP status of an error: that of its code, 403 for other denials, else 502."""
    return _STATUS.get(error.code, 403 if issubclass(error_class(error.code), AccessDenied) else 502)


def refusal_headers(error: CallError, status: int) -> dict[str, str]:
    """Returns the headers of a response to a request that failed as a whole."""
    headers = {"cache-control": "no-store"}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_seconds))
    return headers


def ended() -> CallError:
    """Returns the error of a call whose execution ended while it ran."""
    return CallError.of(InvalidToken("the execution of this token has ended"))


def late() -> CallError:
    """Returns the error of a request whose body did not arrive in time."""
    return CallError.of(MalformedMessage(f"the request's body did not arrive within {BODY_SECONDS:g} s"))
