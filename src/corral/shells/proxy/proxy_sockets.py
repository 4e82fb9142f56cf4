"""WebSockets of commands: the proxy is their server, and a client of the requested one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import anyio
from anyio.abc import ByteStream
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Message, Ping, Request, TextMessage
from wsproto.events import Event as Frame
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from corral.concurrency.task_groups import plain_task_group
from corral.egress.exchanges import Exchanges
from corral.egress.sockets import FRAME_BYTES, MESSAGE_BYTES, Socket, Sockets
from corral.errors import AccessDenied, CallBudgetExceeded, CorralError, InvalidArguments

_PIECE_BYTES = 4_096
_TAKEN_SECONDS = 30.0
"""Time for the command to take a message."""
_CLOSING_SECONDS = 5.0
"""Time for the command to answer a closing frame. Its remaining messages are read, so that it reads ours."""
_REASON_BYTES = 123
"""Maximum in a closing frame (RFC 6455, 5.5)."""
_NORMAL, _BREACH, _POLICY, _TOO_BIG, _FAILED = 1000, 1002, 1008, 1009, 1011


class ProxySocket:
    """A WebSocket of a command, from its request on.

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
        """Opens the requested WebSocket, by its http URL, and forwards messages until its end.

        Raises:
            CorralError: it is not allowed, exceeds a budget, or failed. The command has not been answered.
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
            return await self._stream.receive(_PIECE_BYTES)
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
        """Forwards the server's messages to the command until the server closes; then closes the command's side."""
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
        with suppress(LocalProtocolError):  # it is closing already
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
    """Returns a code that may be sent: 1005 and others are reserved."""
    return code if code == _NORMAL or 3000 <= code < 5000 else _NORMAL
