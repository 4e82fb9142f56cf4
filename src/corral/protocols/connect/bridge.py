"""`ConnectBridge`: the methods of the gRPC bridge, over the Connect protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, ClassVar, TypeVar

import anyio
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToJson, Parse
from google.protobuf.message import DecodeError
from grpc import StatusCode
from pydantic_core import to_json
from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document, Receive, Scope, Send
from corral.bridges.web import Body, RequestHead, WebBridge, ended, grant_of, late, most_body_bytes, watch_request
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.response_stream import ResponseStream
from corral.bridges.web.runtimes import RUNTIMES
from corral.calls.grants import Grant
from corral.errors import BridgeError, CorralError, InvalidToolOutput, MalformedMessage
from corral.guest import Transport
from corral.protocols.connect.forms import (
    CONTENT_TYPES,
    END,
    Form,
    envelope,
    error_json,
    expanded,
    form_of,
    headers_of,
    opened,
    refusal,
    respond,
)
from corral.protocols.grpc.bridge.methods import BridgeMethods, MethodFailed
from corral.protocols.grpc.bridge.proto_text import proto_document
from corral.protocols.grpc.bridge.schema import ToolSchema
from corral.protocols.grpc.bridge.statuses import error_within
from corral.protocols.transports import transport
from corral.types import CallError, Language

T = TypeVar("T")
_JSON_COST = 2
"""Factor by which a message costs more than other inputs of its size: protobuf converts JSON in Python."""
_MOST_REASON = 300
_ENDED = envelope(b"{}", END)
_NOT_WRITTEN = "the tool ran, but its result was withheld: JSON has no form for it; application/proto has"


class ConnectExchange:
    """Messages of one request and its response. `body` is set once it has arrived."""

    def __init__(self, form: Form, send: Send, grant: Grant, most_bytes: int, *, compressed: bool) -> None:
        self.body = b""
        self._grant = grant
        self._form = form
        self._send = send
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
            raise MalformedMessage("the message is not of its type") from None
        except RecursionError:
            raise MalformedMessage("the message is nested too deeply") from None
        except (JsonError, ValueError) as error:
            reason = str(error).partition("\n")[0][:_MOST_REASON]
            raise MalformedMessage(f"the message is not of its type: {reason}") from None

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

    async def end(self) -> None:
        """Ends a successful response, unless its last message has."""
        if self._ended:
            return
        if self._form.stream:
            await self._parts.write(_ENDED, last=True)
        else:
            await respond(self._send, 200, self._form.content_type, self._response or b"")

    async def fail(self, error: CallError, status: int | None = None, code: StatusCode | None = None) -> None:
        """Ends a response with an error, unless it has ended."""
        if self._ended:
            return
        if self._parts.started:
            content = to_json({"error": error_json(error, code)})
            await self._parts.write(envelope(content, END), last=True)
        else:
            await refusal(self._form, error, status, code)({}, _nothing, self._send)


async def _nothing() -> dict[str, Any]:
    return {}


_MOST_DIGITS = 10
"""Maximum digits of a timeout in milliseconds."""
_ACCEPTED = b", ".join(sorted(CONTENT_TYPES))


class ConnectApp:
    """ASGI app over a pipeline. Everything requires a token, except `/health` and the runtimes."""

    def __init__(self, host: BridgeHost, bridge: ConnectBridge, schemas: DocumentCache[ToolSchema]) -> None:
        self._host = host
        self._bridge = bridge
        self._methods = BridgeMethods(host, schemas, "connect")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["method"] != "POST":
            await self._get(path, scope["method"], send)
            return
        head = RequestHead.of(scope)
        form = form_of(head)
        if form is None:
            await respond(send, 415, b"text/plain", b"", (b"accept-post", _ACCEPTED))
            return
        grant = await grant_of(self._host, head, "connect")
        if not isinstance(grant, Grant):
            await refusal(form, grant)(scope, receive, send)
            return
        await self._serve(head, form, path, grant, receive, send)

    async def _get(self, path: str, method: str, send: Send) -> None:
        if method == "GET" and path == "/health":
            await respond(send, 200, b"application/json", b'{"status":"ok"}')
        elif method == "GET" and path in RUNTIMES:
            language, media_type = RUNTIMES[path]
            await respond(send, 200, media_type.encode(), self._bridge.guest_runtime(language).encode())
        else:
            await respond(send, 405, b"text/plain", b"", (b"allow", b"POST"))

    async def _serve(
        self, head: RequestHead, form: Form, path: str, grant: Grant, receive: Receive, send: Send
    ) -> None:
        headers = headers_of(head)
        most = most_body_bytes(grant) * 4 // 3  # bytes within JSON are base64
        encoding = headers.get(b"connect-content-encoding" if form.stream else b"content-encoding", b"identity").lower()
        exchange = ConnectExchange(form, send, grant, most, compressed=encoding == b"gzip")
        body_came = False
        try:
            if encoding not in (b"identity", b"gzip"):
                refused = CallError.of(BridgeError("messages must be compressed by gzip or not at all"))
                await exchange.fail(refused, code=StatusCode.UNIMPLEMENTED)
                return
            if headers.get(b"connect-protocol-version", b"1") != b"1":
                raise MalformedMessage("connect-protocol-version must be 1")
            deadline = _deadline(headers.get(b"connect-timeout-ms"))
            async with (
                watch_request(grant, receive, exchange.heartbeat) as watch,
                Body(head, receive, most, grant, expands=encoding == b"gzip") as body,
            ):
                exchange.body = body
                body_came = True
                watch.body_received()
                with deadline:
                    await self._methods.serve(path, exchange, grant)
                    await exchange.end()
                    return
                passed = CallError.of(BridgeError("the deadline of the request has passed"))
                await exchange.fail(passed, code=StatusCode.DEADLINE_EXCEEDED)
                return
        except MethodFailed as failed:
            await exchange.fail(failed.error)
        except CorralError as error:
            await self._fail(exchange, error)
        except Exception as error:
            await self._fail(exchange, error_within(error, path))
        else:
            await exchange.fail(ended() if body_came or grant.ended else late())

    async def _fail(self, exchange: ConnectExchange, error: CorralError) -> None:
        unknown = type(error) is BridgeError  # a method that does not exist, or of another kind
        await exchange.fail(CallError.of(error), code=StatusCode.UNIMPLEMENTED if unknown else None)


def _deadline(milliseconds: bytes | None) -> AbstractContextManager[object]:
    """Makes a context that ends at the client's deadline.

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

    Messages are JSON or protobuf; methods are unary or stream their responses. `url`, `allowed_hosts` and
    `allowed_origins` are as in every `WebBridge`.

    Raises:
        ConfigError: `url` is not an http or https URL.
    """

    name: ClassVar[str] = "connect"

    def __init__(
        self,
        url: str | None = None,
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        super().__init__(url, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
        self._documents: DocumentCache[ToolSchema] = DocumentCache(ToolSchema, lambda schema: schema.size)

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return ConnectApp(host, self, self._documents)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return refusal(form_of(head), error, status)

    @override
    async def document(self, grant: Grant) -> Document:
        """Returns the `.proto` of the tools that the scopes of a grant allow."""
        return await proto_document(self._documents, grant)

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("connect", language, "messages")
