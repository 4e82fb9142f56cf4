"""`ConnectBridge`: the methods of the gRPC bridge over the Connect protocol. docs/connect.md specifies it.

Needs the extra `grpc`.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import anyio
from pydantic_core import to_json
from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document, Receive, Send
from corral.bridges.web import Body, BridgeApp, RequestHead, WebBridge, watch_request
from corral.bridges.web.bridge import Answer
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.request_load import most_body_bytes
from corral.bridges.web.responses import Response, ResponseStream
from corral.calls.grants import Grant
from corral.errors import BridgeError, CorralError, InvalidToolOutput, MalformedMessage, MessageTooLarge, requires_extra
from corral.guest import Transport
from corral.protocols.transports import transport
from corral.types import CallError, Language

with requires_extra("ConnectBridge", "grpc"):
    from google.protobuf.json_format import Error as JsonError
    from google.protobuf.json_format import MessageToDict, MessageToJson, Parse
    from google.protobuf.message import DecodeError
    from grpc import StatusCode

    from corral.protocols.grpc.methods import BridgeMethods, MethodFailed, code_of, details_of, error_within
    from corral.protocols.grpc.tool_schema import ToolSchema, proto_document

__all__ = ["ConnectBridge"]

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


def _form_of(head: RequestHead) -> Form | None:
    """Returns the form of a request; None if it is not a Connect request."""
    return CONTENT_TYPES.get((head.content_type or b"").partition(b";")[0].strip().lower())


def envelope(content: bytes, flags: int = 0) -> bytes:
    """Puts a message into an envelope: a byte of flags, four bytes of length, the message."""
    return bytes([flags]) + len(content).to_bytes(4, "big") + content


def opened(body: bytes, most_bytes: int, *, compressed: bool) -> bytes:
    """Takes the only message of a request out of its envelope.

    Raises:
        MalformedMessage: there is not exactly one, or it is compressed although the headers do not say so.
        MessageTooLarge: the message expands to more than `most_bytes`.
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
        MalformedMessage: the content is not gzip. MessageTooLarge: the content expands to more than `most_bytes`.
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


def _error_json(error: CallError, code: StatusCode | None = None) -> dict[str, Any]:
    """Makes a protocol error. `code` replaces the code of the error."""
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


def refusal(form: Form | None, error: CallError, status: int | None = None, code: StatusCode | None = None) -> ASGIApp:
    """Makes the response to a request that failed before any message. A stream gets status 200 and one envelope."""
    content = _error_json(error, code)
    if form is not None and form.stream:
        return Response(envelope(to_json({"error": content}), END), media_type=form.content_type.decode())
    return Response(to_json(content), status or _HTTP_STATUSES[code or code_of(error)])


T = TypeVar("T")
_JSON_COST = 2
"""Cost of a message relative to other inputs of its size, because protobuf converts JSON in Python."""
_MOST_REASON = 300
_ENDED = envelope(b"{}", END)
_NOT_WRITTEN = "the tool ran, but its result was withheld: JSON has no form for it; application/proto has"


class ConnectExchange:
    """Messages of one request and its response. `body` is set once it has arrived."""

    def __init__(self, form: Form, send: Send, grant: Grant, most_bytes: int, *, compressed: bool) -> None:
        self.body = b""
        self._grant = grant
        self._form = form
        self._parts = ResponseStream(send, (b"content-type", form.content_type), (b"cache-control", b"no-store"))
        self._most_bytes = most_bytes
        self._compressed = compressed
        self._response: bytes | None = None
        self._ping: Any = None
        self._ended = False

    def begin(self, *, stream: bool, ping: Any = None) -> None:
        if stream is not self._form.stream:
            kind = (
                "application/connect+json or application/connect+proto" if stream else "application/json or .../proto"
            )
            raise BridgeError(f"the method {'streams' if stream else 'does not stream'}; its content-type is {kind}")
        if ping is not None:
            self._ping = ping

    @asynccontextmanager
    async def message(self, kind: Any, *, batch: bool = False) -> AsyncGenerator[tuple[Any, int]]:  # noqa: ARG002
        body = self.body
        if self._form.stream:
            body = opened(body, self._most_bytes, compressed=self._compressed)
        elif self._compressed:
            body = expanded(body, self._most_bytes)
        message = await self._by_size(len(body), lambda: self._parse(kind, body))
        yield message, len(body)

    def _parse(self, kind: Any, body: bytes) -> Any:
        try:
            return Parse(body or b"{}", kind()) if self._form.json else kind.FromString(body)
        except DecodeError:
            raise MalformedMessage("the message does not match its type") from None
        except RecursionError:
            raise MalformedMessage("the message is nested too deeply") from None
        except (JsonError, ValueError) as error:
            reason = str(error).partition("\n")[0][:_MOST_REASON]
            raise MalformedMessage(f"the message does not match its type: {reason}") from None

    async def write(self, message: Any, *, last: bool = False) -> None:
        data = await self._by_size(message.ByteSize(), lambda: self._serialize(message))
        if self._form.stream:
            self._ended = last
            await self._parts.write(envelope(data) + (_ENDED if last else b""), last=last)
        else:
            self._response = data

    def _serialize(self, message: Any) -> bytes:
        if not self._form.json:
            return message.SerializeToString()
        try:
            return MessageToJson(message, indent=None, ensure_ascii=False).encode()
        except (JsonError, ValueError) as error:
            raise InvalidToolOutput(_NOT_WRITTEN) from error

    async def _by_size(self, size: int, work: Callable[[], T]) -> T:
        return await self._grant.run_by_size(work, size=size * _JSON_COST) if self._form.json else work()

    async def heartbeat(self) -> None:
        """Sends an empty message, if the method has one."""
        if self._ping is not None:
            await self._parts.write(envelope(b"{}" if self._form.json else self._ping.SerializeToString()))

    async def end(self) -> ASGIApp | None:
        """Ends a successful response, unless its last message has done so. Without a stream, returns the response."""
        if not self._form.stream:
            return Response(self._response or b"", media_type=self._form.content_type.decode())
        if not self._ended:
            await self._parts.write(_ENDED, last=True)
        return None

    async def fail(self, error: CallError | CorralError, code: StatusCode | None = None) -> ASGIApp | None:
        """Ends a response with an error, unless it has ended. Before the first message, returns the response."""
        if not isinstance(error, CallError):
            error = CallError.of(error)
        if not self._parts.started:
            return refusal(self._form, error, code=code)
        if not self._ended:
            content = to_json({"error": _error_json(error, code)})
            await self._parts.write(envelope(content, END), last=True)
        return None


_LATE = StatusCode.DEADLINE_EXCEEDED
_MOST_DIGITS = 10
"""Maximum number of digits of a timeout in milliseconds."""
_ACCEPTED = b", ".join(sorted(CONTENT_TYPES)).decode()


class _ConnectApp(BridgeApp):
    """App that has methods at every path."""

    def __init__(self, bridge: ConnectBridge, host: BridgeHost, schemas: DocumentCache[ToolSchema]) -> None:
        super().__init__(bridge, host)
        self._methods = BridgeMethods(host, schemas, "connect")

    @override
    def answers(self, path: str) -> Mapping[str, Answer]:
        return {"POST": partial(self._serve, path)}

    async def _serve(self, path: str, head: RequestHead, grant: Grant, receive: Receive, send: Send) -> ASGIApp | None:
        form = _form_of(head)
        if form is None:
            return Response(b"", 415, {"accept-post": _ACCEPTED}, "text/plain")
        headers = {name: value for name, value in head.scope["headers"] if name.startswith((b"connect-", b"content-e"))}
        most = most_body_bytes(grant) * 4 // 3  # bytes within JSON are base64
        encoding = headers.get(b"connect-content-encoding" if form.stream else b"content-encoding", b"identity").lower()
        exchange = ConnectExchange(form, send, grant, most, compressed=encoding == b"gzip")
        try:
            if encoding not in (b"identity", b"gzip"):
                raise BridgeError("messages must be compressed by gzip or not at all")
            if headers.get(b"connect-protocol-version", b"1") != b"1":
                raise MalformedMessage("connect-protocol-version must be 1")
            deadline = _deadline(headers.get(b"connect-timeout-ms"))
            async with (
                watch_request(grant, receive, exchange.heartbeat) as watch,
                Body(head, receive, most, grant, expands=encoding == b"gzip") as body,
            ):
                exchange.body = body
                watch.body_received()
                with deadline:
                    await self._methods.serve(path, exchange, grant)
                    return await exchange.end()
                return await exchange.fail(BridgeError("the deadline of the request has passed"), _LATE)
            return await exchange.fail(watch.reason)
        except MethodFailed as failed:
            return await exchange.fail(failed.error)
        except Exception as failure:
            error = failure if isinstance(failure, CorralError) else error_within(failure, path)
            unknown = type(error) is BridgeError  # the method does not exist, or is of another kind
            return await exchange.fail(error, StatusCode.UNIMPLEMENTED if unknown else None)


def _deadline(milliseconds: bytes | None) -> AbstractContextManager[object]:
    """Makes a context manager that ends its block at the client's deadline.

    Raises:
        MalformedMessage: the timeout is not a number of milliseconds.
    """
    if milliseconds is None:
        return nullcontext()
    if not milliseconds.isdigit() or len(milliseconds) > _MOST_DIGITS:
        raise MalformedMessage("connect-timeout-ms must be a whole number of at most 10 digits")
    return anyio.move_on_after(int(milliseconds) / 1000)


@checked
class ConnectBridge(WebBridge):
    """The methods of `GrpcBridge` over the Connect protocol, as an app that is mounted in a web server.

    Messages are JSON or protobuf. Methods are unary or stream their responses. For `url`, `allowed_hosts` and
    `allowed_origins` see `WebBridge`.

    Raises:
        ConfigError: `url` is not an http or https URL.
    """

    name: ClassVar[str] = "connect"

    @cached_property
    def _documents(self) -> DocumentCache[ToolSchema]:
        return DocumentCache(ToolSchema, lambda schema: schema.size)

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return _ConnectApp(self, host, self._documents)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return refusal(_form_of(head), error, status)

    @override
    async def document(self, grant: Grant) -> Document:
        """Returns the `.proto` file of the tools that the scopes of a grant allow."""
        return await proto_document(self._documents, grant)

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("connect", language, "messages")
