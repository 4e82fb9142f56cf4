"""Responses of GraphQL over HTTP: `{"data": ..., "errors": [...]}`."""

from __future__ import annotations

from typing import Any

from graphql import ExecutionResult
from pydantic_core import to_json
from starlette.responses import Response

from corral.bridges.web import RequestHead, refusal_headers, status_of
from corral.errors import CorralError
from corral.types import CallError

_JSON = "application/json"
GRAPHQL_JSON = "application/graphql-response+json"
EVENTS = "text/event-stream"
COMPLETE = b"event: complete\ndata:\n\n"


def accepted(head: RequestHead) -> tuple[str, bool]:
    """Returns the media type for a result, and True if the client reads events. Events are the last choice."""
    for name, value in head.scope["headers"]:
        if name == b"accept":
            text = value.decode("latin-1").lower()
            events = EVENTS in text or "*/*" in text
            if GRAPHQL_JSON in text:
                return GRAPHQL_JSON, events
            only_events = EVENTS in text and _JSON not in text and "*/*" not in text
            return (EVENTS if only_events else _JSON), events
    return _JSON, True


def result_json(result: ExecutionResult) -> bytes:
    """Writes a result. An error without a code means a value that does not match its type."""
    content: dict[str, Any] = {}
    if result.errors:
        errors: list[dict[str, Any]] = [{**error.formatted} for error in result.errors]
        for error in errors:
            code = "invalid_tool_output" if "path" in error else "malformed_message"
            error["extensions"] = {"code": code, **error.get("extensions", {})}
        content["errors"] = errors
    if result.data is not None or not result.errors or any(error.path for error in result.errors):
        content["data"] = result.data
    return to_json(content, inf_nan_mode="null")


def respond(content: bytes, media_type: str, *, executed: bool = True) -> Response:
    """Makes the response with a result. One that was not executed has status 400 in GraphQL's own media type."""
    status = 200 if executed or media_type != GRAPHQL_JSON else 400
    return Response(content, status, {"cache-control": "no-store", "vary": "accept"}, media_type=media_type)


def event(content: bytes) -> bytes:
    """Makes the server-sent event of a result. JSON has no line breaks."""
    return b"event: next\ndata: %b\n\n" % content


def extensions_of(error: CallError) -> dict[str, Any]:
    """Returns the members of an error, for its `extensions`."""
    extensions: dict[str, Any] = {"code": error.code, "name": error.name}
    if error.retry_after_seconds is not None:
        extensions["retryAfterSeconds"] = error.retry_after_seconds
    return extensions


def failed_json(error: CallError | CorralError) -> bytes:
    """Writes the result of a request that failed as a whole."""
    if not isinstance(error, CallError):
        error = CallError.of(error)
    return to_json({"errors": [{"message": error.message, "extensions": extensions_of(error)}]})


def failed(error: CallError | CorralError, status: int | None = None, media_type: str = "application/json") -> Response:
    """Makes the response to a request that failed as a whole. `status` replaces the error's own."""
    if not isinstance(error, CallError):
        error = CallError.of(error)
    status = status or status_of(error)
    return Response(failed_json(error), status, refusal_headers(error, status), media_type=media_type)
