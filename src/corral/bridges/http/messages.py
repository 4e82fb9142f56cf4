"""Bodies of requests and replies: `{"calls": [...]}` in, one line of JSON for each call out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import to_json
from starlette.responses import Response
from typing_extensions import TypedDict

from corral.bridges.grants import Grant
from corral.bridges.web import MAX_CALLS, refusal_headers, status_of
from corral.errors import CorralError, MalformedMessage
from corral.guest import encode_value, revive_value
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, JsonSchema, Reply

__all__ = ["CALLS_SCHEMA", "alone_line", "calls_of", "failed", "items_line", "line"]

_STRICT = ConfigDict(extra="forbid", strict=True)


@with_config(_STRICT)
class OneCall(TypedDict):
    sequence: Annotated[int, Field(ge=1, le=2**53 - 1)]
    tool: Annotated[str, Field(min_length=1, max_length=MAX_TOOL_PATH)]
    input: NotRequired[Any]
    tagged: NotRequired[bool]


@with_config(_STRICT)
class Calls(TypedDict):
    calls: Annotated[list[OneCall], Field(min_length=1, max_length=MAX_CALLS)]
    stream: NotRequired[bool]


_calls = TypeAdapter(Calls)
CALLS_SCHEMA: JsonSchema = _calls.json_schema(ref_template="#/components/schemas/{model}")
"""Schema of the body of `POST /calls`, with its own `$defs`."""


def calls_of(body: object, size: int, grant: Grant) -> tuple[list[CallRequest], bool]:
    """Returns the calls of a parsed body of `size` bytes, and whether the client reads streams.

    Raises:
        MalformedMessage: the shape is wrong, two calls have the same sequence number, or a tag is wrong.
    """
    try:
        given = _calls.validate_python(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MalformedMessage(f"the request's body is wrong at {place or 'its root'}: {first['msg']}") from None
    calls = given["calls"]
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
    return made, given.get("stream", False)


def line(number: int, reply: Reply) -> bytes:
    """Encodes a reply as a line; `number` is the client's number of the call."""
    if reply.error is not None:
        return b'{"sequence":%d,"error":%b}\n' % (number, to_json(_error(reply.error)))
    if reply.nothing:
        return b'{"sequence":%d}\n' % number
    value = reply.encoded or encode_value(reply.value)
    tagged = b',"tagged":true' if value.tagged else b""
    return b'{"sequence":%d,"value":%b%b}\n' % (number, value.text, tagged)


def items_line(number: int, items: Sequence[bytes], *, tagged: bool) -> bytes:
    """Encodes items of a stream as a line; the first one opens it."""
    return b'{"sequence":%d,"items":[%b]%b}\n' % (number, b",".join(items), b',"tagged":true' if tagged else b"")


def alone_line(number: int) -> bytes:
    """Tells that a call was not made: it streams, so its client is to send it in a request of its own."""
    return b'{"sequence":%d,"alone":true}\n' % number


def failed(
    error: CallError | CorralError, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Makes the response to a request that failed as a whole: `{"error": {...}}`. `status` replaces the error's own."""
    if not isinstance(error, CallError):
        error = CallError.of(error)
    status = status or status_of(error)
    sent = {**refusal_headers(error, status), **(headers or {})}
    return Response(to_json({"error": _error(error)}), status, sent, media_type="application/json")


def _error(error: CallError) -> dict[str, object]:
    content: dict[str, object] = {"code": error.code, "name": error.name, "message": error.message}
    if error.retry_after_seconds is not None:
        content["retryAfterSeconds"] = error.retry_after_seconds
    return content
