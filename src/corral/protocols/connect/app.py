"""The app: methods at `/service/method`, and the runtimes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import anyio
from grpc import StatusCode

from corral.bridges.base import BridgeHost, Receive, Scope, Send
from corral.bridges.web import Body, RequestHead, ended, grant_of, late, most_body_bytes, watch_request
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.runtimes import RUNTIMES
from corral.calls.grants import Grant
from corral.errors import BridgeError, CorralError, MalformedMessage
from corral.guest import client_runtime
from corral.protocols.connect.exchanges import ConnectExchange
from corral.protocols.connect.forms import CONTENT_TYPES, Form, form_of, headers_of, refusal, respond
from corral.protocols.grpc.bridge.methods import BridgeMethods, MethodFailed
from corral.protocols.grpc.bridge.schema import ToolSchema
from corral.protocols.grpc.bridge.statuses import error_within
from corral.protocols.transports import transport
from corral.types import CallError

_MOST_DIGITS = 10
"""Digits of a timeout in milliseconds."""
_ACCEPTED = b", ".join(sorted(CONTENT_TYPES))


class ConnectApp:
    """App over a pipeline. All of it requires a token, except `/health` and the runtimes."""

    def __init__(self, host: BridgeHost, schemas: DocumentCache[ToolSchema]) -> None:
        self._host = host
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
            runtime = client_runtime(language, transport("connect", language, "messages"))
            await respond(send, 200, media_type.encode(), runtime.encode())
        else:
            await respond(send, 405, b"text/plain", b"", (b"allow", b"POST"))

    async def _serve(
        self, head: RequestHead, form: Form, path: str, grant: Grant, receive: Receive, send: Send
    ) -> None:
        headers = headers_of(head)
        most = most_body_bytes(grant) * 4 // 3  # bytes within JSON are base64
        encoding = headers.get(b"connect-content-encoding" if form.stream else b"content-encoding", b"identity").lower()
        exchange = ConnectExchange(form, send, most, compressed=encoding == b"gzip")
        body_came = False
        try:
            if encoding not in (b"identity", b"gzip"):
                refused = CallError.of(BridgeError("messages are compressed by gzip or not at all"))
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
        unknown = type(error) is BridgeError  # a method that is not there, or of another kind
        await exchange.fail(CallError.of(error), code=StatusCode.UNIMPLEMENTED if unknown else None)


def _deadline(given: bytes | None) -> AbstractContextManager[object]:
    """Makes the context that ends at the client's deadline.

    Raises:
        MalformedMessage: it is not a number of milliseconds.
    """
    if given is None:
        return nullcontext()
    if not given.isdigit() or len(given) > _MOST_DIGITS:
        raise MalformedMessage("connect-timeout-ms must be a whole number of at most 10 digits")
    return anyio.move_on_after(int(given) / 1000)
