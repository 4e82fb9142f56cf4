"""WebSockets of a program, as calls of the service `$socket`: `{"do": ..., "id": ...}`, where the program chooses the
number.

WebSockets of a shell's commands use the same classes. `open` opens one, `send` sends a message, `receive` returns the
next message or the end, `close` sends a closing frame, and `drop` ends it at once. Data from the server is read only
while the program waits for a message, so nothing queues up here.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio
import anyio.lowlevel
import h11
import httpcore
import httpx
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from corral.audit import Outcome
from corral.egress.client import host_of, objection_to
from corral.egress.connections import BoundedStream, GuardedBackend, SystemResolver
from corral.egress.exchanges import Exchanges, Hop, pairs, place_of
from corral.egress.policy import blocked, too_late
from corral.errors import (
    AccessDenied,
    CallBudgetExceeded,
    CorralError,
    ExecutionCancelled,
    InvalidArguments,
    ToolFailed,
)

_SCHEMES = {"ws": "http", "wss": "https"}
MESSAGE_BYTES = 1_000_000
"""Maximum size of a message, in either direction."""
_PIECE_BYTES = 4_096
"""Maximum bytes read at once. Frames can be tiny, and all those in a piece are parsed without yielding."""
FRAME_BYTES = 100
"""Bytes that a frame costs in addition to its own, for the time to parse it."""
_CLOSING_SECONDS = 5.0
"""Seconds for a server to answer a closing frame."""
_MOST_PROTOCOLS = 20
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = "sec-websocket-"
_T = TypeVar("_T")


class Sockets:
    """Open WebSockets of a program. They share the budgets of its requests."""

    def __init__(self, exchanges: Exchanges) -> None:
        self.exchanges = exchanges
        self._open: dict[int, Socket] = {}
        self._numbers = itertools.count()
        rules = exchanges.rules
        self.backend = GuardedBackend(rules.policy, rules.resolver or SystemResolver(2 * max(1, rules.websockets)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for socket in tuple(self._open.values()):
            await socket.aclose()

    async def answer(self, call: object) -> object:
        """Answers `$socket`."""
        match call:
            case {"do": "open", "id": int() as number, "url": str() as url, "protocols": list()}:
                members = cast("dict[str, Any]", call)
                names, headers = _protocols(members["protocols"]), pairs(members.get("headers", []))
                return await self._new(number).connect(url, names, headers)
            case {"do": "send", "id": int() as number, "data": str() | bytes() as data} if number in self._open:
                return await self._open[number].send(data)
            case {"do": "receive", "id": int() as number} if number in self._open:
                return await self._open[number].receive()
            case {"do": "close", "id": int() as number} if number in self._open:
                members = cast("dict[str, Any]", call)
                return await self._open[number].close(members.get("code"), members.get("reason"))
            case {"do": "drop", "id": int() as number} if number in self._open:
                return await self._open[number].aclose()
            case {"do": "send" | "close" | "drop", "id": int()}:
                return None  # it has ended
            case _:
                raise InvalidArguments("a WebSocket call is malformed, or the WebSocket is not open")

    def begin(self) -> Socket:
        """Begins a WebSocket under a number that the host chooses. Raises the errors of `Socket.connect`."""
        return self._new(next(self._numbers))

    def _new(self, number: int) -> Socket:
        most = self.exchanges.rules.websockets
        if number in self._open:
            raise InvalidArguments("a WebSocket with this number is already open")
        if len(self._open) >= most:
            raise CallBudgetExceeded(f"Network(websockets={most}) permits no further open WebSocket; close one first")
        socket = self._open[number] = Socket(self, number)
        return socket

    def forget(self, number: int) -> None:
        """Removes an ended WebSocket."""
        self._open.pop(number, None)


class Socket:
    """One WebSocket, from its opening to its end."""

    def __init__(self, owner: Sockets, number: int) -> None:
        self._owner = owner
        self._exchanges = owner.exchanges
        self._mask = owner.exchanges.rules.mask
        self._seconds = owner.exchanges.rules.policy.total_seconds
        self._number = number
        self._host = ""
        self._hop: Hop | None = None
        self._stream: httpcore.AsyncNetworkStream | None = None
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._turn, self._writing = anyio.Lock(), anyio.Lock()
        self._scopes: set[anyio.CancelScope] = set()
        self._reading: anyio.CancelScope | None = None
        self._closed_by = math.inf
        self._ended = False
        self._failure: CorralError | None = None
        """First error, which ended the WebSocket. All other waiting calls raise it too."""

    # --- calls of programs

    async def connect(self, url: str, protocols: list[str], headers: list[tuple[str, str]]) -> object:
        """Opens it, and returns the protocol chosen by the server.

        Raises:
            CorralError: it is not allowed, exceeds a budget, or failed.
        """
        return await self._guarded(lambda: self._connect(url, protocols, headers))

    async def send(self, data: str | bytes) -> None:
        """Sends a message."""
        await self._guarded(lambda: self._send(data))

    async def receive(self) -> object:
        """Returns the next message, or the code and reason of the end."""
        async with self._turn:
            return await self._guarded(self._receive)

    async def close(self, code: object, reason: object) -> None:
        """Sends a closing frame, after which `receive` returns the end. Drops a WebSocket that is not open yet."""
        event = CloseConnection(_code(code), reason if isinstance(reason, str) else None)
        if self._protocol.state is ConnectionState.CONNECTING:
            await self.aclose()
        elif self._protocol.state is ConnectionState.OPEN:
            self._closed_by = anyio.current_time() + _CLOSING_SECONDS
            if self._reading is not None:
                self._reading.deadline = min(self._reading.deadline, self._closed_by)
            await self._guarded(lambda: self._write(event))

    async def aclose(self) -> None:
        """Ends the WebSocket at once. Idempotent."""
        await self._end("succeeded" if self._stream is not None else "cancelled")

    # --- the handshake

    async def _connect(self, url: str, protocols: list[str], headers: list[tuple[str, str]]) -> object:
        exchanges = self._exchanges
        self._hop = Hop("GET", *place_of(url))
        exchanges.check_audit()
        request = self._request(url, headers)
        self._host = host = host_of(request)
        if (objection := objection_to(request, exchanges.rules.policy)) is not None:
            raise blocked(host, objection)
        exchanges.spend_request(request)
        self._hop.sent = True
        with anyio.CancelScope(deadline=anyio.current_time() + self._seconds):
            return {"protocol": await self._shake_hands(request, protocols)}
        raise too_late(host, exchanges.rules.policy)

    def _request(self, url: str, headers: list[tuple[str, str]]) -> httpx.Request:
        try:
            target = httpx.URL(url)
            if target.scheme not in _SCHEMES:
                raise InvalidArguments("the URL of a WebSocket must begin with ws: or wss:")
            kept = [pair for pair in headers if not pair[0].lower().startswith(_OWN_HEADERS)]
            return self._exchanges.build_request("GET", target.copy_with(scheme=_SCHEMES[target.scheme]), kept)
        except (httpx.InvalidURL, ValueError) as error:
            raise InvalidArguments(f"the URL or a header is malformed: {str(error)[:200]}") from error

    async def _shake_hands(self, request: httpx.Request, protocols: list[str]) -> str:
        url, host = request.url, self._host
        secure = url.scheme == "https"
        port = url.port or (443 if secure else 80)
        stream = await self._owner.backend.connect_tcp(host, port, self._seconds)
        self._stream = stream
        if secure:
            self._stream = stream = await stream.start_tls(self._exchanges.rules.tls, host, self._seconds)
        assert isinstance(stream, BoundedStream)
        own = [(name, value) for name, value in request.headers.raw if name.lower() not in {b"host", b"connection"}]
        place = url.netloc.decode("ascii")
        await stream.write(
            self._protocol.send(
                Request(host=place, target=url.raw_path.decode("ascii"), subprotocols=protocols, extra_headers=own)
            )
        )
        while True:
            data = await stream.read(_PIECE_BYTES)
            await anyio.lowlevel.checkpoint_if_cancelled()  # it may be ended just as data arrives
            self._protocol.receive_data(data or None)
            for event in self._protocol.events():
                match event:
                    case AcceptConnection():
                        assert self._hop is not None
                        self._hop.status = 101
                        self._stream = stream.switched()
                        return event.subprotocol or ""
                    case RejectConnection() | RejectData():
                        status = getattr(event, "status_code", 0)
                        raise self._failed(f"the server answered with status {status} instead of opening a WebSocket")
                    case _:
                        raise self._failed("the server did not open a WebSocket")

    # --- messages

    async def _send(self, data: str | bytes) -> None:
        size = len(data.encode("utf-8", "replace") if isinstance(data, str) else data)
        if size > MESSAGE_BYTES:
            raise InvalidArguments(f"a message has {size} bytes; the maximum is {MESSAGE_BYTES}")
        self._exchanges.spend_request_bytes(size)
        if self._protocol.state is ConnectionState.OPEN:
            await self._write(TextMessage(data) if isinstance(data, str) else BytesMessage(data))

    async def _receive(self) -> object:
        parts: list[str | bytes] = []
        size = 0
        while True:
            for event in self._protocol.events():
                self._exchanges.spend_response_bytes(FRAME_BYTES)
                match event:
                    case Ping():
                        await self._write(event.response())
                    case CloseConnection():
                        return await self._closed(event)
                    case TextMessage() | BytesMessage() if self._closed_by == math.inf:
                        message = cast("Message[str] | Message[bytes]", event)
                        size += len(message.data)
                        if size > MESSAGE_BYTES:
                            await self._write(CloseConnection(1009))
                            raise blocked(self._host, f"a message is larger than {MESSAGE_BYTES} bytes")
                        parts.append(message.data if isinstance(message.data, str) else bytes(message.data))
                        if message.message_finished:
                            return {"data": self._message(parts)}
                    case _:
                        pass
            data = await self._read()
            await anyio.lowlevel.checkpoint_if_cancelled()  # it may be ended just as data arrives
            if not data:
                raise self._failed("the server ended the connection without a closing frame")
            assert self._hop is not None
            self._hop.size += len(data)
            self._exchanges.spend_response_bytes(len(data))
            self._protocol.receive_data(data)

    def _message(self, parts: list[str | bytes]) -> str | bytes:
        if isinstance(parts[0], str):
            return self._mask.text("".join(cast("list[str]", parts)))
        return self._mask.data(b"".join(cast("list[bytes]", parts)))

    async def _closed(self, event: CloseConnection) -> object:
        """Handles the end: a close by the server, its answer to ours, or a protocol violation."""
        state = self._protocol.state
        if state in (ConnectionState.REMOTE_CLOSING, ConnectionState.OPEN):
            await self._write(event.response())
        if state is ConnectionState.OPEN:
            raise self._failed(f"the server sent an invalid WebSocket message: {event.reason}")
        await self._end("succeeded")
        return {"code": int(event.code), "reason": self._mask.text(event.reason or "")}

    # --- the connection

    async def _read(self) -> bytes:
        assert self._stream is not None
        deadline = min(anyio.current_time() + self._seconds, self._closed_by)
        with anyio.CancelScope(deadline=deadline) as self._reading:
            return await self._stream.read(_PIECE_BYTES)
        if self._closed_by < math.inf:
            raise self._failed(f"the server did not answer a closing frame in {_CLOSING_SECONDS:g} s")
        raise self._failed(f"the server was silent for longer than Network(seconds={self._seconds:g})")

    async def _write(self, event: Any) -> None:
        assert self._stream is not None
        data = self._protocol.send(event)
        with anyio.CancelScope(deadline=anyio.current_time() + self._seconds):
            async with self._writing:
                await self._stream.write(data)
                return
        raise self._failed(f"the server received no data for longer than Network(seconds={self._seconds:g})")

    async def _guarded(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Runs `work` until the WebSocket is closed. An error ends the WebSocket, and is recorded before the program
        gets it."""
        try:
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    if self._ended:
                        scope.cancel()
                    await anyio.lowlevel.checkpoint()
                    return await work()
                except (httpcore.NetworkError, httpcore.TimeoutException) as error:
                    raise self._failed(f"{type(error).__name__}: {str(error)[:200]}") from error
                except (ProtocolError, h11.ProtocolError, UnicodeError) as error:
                    raise self._failed(f"the server violates the WebSocket protocol: {str(error)[:200]}") from error
                finally:
                    self._scopes.discard(scope)
            raise self._failure or ExecutionCancelled("the WebSocket was closed")
        except BaseException as error:
            if isinstance(error, CorralError):
                self._failure = self._failure or error
            known = error if isinstance(error, CorralError) else None
            denied = isinstance(error, AccessDenied | CallBudgetExceeded)
            ended = known is None or isinstance(known, ExecutionCancelled)
            await self._end("denied" if denied else "cancelled" if ended else "failed", known)
            raise

    def _failed(self, reason: str) -> ToolFailed:
        return ToolFailed(f"the WebSocket to {self._host!r} failed: {self._mask.text(reason)}", outcome_known=False)

    async def _end(self, outcome: Outcome, error: CorralError | None = None) -> None:
        self._ended = True
        for scope in self._scopes:
            scope.cancel()
        hop, self._hop = self._hop, None
        stream, self._stream = self._stream, None
        with anyio.CancelScope(shield=True):
            if stream is not None:
                with anyio.move_on_after(1):
                    await stream.aclose()
            if hop is not None:
                await self._exchanges.record(hop, outcome, error)
            self._owner.forget(self._number)


def _protocols(protocols: list[object]) -> list[str]:
    names = [each for each in protocols[:_MOST_PROTOCOLS] if isinstance(each, str) and _TOKEN.fullmatch(each)]
    if len(names) < len(protocols):
        raise InvalidArguments(f"protocols must be at most {_MOST_PROTOCOLS} names, of letters, digits and marks")
    return names


def _code(code: object) -> int:
    if code is None or (isinstance(code, int) and (code == 1000 or 3000 <= code < 5000)):
        return code or 1000
    raise InvalidArguments("a close code must be 1000, or from 3000 to 4999")
