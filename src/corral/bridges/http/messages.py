"""Bodies of requests and replies: `{"calls": [...]}` in, one line of JSON for each call out."""

from __future__ import annotations

import math
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json, to_json
from starlette.responses import Response
from starlette.types import Receive
from typing_extensions import TypedDict

from corral.bridges.grants import Grant
from corral.bridges.http.request_filter import RequestHead
from corral.errors import AccessDenied, CorralError, MalformedMessage, MessageTooLarge, error_class
from corral.guest import encode_value, revive_value
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, JsonSchema, Reply

__all__ = ["CALLS_SCHEMA", "MAX_CALLS", "calls_of", "failed", "line", "read_json"]

MAX_CALLS = 64
"""Calls in one request."""
_STRICT = ConfigDict(extra="forbid", strict=True)
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


@with_config(_STRICT)
class OneCall(TypedDict):
    sequence: Annotated[int, Field(ge=1, le=2**53 - 1)]
    tool: Annotated[str, Field(min_length=1, max_length=MAX_TOOL_PATH)]
    input: NotRequired[Any]
    tagged: NotRequired[bool]


@with_config(_STRICT)
class Calls(TypedDict):
    calls: Annotated[list[OneCall], Field(min_length=1, max_length=MAX_CALLS)]


_calls = TypeAdapter(Calls)
CALLS_SCHEMA: JsonSchema = _calls.json_schema(ref_template="#/components/schemas/{model}")
"""Schema of the body of `POST /calls`, with its own `$defs`."""


async def read_json(head: RequestHead, receive: Receive, most_bytes: int) -> tuple[Any, int]:
    """Reads and parses the body; returns it and its size in bytes.

    Raises:
        MessageTooLarge: it has more than `most_bytes`; no more is read.
        MalformedMessage: it is not JSON, is nested too deeply, or ends too soon.
    """
    if (head.length or 0) > most_bytes:
        raise MessageTooLarge(f"the request announces {head.length} bytes; {most_bytes} are allowed")
    body = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MalformedMessage("the request ended before its body was complete")
        chunk: bytes = message.get("body", b"")
        body = body + chunk if body else chunk
        if len(body) > most_bytes:
            raise MessageTooLarge(f"the request has more than {most_bytes} bytes")
        more = message.get("more_body", False)
    try:
        return from_json(body, allow_inf_nan=False) if body else {}, len(body)
    except ValueError as error:
        raise MalformedMessage("the request's body is not JSON") from error


def calls_of(body: object, size: int, grant: Grant) -> list[CallRequest]:
    """Returns the calls of a parsed body of `size` bytes.

    Raises:
        MalformedMessage: the shape is wrong, two calls have the same sequence number, or a tag is wrong.
    """
    try:
        calls = _calls.validate_python(body)["calls"]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MalformedMessage(f"the request's body is wrong at {place or 'its root'}: {first['msg']}") from None
    if len(calls) > 1 and len({call["sequence"] for call in calls}) < len(calls):
        raise MalformedMessage("two calls of the request have the same sequence number")
    made: list[CallRequest] = []
    for call in calls:
        value = call.get("input", {})
        small = len(calls) == 1 and size <= grant.limits.tool_input_bytes
        own_size = size if small else len(to_json(value))
        if call.get("tagged"):
            value = revive_value(value)
        made.append(CallRequest(call["tool"], value, call["sequence"], own_size))
    return made


def line(number: int, reply: Reply) -> bytes:
    """Encodes a reply as a line; `number` is the client's number of the call."""
    if reply.error is not None:
        return b'{"sequence":%d,"error":%b}\n' % (number, to_json(_error(reply.error)))
    if reply.nothing:
        return b'{"sequence":%d}\n' % number
    value = reply.encoded or encode_value(reply.value)
    tagged = b',"tagged":true' if value.tagged else b""
    return b'{"sequence":%d,"value":%b%b}\n' % (number, value.text, tagged)


def failed(error: CallError | CorralError) -> Response:
    """Makes the response to a request that failed as a whole: `{"error": {...}}` with a status of HTTP."""
    if not isinstance(error, CallError):
        error = CallError.of(error)
    status = _STATUS.get(error.code, 403 if issubclass(error_class(error.code), AccessDenied) else 502)
    headers = {"cache-control": "no-store"}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after_seconds is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after_seconds))
    return Response(to_json({"error": _error(error)}), status, headers, media_type="application/json")


def _error(error: CallError) -> dict[str, object]:
    content: dict[str, object] = {"code": error.code, "name": error.name, "message": error.message}
    if error.retry_after_seconds is not None:
        content["retryAfterSeconds"] = error.retry_after_seconds
    return content
