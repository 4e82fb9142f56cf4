"""Results and errors in the format of tRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic_core import from_json, to_json
from starlette.responses import Response

from corral.bridges.web import refusal_headers, status_of
from corral.errors import CorralError, MessageTooLarge
from corral.guest import decode_value, plain_json
from corral.protocols.trpc.superjson import to_superjson
from corral.types import CallError, Reply

Transformer: TypeAlias = Literal["superjson"] | None

# Codes of JSON-RPC as tRPC numbers them (@trpc/server, rpc/codes).
_BY_STATUS: Mapping[int, tuple[str, int]] = {
    400: ("BAD_REQUEST", -32600),
    401: ("UNAUTHORIZED", -32001),
    403: ("FORBIDDEN", -32003),
    404: ("NOT_FOUND", -32004),
    405: ("METHOD_NOT_SUPPORTED", -32005),
    408: ("TIMEOUT", -32008),
    413: ("PAYLOAD_TOO_LARGE", -32013),
    415: ("UNSUPPORTED_MEDIA_TYPE", -32015),
    422: ("UNPROCESSABLE_CONTENT", -32022),
    429: ("TOO_MANY_REQUESTS", -32029),
    503: ("SERVICE_UNAVAILABLE", -32603),
}
_OTHER = "INTERNAL_SERVER_ERROR", -32603


def status_of_reply(reply: Reply) -> int:
    """Returns the HTTP status of a call."""
    return 200 if reply.error is None else status_of(reply.error)


def size_of(reply: Reply) -> int:
    """Returns the size of a result in bytes."""
    return 0 if reply.encoded is None else len(reply.encoded.text)


def result_of(reply: Reply, path: str, transformer: Transformer) -> dict[str, Any]:
    """Makes `{"result": {"data": ...}}`, or `{"error": ...}`; the transformer has yet to write the data."""
    if reply.error is not None:
        return {"error": error_shape(reply.error, path)}
    if reply.nothing:
        return {"result": {"data": None}}
    value = reply.value
    if transformer is None:
        if reply.encoded is None or reply.encoded.tagged:
            value = from_json(plain_json(value))
        return {"result": {"data": value}}
    if reply.encoded is not None:
        value = decode_value(reply.encoded.text, tagged=reply.encoded.tagged)
    return {"result": {"data": value}}


def error_shape(error: CallError, path: str = "", status: int | None = None) -> dict[str, Any]:
    """Makes the error of a call. `data.corral` has its stable code."""
    status = status or status_of(error)
    name, number = _BY_STATUS.get(status, _OTHER)
    data: dict[str, Any] = {"code": name, "httpStatus": status}
    if path:
        data["path"] = path
    own: dict[str, Any] = {"code": error.code, "name": error.name}
    data["corral"] = own
    if error.retry_after_seconds is not None:
        own["retryAfterSeconds"] = error.retry_after_seconds
    return {"message": error.message, "code": number, "data": data}


def shown(content: dict[str, Any], transformer: Transformer) -> dict[str, Any]:
    """Applies the transformer to the data or the error of one call."""
    if transformer is None:
        return content
    if "error" in content:
        return {"error": to_superjson(content["error"])}
    try:
        return {"result": {"data": to_superjson(content["result"]["data"])}}
    except MessageTooLarge as error:
        return {"error": to_superjson(error_shape(CallError.of(error)))}


def failed(error: CallError | CorralError, transformer: Transformer, status: int | None = None) -> Response:
    """Makes the response to a request that failed as a whole."""
    if not isinstance(error, CallError):
        error = CallError.of(error)
    status = status or status_of(error)
    content = shown({"error": error_shape(error, status=status)}, transformer)
    return Response(to_json(content), status, refusal_headers(error, status), media_type="application/json")
