"""Forms of requests and responses: content types of Connect, envelopes of streams, and errors."""

from __future__ import annotations

import zlib
from base64 import b64encode
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict
from grpc import StatusCode
from pydantic_core import to_json

from corral.bridges.base import ASGIApp, Receive, Scope, Send
from corral.bridges.web import RequestHead
from corral.errors import MalformedMessage, MessageTooLarge
from corral.protocols.grpc.bridge.statuses import code_of, details_of
from corral.types import CallError

END = 2
"""Flag of the envelope that ends a stream."""
_COMPRESSED = 1
_PREFIX_BYTES = 5

_HTTP_STATUSES = {
    StatusCode.CANCELLED: 499,
    StatusCode.DEADLINE_EXCEEDED: 504,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.INTERNAL: 500,
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.UNIMPLEMENTED: 501,
}
"""HTTP statuses of unary errors, from the protocol's table."""


class Form(NamedTuple):
    """Codec of the messages, and True if they are in envelopes."""

    json: bool
    stream: bool

    @property
    def content_type(self) -> bytes:
        return b"application/%b%b" % (b"connect+" if self.stream else b"", b"json" if self.json else b"proto")


CONTENT_TYPES = {
    form.content_type: form for form in (Form(json, stream) for json in (True, False) for stream in (True, False))
}


def form_of(head: RequestHead) -> Form | None:
    """Returns the form of a request; None if it does not use Connect."""
    return CONTENT_TYPES.get((head.content_type or b"").partition(b";")[0].strip().lower())


def headers_of(head: RequestHead) -> dict[bytes, bytes]:
    """Returns the headers of the protocol."""
    return {name: value for name, value in head.scope["headers"] if name.startswith((b"connect-", b"content-e"))}


def envelope(content: bytes, flags: int = 0) -> bytes:
    """Puts a message into an envelope: a byte of flags, four of the length, the message."""
    return bytes([flags]) + len(content).to_bytes(4, "big") + content


def opened(body: bytes, most_bytes: int, *, compressed: bool) -> bytes:
    """Returns the only message of a request from its envelope.

    Raises:
        MalformedMessage: there is not exactly one, or it is compressed although the headers do not say so.
        MessageTooLarge: it expands to more than `most_bytes`.
    """
    content = body[_PREFIX_BYTES:]
    if len(body) < _PREFIX_BYTES or int.from_bytes(body[1:_PREFIX_BYTES], "big") != len(content):
        raise MalformedMessage("the request must have one message, in one envelope")
    if body[0] & ~_COMPRESSED:
        raise MalformedMessage("the envelope has unknown flags")
    if not body[0]:
        return content
    if not compressed:
        raise MalformedMessage("the envelope is compressed; set the header connect-content-encoding")
    return expanded(content, most_bytes)


def expanded(content: bytes, most_bytes: int) -> bytes:
    """Decompresses gzip.

    Raises:
        MalformedMessage: the content is not gzip.
        MessageTooLarge: it expands to more than `most_bytes`.
    """
    gzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        data = gzip.decompress(content, most_bytes + 1)
    except zlib.error:
        raise MalformedMessage("the message is not gzip") from None
    if len(data) > most_bytes:
        raise MessageTooLarge(f"the message expands to more than {most_bytes} bytes")
    if not gzip.eof or gzip.unused_data:
        raise MalformedMessage("the message is not exactly one gzip member")
    return data


def error_json(error: CallError, code: StatusCode | None = None) -> dict[str, Any]:
    """Makes an error of the protocol. `code` replaces that of the error."""
    code = code or code_of(error)
    name = "canceled" if code is StatusCode.CANCELLED else code.name.lower()
    details = [
        {
            "type": detail.DESCRIPTOR.full_name,
            "value": b64encode(detail.SerializeToString()).rstrip(b"=").decode(),
            "debug": MessageToDict(detail),
        }
        for detail in details_of(error)
    ]
    return {"code": name, "message": error.message, "details": details}


def http_status(error: CallError, code: StatusCode | None = None) -> int:
    """Returns the status of the response to a failed unary request."""
    return _HTTP_STATUSES[code or code_of(error)]


def refusal(form: Form | None, error: CallError, status: int | None = None, code: StatusCode | None = None) -> ASGIApp:
    """Makes the response to a request that failed before any message; a stream gets status 200 and one envelope."""
    content = error_json(error, code)

    async def refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
        if form is not None and form.stream:
            await respond(send, 200, form.content_type, envelope(to_json({"error": content}), END))
        else:
            await respond(send, status or http_status(error, code), b"application/json", to_json(content))

    return refuse


async def respond(send: Send, status: int, content_type: bytes, content: bytes, *more: tuple[bytes, bytes]) -> None:
    """Sends a whole response."""
    headers = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", b"no-store"),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
