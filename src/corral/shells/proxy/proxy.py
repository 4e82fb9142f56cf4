"""Requests of commands, by a proxy: HTTP/1.1 by absolute URLs, and tunnels whose TLS ends here.

Each request becomes one of `Exchanges`, as those of programs do. What is read here is hostile.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import anyio
import h11
import httpx
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream

from corral.audit import AuditLog
from corral.egress.exchanges import Caller, Exchange, Exchanges
from corral.egress.sockets import Sockets
from corral.errors import AccessDenied, CallBudgetExceeded, Cancelled, CorralError, InvalidArguments
from corral.logs import get_logger
from corral.shells.proxy.authority import Authority
from corral.shells.proxy.proxy_sockets import ProxySocket

logger = get_logger("corral.egress")

_CONNECTIONS = 64
"""At the same time; further ones wait in the listener's queue, in the kernel."""
_HEAD_BYTES = 64_000
_PIECE_BYTES = 16_384
_IDLE_SECONDS = 30.0
"""Time for a head to be there as a whole, for a piece of a body to come, or to be taken."""
_DRAIN_SECONDS = 1.0
_DRAIN_BYTES = 1_000_000
"""Of a request that is refused, so that its sender reads why."""
_PORTS = {"http": 80, "https": 443}
_LOST = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, OSError, TimeoutError, Cancelled)


class _Origin(NamedTuple):
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@asynccontextmanager
async def serve_proxy(
    rules: object, listener: socket.socket, caller: Caller, audit: AuditLog | None
) -> AsyncGenerator[bytes]:
    """Answers whoever connects to the listener; all connections end with the block.

    Yields the certificate of the authority that clients are to trust, as PEM.
    """
    authority = Authority()
    async with (
        Exchanges(rules, caller, audit, protocol="proxy") as exchanges,
        Sockets(exchanges) as sockets,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_serve, listener, sockets, authority)
        try:
            yield authority.certificate
        finally:
            tasks.cancel_scope.cancel()


async def _serve(listener: socket.socket, sockets: Sockets, authority: Authority) -> None:
    places = anyio.Semaphore(_CONNECTIONS)

    async def visit(accepted: socket.socket) -> None:
        try:
            async with await SocketStream.from_socket(accepted) as stream:
                await _Connection(sockets, authority, stream).serve()
        except _LOST:
            pass
        except Exception:
            logger.exception("a connection to the proxy of a session failed")
        finally:
            places.release()

    async with anyio.create_task_group() as tasks:
        while True:
            await places.acquire()
            tasks.start_soon(visit, await _accepted(listener))


async def _accepted(listener: socket.socket) -> socket.socket:
    while True:
        await anyio.wait_readable(listener)
        try:
            accepted, _ = listener.accept()
        except BlockingIOError:
            continue
        except OSError:  # it has gone already, or no descriptors are left
            await anyio.sleep(0.05)
            continue
        accepted.setblocking(False)
        return accepted


class _Connection:
    """One connection of a command, or what is within its tunnel to `origin`."""

    def __init__(
        self, sockets: Sockets, authority: Authority, stream: ByteStream, origin: _Origin | None = None
    ) -> None:
        self._sockets = sockets
        self._exchanges = sockets.exchanges
        self._authority = authority
        self._stream = stream
        self._origin = origin
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)

    async def serve(self) -> None:
        """Answers requests until one side has enough."""
        try:
            while True:
                with anyio.fail_after(_IDLE_SECONDS):
                    request = await self._event()
                if not isinstance(request, h11.Request):
                    return
                if request.method == b"CONNECT" and self._origin is None:
                    await self._tunnel(request)
                    return
                if _asks_for_socket(request):
                    await self._socket(request)
                    return
                await self._answer(request)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint, f"the request is not well formed: {error}")

    async def _answer(self, request: h11.Request) -> None:
        exchange: Exchange | None = None
        try:
            try:
                url = self._url(request)
                exchange = self._exchanges.begin()
                headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
                size, has_body = _size(request)
                response = await exchange.send(
                    request.method.decode("ascii"),
                    url,
                    headers,
                    follow=False,
                    body=self._body() if has_body else None,
                    size=size if has_body else None,
                )
            except Cancelled:
                raise
            except CorralError as error:
                await self._refuse(_status(error), str(error))
            else:
                await self._relay(exchange, response, head=request.method == b"HEAD")
                await self._read_rest()
        finally:
            if exchange is not None:
                await exchange.aclose()

    async def _socket(self, request: h11.Request) -> None:
        """Becomes the server of a WebSocket."""
        try:
            url = self._url(request)
            if request.method != b"GET" or _size(request)[1]:
                raise InvalidArguments("a request for a WebSocket is a GET without a body")
            await self._event()
            if self._http.trailing_data[0]:
                raise InvalidArguments("a WebSocket is open once the server has said so; nothing is sent before")
            await ProxySocket(self._sockets.exchanges, self._stream, request.headers.raw_items()).serve(
                self._sockets, url
            )
        except Cancelled:
            raise
        except CorralError as error:
            await self._refuse(_status(error), str(error))

    async def _relay(self, exchange: Exchange, response: httpx.Response, *, head: bool) -> None:
        coding = response.headers.encoding
        headers = [(name.encode(coding), value.encode(coding, "replace")) for name, value in exchange.shown_headers]
        size = response.headers.get("content-length")
        if size is not None and response.status_code != 204 and (head or not self._exchanges.rules.mask):
            headers.append((b"content-length", size.encode("ascii")))  # masking would change it
        reason = self._exchanges.rules.mask.text(response.reason_phrase)
        await self._send(h11.Response(status_code=response.status_code, headers=headers, reason=_phrase(reason)))
        done = False
        while not done:
            try:
                data, done = await exchange.read()
            except CorralError as error:  # the head has gone out: a body that breaks off says it
                raise Cancelled(str(error)) from error
            if data:
                await self._send(h11.Data(data=data))
        await self._send(h11.EndOfMessage())

    async def _tunnel(self, request: h11.Request) -> None:
        """Becomes the server that a client asks a tunnel to."""
        try:
            host, port = _authority(request.target.decode("ascii"), None)
        except ValueError:
            await self._refuse(400, "CONNECT is followed by a host and a port")
            return
        policy = self._exchanges.rules.policy
        found = [each for each in _PORTS if policy.objection(each, host, port) is None]
        if not found:
            try:
                await self._exchanges.begin().send("CONNECT", str(_Origin("https", host, port)), [], follow=False)
            except CorralError as error:
                await self._refuse(_status(error), str(error))
            return
        await self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        if self._http.trailing_data[0]:
            return  # it did not wait for the answer
        origin = _Origin("https" if "https" in found else "http", host, port)
        if origin.scheme == "http":
            await _Connection(self._sockets, self._authority, self._stream, origin).serve()
            return
        context = await self._authority.context(host)
        with anyio.fail_after(_IDLE_SECONDS):
            inner = await TLSStream.wrap(self._stream, server_side=True, ssl_context=context, standard_compatible=False)
        async with inner:
            await _Connection(self._sockets, self._authority, inner, origin).serve()

    def _url(self, request: h11.Request) -> str:
        """The URL that is asked for.

        Raises:
            InvalidArguments: there is none, or another header contradicts it.
        """
        headers = dict(request.headers)
        target = request.target.decode("ascii")
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise InvalidArguments("the request has both Content-Length and Transfer-Encoding")
        if self._origin is not None:
            if not target.startswith("/"):
                raise InvalidArguments("the target of a request within a tunnel begins with /")
            origin, url = self._origin, f"{self._origin}{target}"
        else:
            try:
                parts = urlsplit(target)
                origin, url = _Origin(parts.scheme, parts.hostname or "", parts.port or 80), target
            except ValueError as error:
                raise InvalidArguments(f"the request is for no URL: {error}") from None
            if origin.scheme != "http":
                raise InvalidArguments("this is a proxy: it takes http:// URLs, and CONNECT for https://")
        try:
            told = _authority(headers.get(b"host", b"").decode("latin-1"), _PORTS[origin.scheme])
        except ValueError:
            raise InvalidArguments("the Host header is no host") from None
        if b"host" in headers and told != (origin.host.lower(), origin.port):
            raise InvalidArguments("the Host header names another host than the request is for")
        return url

    async def _body(self) -> AsyncIterator[bytes]:
        try:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            while True:
                with anyio.fail_after(_IDLE_SECONDS):
                    event = await self._event()
                if not isinstance(event, h11.Data):
                    return
                yield bytes(event.data)
        except h11.RemoteProtocolError as error:
            raise InvalidArguments(f"the body is not well formed: {error}") from None
        except _LOST as error:
            raise Cancelled("the command has ended the request") from error

    async def _read_rest(self) -> None:
        left = _DRAIN_BYTES
        with anyio.move_on_after(_DRAIN_SECONDS):
            while self._http.their_state is h11.SEND_BODY and left > 0:
                event = await self._event()
                left -= len(event.data) if isinstance(event, h11.Data) else 0

    async def _refuse(self, status: int, text: str) -> None:
        if self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        body = f"{text}\n".encode("utf-8", "replace")
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        await self._send(h11.Response(status_code=status, headers=headers, reason=_phrase(text)))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())
        await self._read_rest()

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                data = await self._stream.receive(_PIECE_BYTES)
            except anyio.EndOfStream:
                data = b""
            self._http.receive_data(data)
        return event

    async def _send(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            with anyio.fail_after(_IDLE_SECONDS):
                await self._stream.send(data)


def _asks_for_socket(request: h11.Request) -> bool:
    return dict(request.headers).get(b"upgrade", b"").strip().lower() == b"websocket"


def _authority(text: str, port: int | None) -> tuple[str, int]:
    """Host, in lower case, and port.

    Raises:
        ValueError: it is none, or has no port where there is no default.
    """
    parts = urlsplit(f"//{text}")
    found = parts.port if parts.port is not None else port
    if found is None or parts.netloc != text or parts.username is not None:
        raise ValueError("no authority")
    return (parts.hostname or "").lower(), found


def _size(request: h11.Request) -> tuple[int | None, bool]:
    """The size of the body, if it is told, and if there is one."""
    headers = dict(request.headers)
    if b"content-length" in headers:
        size = int(headers[b"content-length"])
        return size, size > 0
    return None, b"transfer-encoding" in headers


def _status(error: CorralError) -> int:
    if isinstance(error, InvalidArguments):
        return 400
    return 403 if isinstance(error, AccessDenied | CallBudgetExceeded) else 502


def _phrase(text: str) -> bytes:
    """A text as the reason of a status line, which some clients show instead of the body."""
    return "".join(each if " " <= each <= "~" else "?" for each in text[:300]).encode("ascii")
