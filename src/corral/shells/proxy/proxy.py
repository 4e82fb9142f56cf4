"""HTTP/1.1 proxy for commands: requests with absolute URLs, and tunnels whose TLS ends here.

Each request goes through `Exchanges`, like a program's. Input is untrusted.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import anyio
import h11
import httpx
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, Request, TextMessage
from wsproto.events import Event as Frame
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from corral.audit import AuditLog
from corral.concurrency.task_groups import plain_task_group
from corral.egress.exchanges import Caller, Exchange, Exchanges
from corral.egress.sockets import FRAME_BYTES, MESSAGE_BYTES, Socket, Sockets
from corral.errors import AccessDenied, CallBudgetExceeded, CorralError, ExecutionCancelled, InvalidArguments
from corral.logs import get_logger

_DAYS = 365
_KEPT = 64
"""Maximum number of hosts whose certificates are cached."""


class Authority:
    """Signs certificates for hosts. Its keys exist only in this process's memory."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._host_key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Session of corral")])
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, SHA256())
        )
        self.certificate = certificate.public_bytes(Encoding.PEM)
        """Certificate of the authority itself, as PEM."""
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    async def context(self, host: str) -> ssl.SSLContext:
        """Returns a TLS server context for a host: a name or an address."""
        if host not in self._contexts:
            self._contexts[host] = await anyio.to_thread.run_sync(self._made, host)
            while len(self._contexts) > _KEPT:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(host)
        return self._contexts[host]

    def _made(self, host: str) -> ssl.SSLContext:
        try:
            name: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        certificate = (
            self._builder(x509.Name([]), self._host_key)
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, SHA256())
        )
        key = self._host_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        # The ssl module only reads files, so this is an anonymous one in memory.
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(key + certificate.public_bytes(Encoding.PEM))
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder(issuer_name=self._name, subject_name=subject, public_key=key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=_DAYS))
            .add_extension(identifier, critical=False)
            .add_extension(issuer, critical=False)
        )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


logger = get_logger("corral.egress")

_CONNECTIONS = 64
"""Maximum number of simultaneous connections. Further ones wait in the kernel's queue of the listener."""
_HEAD_BYTES = 64_000
_PIECE_BYTES = 16_384
_IDLE_SECONDS = 30.0
"""Seconds for a whole head to arrive, and for each piece of a body to arrive or be sent."""
_DRAIN_SECONDS = 1.0
_DRAIN_BYTES = 1_000_000
"""Bytes of a refused request that are still read, so that its sender gets to read the reason."""
_PORTS = {"http": 80, "https": 443}
_LOST = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
    OSError,
    TimeoutError,
    ExecutionCancelled,
)


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
    """Serves connections to the listener. All of them end with the block.

    Yields the certificate of the authority that clients must trust, as PEM.
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
        except OSError:  # the client has left, or no descriptors are left
            await anyio.sleep(0.05)
            continue
        accepted.setblocking(False)
        return accepted


class _Connection:
    """Connection of a command, or the inside of its tunnel to `origin`."""

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
        """Answers requests until one side closes."""
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
            await self._refuse(error.error_status_hint, f"malformed request: {error}")

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
            except ExecutionCancelled:
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
                raise InvalidArguments("data was sent before the WebSocket was open; wait for the server's answer")
            await _ProxySocket(self._sockets.exchanges, self._stream, request.headers.raw_items()).serve(
                self._sockets, url
            )
        except ExecutionCancelled:
            raise
        except CorralError as error:
            await self._refuse(_status(error), str(error))

    async def _relay(self, exchange: Exchange, response: httpx.Response, *, head: bool) -> None:
        coding = response.headers.encoding
        headers = [(name.encode(coding), value.encode(coding, "replace")) for name, value in exchange.shown_headers]
        size = response.headers.get("content-length")
        if size is not None and response.status_code != 204 and (head or not self._exchanges.rules.mask):
            headers.append((b"content-length", size.encode("ascii")))  # masking would change the size
        reason = self._exchanges.rules.mask.text(response.reason_phrase)
        await self._send(h11.Response(status_code=response.status_code, headers=headers, reason=_phrase(reason)))
        done = False
        while not done:
            try:
                data, done = await exchange.read()
            except CorralError as error:  # the head has been sent, so the body just breaks off
                raise ExecutionCancelled(str(error)) from error
            if data:
                await self._send(h11.Data(data=data))
        await self._send(h11.EndOfMessage())

    async def _tunnel(self, request: h11.Request) -> None:
        """Becomes the server at the end of a tunnel that a client requests."""
        try:
            host, port = _authority(request.target.decode("ascii"), None)
        except ValueError:
            await self._refuse(400, "CONNECT must be followed by a host and a port")
            return
        policy = self._exchanges.rules.policy
        schemes = [each for each in _PORTS if policy.objection(each, host, port) is None]
        if not schemes:
            try:
                await self._exchanges.begin().send("CONNECT", str(_Origin("https", host, port)), [], follow=False)
            except CorralError as error:
                await self._refuse(_status(error), str(error))
            return
        await self._send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        if self._http.trailing_data[0]:
            return  # the client has not waited for the answer
        origin = _Origin("https" if "https" in schemes else "http", host, port)
        if origin.scheme == "http":
            await _Connection(self._sockets, self._authority, self._stream, origin).serve()
            return
        context = await self._authority.context(host)
        with anyio.fail_after(_IDLE_SECONDS):
            inner = await TLSStream.wrap(self._stream, server_side=True, ssl_context=context, standard_compatible=False)
        async with inner:
            await _Connection(self._sockets, self._authority, inner, origin).serve()

    def _url(self, request: h11.Request) -> str:
        """Returns the requested URL.

        Raises:
            InvalidArguments: the URL is missing or invalid, or a header contradicts it.
        """
        headers = dict(request.headers)
        target = request.target.decode("ascii")
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise InvalidArguments("the request has both Content-Length and Transfer-Encoding")
        if self._origin is not None:
            if not target.startswith("/"):
                raise InvalidArguments("the target of a request within a tunnel must begin with /")
            origin, url = self._origin, f"{self._origin}{target}"
        else:
            try:
                parts = urlsplit(target)
                origin, url = _Origin(parts.scheme, parts.hostname or "", parts.port or 80), target
            except ValueError as error:
                raise InvalidArguments(f"the request's target is not a URL: {error}") from None
            if origin.scheme != "http":
                raise InvalidArguments("this is a proxy: it only accepts http:// URLs, and CONNECT for https://")
        try:
            named_origin = _authority(headers.get(b"host", b"").decode("latin-1"), _PORTS[origin.scheme])
        except ValueError:
            raise InvalidArguments("the Host header is not a valid host") from None
        if b"host" in headers and named_origin != (origin.host.lower(), origin.port):
            raise InvalidArguments("the Host header does not match the request's host")
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
            raise InvalidArguments(f"malformed body: {error}") from None
        except _LOST as error:
            raise ExecutionCancelled("the command has ended the request") from error

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
    """Returns the host, in lower case, and the port.

    Raises:
        ValueError: the text is not an authority, or has no port and there is no default.
    """
    parts = urlsplit(f"//{text}")
    port = parts.port if parts.port is not None else port
    if port is None or parts.netloc != text or parts.username is not None:
        raise ValueError("no authority")
    return (parts.hostname or "").lower(), port


def _size(request: h11.Request) -> tuple[int | None, bool]:
    """Returns the size of the body, if declared, and True if there is a body."""
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
    """Makes a reason phrase for a status line, which some clients show instead of the body."""
    return "".join(each if " " <= each <= "~" else "?" for each in text[:300]).encode("ascii")


_SOCKET_BYTES = 4_096
_TAKEN_SECONDS = 30.0
"""Seconds for the command to accept a message."""
_CLOSING_SECONDS = 5.0
"""Seconds for the command to answer a closing frame. Its remaining messages are read meanwhile, so that it reads
ours."""
_REASON_BYTES = 123
"""Maximum bytes of the reason in a closing frame (RFC 6455, 5.5)."""
_NORMAL, _BREACH, _POLICY, _TOO_BIG, _FAILED = 1000, 1002, 1008, 1009, 1011


class _ProxySocket:
    """WebSocket of a command, from its request on.

    Raises:
        InvalidArguments: the request violates RFC 6455.
    """

    def __init__(self, exchanges: Exchanges, stream: ByteStream, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._exchanges = exchanges
        self._stream = stream
        self._protocol = WSConnection(ConnectionType.SERVER)
        self._writing = anyio.Lock()
        self._headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
        self._reading = anyio.CancelScope()
        self._parts: list[str | bytes] = []
        self._size = 0
        try:
            self._protocol.initiate_upgrade_connection([*headers], "/")
            request = next(self._protocol.events())
        except (RemoteProtocolError, UnicodeError) as error:
            raise InvalidArguments(f"malformed WebSocket request: {error}") from None
        assert isinstance(request, Request)
        self._subprotocols = request.subprotocols

    async def serve(self, sockets: Sockets, url: str) -> None:
        """Opens the requested WebSocket, given its http URL, and forwards messages until it ends.

        Raises:
            CorralError: the WebSocket is not allowed, exceeds a budget, or failed. The command has not been answered
                yet.
        """
        upstream = sockets.begin()
        try:
            opened = await upstream.connect(f"ws{url.removeprefix('http')}", self._subprotocols, self._headers)
            chosen = cast("dict[str, str]", opened)["protocol"]
            await self._write(AcceptConnection(subprotocol=chosen or None))
            async with plain_task_group() as tasks:
                tasks.start_soon(self._pass_down, upstream)
                with self._reading:
                    await self._pass_up(upstream)
                with anyio.CancelScope(shield=True):
                    await upstream.aclose()  # ends the other task
        finally:
            with anyio.CancelScope(shield=True):
                await upstream.aclose()

    async def _pass_up(self, upstream: Socket) -> None:
        """Forwards the command's messages until it closes or ends."""
        while data := await self._received():
            try:
                self._protocol.receive_data(data)
                for event in self._protocol.events():
                    if self._protocol.state is ConnectionState.LOCAL_CLOSING:
                        continue
                    self._exchanges.spend_request_bytes(FRAME_BYTES)
                    await self._take(event, upstream)
            except RemoteProtocolError as error:
                await self._close(_BREACH, str(error))
            except CorralError as error:
                await self._give_up(error)
            if self._protocol.state is ConnectionState.CLOSED:
                return

    async def _received(self) -> bytes:
        try:
            return await self._stream.receive(_SOCKET_BYTES)
        except anyio.EndOfStream:
            return b""

    async def _take(self, event: Frame, upstream: Socket) -> None:
        match event:
            case TextMessage() | BytesMessage():
                message = cast("Message[str] | Message[bytes]", event)
                self._size += len(message.data)
                if self._size > MESSAGE_BYTES:
                    await self._close(_TOO_BIG, f"a message is larger than {MESSAGE_BYTES} bytes")
                    return
                self._parts.append(message.data if isinstance(message.data, str) else bytes(message.data))
                if message.message_finished:
                    whole, self._parts, self._size = _joined(self._parts), [], 0
                    await upstream.send(whole)
            case Ping():
                await self._write(event.response())
            case CloseConnection() if self._protocol.state is ConnectionState.REMOTE_CLOSING:
                await self._write(event.response())
                await upstream.close(_sendable(int(event.code)), event.reason)
            case CloseConnection() if self._protocol.state is ConnectionState.OPEN:  # a protocol violation, by wsproto
                await self._close(_BREACH, event.reason or "")
            case _:
                pass

    async def _pass_down(self, upstream: Socket) -> None:
        """Forwards the server's messages to the command until the server closes, then closes the command's side."""
        try:
            while True:
                match await upstream.receive():
                    case {"data": str() as text}:
                        await self._write(TextMessage(text))
                    case {"data": bytes() as data}:
                        await self._write(BytesMessage(data))
                    case {"code": int() as code, "reason": str() as reason}:
                        await self._close(_sendable(code), reason)
                        return
                    case _:
                        return
        except CorralError as error:
            await self._give_up(error)

    async def _give_up(self, error: CorralError) -> None:
        denied = isinstance(error, AccessDenied | CallBudgetExceeded)
        await self._close(_POLICY if denied else _FAILED, str(error))

    async def _close(self, code: int, reason: str) -> None:
        short = reason.encode("utf-8", "replace")[:_REASON_BYTES].decode("utf-8", "ignore")
        self._reading.deadline = anyio.current_time() + _CLOSING_SECONDS
        with suppress(LocalProtocolError):  # the WebSocket is already closing
            await self._write(CloseConnection(code, short))

    async def _write(self, event: Frame) -> None:
        async with self._writing:
            data = self._protocol.send(event)
            with anyio.fail_after(_TAKEN_SECONDS):
                await self._stream.send(data)


def _joined(parts: Sequence[str | bytes]) -> str | bytes:
    if isinstance(parts[0], str):
        return "".join(cast("Sequence[str]", parts))
    return b"".join(cast("Sequence[bytes]", parts))


def _sendable(code: int) -> int:
    """Returns a code that can be sent, unlike reserved ones such as 1005."""
    return code if code == _NORMAL or 3000 <= code < 5000 else _NORMAL
