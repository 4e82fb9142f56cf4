"""`tools` for a program that runs elsewhere, in Python 3.11 or later.

Calls made in one turn of the event loop are sent together, in HTTP requests whose form a transport defines. Requests
are made in threads, so that the token is renewed even while the program computes, and connections outlive event loops.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import math
import os
import selectors
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, IncompleteRead
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeGuard
from urllib.parse import urlsplit

from corral.guest.python.calls import CallLimits, Calls, PendingCall, Site, Tools
from corral.guest.python.failures import FAILURES, CorralError, failure_class
from corral.guest.python.values import Encoded

_MAX_BATCH_BYTES = 1_000_000
_CALLS_IN_FLIGHT = 128
_MAX_SMALL_REPLY = 65_536
"""Maximum bytes to read of a refusal, or of the reply to a renewal."""
_CHUNK_BYTES = 65_536
_CONNECT_SECONDS = 10.0
_RENEWAL_SECONDS = 10.0
_SILENCE_SECONDS = 60.0
"""Seconds of silence after which the bridge counts as dead. It sends an empty line every 15 seconds."""
_LOOK_SECONDS = 1.0
"""Seconds after which a thread that waits for a program to read checks again whether the program still can."""
_IDLE_SECONDS = 4.0
"""Seconds for which a connection is kept for the next request. uvicorn closes it after 5 seconds."""
_MAX_RENEWAL_SECONDS = 86_400.0
_NOT_RENEWED = frozenset({401, 403, 404})
"""HTTP statuses with which the host refuses to renew the token."""

Failure: TypeAlias = tuple[str, str, str, float | None]
"""Failure of a call: code, name, message, seconds until a retry."""
BridgeReply: TypeAlias = tuple[int, Failure | None, Any]
"""Reply to a call: its number, its failure, and its value, which can be `Items` or `ALONE`."""


class Items(list[Any]):
    """Items of a stream. A later reply to the same call ends the stream. The first reply with items opens it."""


ALONE = object()
"""Marker in place of a value: the call was not made, and has to be sent in a request of its own."""


class BridgeRequest(NamedTuple):
    """Request with calls; `path` is below the bridge's URL."""

    path: str
    body: bytes
    content_type: str = "application/json"


class ReplyReader(Protocol):
    """Reader of the reply to one request. Its methods raise `WrongReply` if it is malformed."""

    def feed(self, chunk: bytes, /) -> Iterable[BridgeReply]:
        """Reads the next part of a reply. Returns the replies to calls that it completes."""
        ...

    def end(self) -> Iterable[BridgeReply]:
        """Ends the reply. Returns the replies to calls that only the end completes."""
        ...


class Transport(Protocol):
    """Message format of a protocol."""

    batch_calls: int
    """Maximum number of calls in a request."""
    renewal_path: str
    """Path that returns `{"token"}` for the current token."""

    def encode(self, sequence: int, path: str, input: Encoded, /) -> bytes:
        """Encodes one call; `path` is the tool's path as JSON."""
        ...

    def request(self, calls: Iterable[bytes], /) -> BridgeRequest:
        """Makes a request from encoded calls."""
        ...

    def reader(self, sequences: Sequence[int], max_bytes: int, /) -> ReplyReader:
        """Makes the reader for the reply to a request with these calls."""
        ...

    def refusal(self, body: bytes, /) -> Failure:
        """Reads the failure of all calls from a reply whose status is not 200. Raises if it is malformed."""
        ...


class WrongReply(Exception):
    """The bridge breaks the protocol."""


class _Connect(Protocol):
    def __call__(
        self,
        url: str,
        token: str,
        tools: Iterable[str] = (),
        *,
        max_input_bytes: int = ...,
        max_output_bytes: int = ...,
    ) -> Connection: ...


class _MakeBridge(Protocol):
    def __call__(self, url: str, token: str, transport: Transport, max_output_bytes: int, /) -> Bridge: ...


class _ConnectFromEnvironment(Protocol):
    def __call__(self, tools: Iterable[str] = (), **options: int) -> Connection: ...


def bridge_transport(
    transport: Transport, make_bridge: _MakeBridge | None = None
) -> tuple[_Connect, _ConnectFromEnvironment]:
    """Makes the functions with which a program connects over a transport. Requests use HTTP/1.1 by default."""
    make_bridge = make_bridge or _HttpBridge

    def connect(
        url: str,
        token: str,
        tools: Iterable[str] = (),
        *,
        max_input_bytes: int = 1_000_000,
        max_output_bytes: int = 64_000_000,
    ) -> Connection:
        """Makes `tools` from a bridge's address and a token. Nothing is sent before the first call.

        `tools` are the names to list, `name` or `namespace.name`; other tools can be called too. `max_input_bytes`
        limits the input of a call, `max_output_bytes` a line of a reply.

        Raises:
            ValueError: `url` is not the http or https URL of a bridge, or there is no token.
        """
        return Connection(make_bridge(url, token, transport, max_output_bytes), tools, max_input_bytes)

    def connect_from_environment(tools: Iterable[str] = (), **options: int) -> Connection:
        """Like `connect`, with the address and the token from CORRAL_URL and CORRAL_TOKEN.

        Raises:
            ValueError: one of them is not set.
        """
        return connect(_variable("CORRAL_URL"), _variable("CORRAL_TOKEN"), tools, **options)

    return connect, connect_from_environment


def __getattr__(name: str) -> type[CorralError]:
    """Makes error classes of calls importable by name: RateLimited, ToolNotFound and so on."""
    if name in FAILURES:
        return failure_class(name)
    raise AttributeError(f"there is no {name} here")


class Connection:
    """`tools` for any number of event loops. `close`, or the end of a `with` block, ends pending work."""

    def __init__(self, bridge: Bridge, tools: Iterable[str], max_input_bytes: int) -> None:
        self._bridge = bridge
        self._calls = _Loops(bridge, max_input_bytes)
        self.tools = Tools(self._calls, tuple(tools))
        atexit.register(self.close)

    def close(self) -> None:
        """Makes pending and later calls fail. Idempotent."""
        atexit.unregister(self.close)
        self._bridge.close()
        while self._calls.unstarted:
            call, _ = self._calls.unstarted.popitem()
            _warn(call.not_awaited, call.site)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Loops:
    """Calls of all event loops, which are independent of each other."""

    def __init__(self, bridge: Bridge, max_input_bytes: int) -> None:
        self.unstarted: dict[PendingCall, None] = {}
        self._bridge = bridge
        self._limits = CallLimits(math.inf, _CALLS_IN_FLIGHT, max_input_bytes, plain=True)
        self._calls: dict[asyncio.AbstractEventLoop, Calls] = {}

    def start(self, tool: str, path: str, input: object, site: Site) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        calls = self._calls.get(loop)
        if calls is None:
            for other in [each for each in list(self._calls) if each.is_closed()]:
                self._calls.pop(other, None)
            calls = self._calls[loop] = _Turns(loop, self._bridge, self._limits).calls
        return calls.start(tool, path, input, site)


class _Turns:
    """Calls of one event loop. Those made in one turn are sent together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bridge: Bridge, limits: CallLimits) -> None:
        self.calls = Calls(self._add, self._tell, limits)
        self._readings: dict[int, Reading] = {}
        """Open streams by the number of their call."""
        self._loop = loop
        self._bridge = bridge
        self._batch: dict[int, bytes] = {}
        self._batch_bytes = 0

    def _add(self, sequence: int, path: str, input: Encoded, /) -> None:
        transport = self._bridge.transport
        call = transport.encode(sequence, path, input)
        size = len(call) + 1
        if len(self._batch) == transport.batch_calls or self._batch_bytes + size > _MAX_BATCH_BYTES:
            self._flush()
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch[sequence] = call
        self._batch_bytes += size

    def _flush(self) -> None:
        if not self._batch:
            return
        batch, self._batch, self._batch_bytes = self._batch, {}, 0
        self._send(batch)

    def _send(self, batch: dict[int, bytes]) -> None:
        try:
            threading.Thread(target=self._exchange, args=(batch,), name="corral", daemon=True).start()
        except RuntimeError as error:  # no more threads can be started
            for sequence in batch:
                self._loop.call_soon(self.calls.fail, sequence, *_bridge_error(str(error)))

    def _tell(self, message: Literal["credit", "cancel"], sequence: int, /) -> None:
        reading = self._readings.get(sequence)
        if reading is not None:
            reading.tell(message)

    def _exchange(self, unanswered: dict[int, bytes]) -> None:
        """Sends a batch, and settles its calls as their replies arrive. Runs in a thread of its own."""
        bridge = self._bridge
        reading = Reading()
        failure = _bridge_error(f"the bridge at {bridge.url} ended its reply without an answer to this call")
        try:
            request = bridge.transport.request(unanswered.values())
            reader = bridge.transport.reader(tuple(unanswered), bridge.max_output_bytes)
            with closing(bridge.replies(request, reader, reading)) as replies:
                for reply in replies:
                    if isinstance(reply[2], Items) and reply[0] in unanswered:
                        self._deliver(reading, reply[0], reply[2])
                    else:
                        self._settle(unanswered, reply)
        except Refused as refused:
            failure = refused.failure
        except Exception as error:
            failure = _bridge_error(
                "the connection to the bridge was closed"
                if bridge.closed
                else f"the bridge at {bridge.url} failed: {str(error) or type(error).__name__}"
            )
        for sequence in unanswered:
            if reading.cancelled:
                self._in_loop(self.calls.settle, sequence, None)
            else:
                self._in_loop(self.calls.fail, sequence, *failure)
            self._readings.pop(sequence, None)

    def _deliver(self, reading: Reading, sequence: int, items: list[Any]) -> None:
        """Passes items on, and waits until they are read. Meanwhile the connection fills up, so the tool waits."""
        self._readings[sequence] = reading
        reading.read.clear()
        if reading.cancelled:  # checked first, because the event would not be set again
            raise ConnectionAbortedError
        self._in_loop(self.calls.deliver, sequence, items, bool(items))
        while items and not reading.read.wait(_LOOK_SECONDS):
            if self._bridge.closed or self._loop.is_closed():
                raise ConnectionAbortedError

    def _settle(self, unanswered: dict[int, bytes], reply: BridgeReply) -> None:
        sequence, failure, value = reply
        call = unanswered.pop(sequence, None)
        if call is None:
            raise WrongReply("it answered a call that was not made")
        self._readings.pop(sequence, None)
        if value is ALONE:
            self._in_loop(self._send, {sequence: call})
        elif failure is None:
            self._in_loop(self.calls.settle, sequence, value)
        else:
            self._in_loop(self.calls.fail, sequence, *failure)

    def _in_loop(self, done: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so nothing waits any more
            self._loop.call_soon_threadsafe(done, *arguments)


class Reading:
    """Request whose reply can be a stream."""

    def __init__(self) -> None:
        self.stop: Callable[[], object] | None = None
        """Function that ends the reply while one arrives. Thread-safe."""
        self.cancelled = False
        """True once the program stops reading."""
        self.read = threading.Event()
        """Set while all delivered items have been read."""

    def tell(self, message: Literal["credit", "cancel"]) -> None:
        if message == "cancel":
            self.cancelled = True
            if (stop := self.stop) is not None:  # the reading thread may remove it at any moment
                stop()
        self.read.set()


class Refused(Exception):
    """The bridge refused a whole request."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


class Bridge:
    """Address of a bridge, with a token that is renewed in time. Thread-safe."""

    def __init__(self, url: str, token: str, transport: Transport, max_output_bytes: int) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or parts.query:
            raise ValueError("url: an http or https URL is required, without a user or a query")
        if not _is_token(token):
            raise ValueError("token: missing or invalid")
        self.url = url.rstrip("/")
        self.transport = transport
        self.max_output_bytes = max_output_bytes
        self.closed = False
        self.parts = parts
        self.token = token
        self._lock = threading.Lock()
        self._renewal: threading.Timer | None = None
        self._schedule_renewal()

    def close(self) -> None:
        """Ends pending work in other threads. Idempotent."""
        with self._lock:
            self.closed = True
            if self._renewal is not None:
                self._renewal.cancel()

    def replies(self, request: BridgeRequest, reader: ReplyReader, reading: Reading) -> Generator[BridgeReply]:
        """Yields the bridge's replies to the calls of a request.

        Raises:
            Refused: the bridge refused the request. WrongReply: the reader raised it.
            Exception: the connection or the server does not work.
        """
        raise NotImplementedError

    def fresh_token(self) -> str | None:
        """Requests a token; returns None if the host refuses to renew this one. Raises if the outcome is unknown."""
        raise NotImplementedError

    def _schedule_renewal(self) -> None:
        seconds = _seconds_to_renewal(self.token)
        with self._lock:
            if seconds is not None and not self.closed:
                self._renewal = threading.Timer(seconds, self._renew)
                self._renewal.daemon = True
                self._renewal.start()

    def _renew(self) -> None:
        token: str | None = self.token
        with suppress(Exception):  # the current token may still be valid, and the bridge may recover
            token = self.fresh_token()
            if _is_token(token):
                self.token = token
        if token is not None:
            self._schedule_renewal()


class _HttpBridge(Bridge):
    """Connections over HTTP/1.1."""

    def __init__(self, url: str, token: str, transport: Transport, max_output_bytes: int) -> None:
        super().__init__(url, token, transport, max_output_bytes)
        self._path = self.parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if self.parts.scheme == "https" else None
        self._idle: list[tuple[HTTPConnection, float]] = []
        self._busy: set[socket.socket] = set()

    def close(self) -> None:
        super().close()
        with self._lock:
            idle, self._idle = self._idle, []
            for each in self._busy:
                _shut(each)
        for connection, _ in idle:
            connection.close()

    def replies(self, request: BridgeRequest, reader: ReplyReader, reading: Reading) -> Generator[BridgeReply]:
        last = b""
        with self._request(request, _SILENCE_SECONDS, reading) as response:
            if response.status != 200:
                raise Refused(self._refusal(response, f"{self.url}{request.path}"))
            while response.length != 0 and (last := response.read1(_CHUNK_BYTES)):
                if response.length != 0:
                    yield from reader.feed(last)
            if response.length:
                raise IncompleteRead(b"", response.length)
        if last:
            yield from reader.feed(last)  # only now, when the connection is free for the next call
        yield from reader.end()

    def _refusal(self, response: HTTPResponse, url: str) -> Failure:
        """Returns the host's reason for refusing a whole request."""
        text = response.read(_MAX_SMALL_REPLY)
        try:
            return self.transport.refusal(text)
        except Exception:
            redirect = "; redirects are not followed" if 300 <= response.status < 400 else ""
            return _bridge_error(f"the bridge at {url} answered with the status {response.status}{redirect}")

    @contextmanager
    def _request(
        self, request: BridgeRequest, silence_seconds: float, reading: Reading | None = None
    ) -> Generator[HTTPResponse]:
        headers = {"authorization": f"Bearer {self.token}", "content-type": request.content_type}
        connection = self._take()
        line: socket.socket = connection.sock
        if reading is not None:
            reading.stop = lambda: _shut(line)
        reusable = False
        try:
            line.settimeout(silence_seconds)
            with suppress(BrokenPipeError, ConnectionResetError):  # the server may answer before it has read everything
                connection.request("POST", f"{self._path}{request.path}", request.body, headers)
            with connection.getresponse() as response:
                yield response
                reusable = (response.isclosed() or response.length == 0) and not response.will_close
        finally:
            if reading is not None:
                reading.stop = None
            with self._lock:
                self._busy.discard(line)
                if reusable and not self.closed:
                    self._idle.append((connection, time.monotonic()))
                else:
                    connection.close()

    def _take(self) -> HTTPConnection:
        """Returns an open connection and marks it as busy."""
        connection = self._take_idle() or self._connect()
        with self._lock:
            if self.closed:
                connection.close()
                raise ConnectionAbortedError
            self._busy.add(connection.sock)
        return connection

    def _take_idle(self) -> HTTPConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection, since = self._idle.pop()
            if time.monotonic() - since < _IDLE_SECONDS and not _is_readable(connection.sock):
                return connection
            connection.close()

    def _connect(self) -> HTTPConnection:
        address = (self.parts.hostname or "", self.parts.port)
        if self._tls is None:
            connection = HTTPConnection(*address, timeout=_CONNECT_SECONDS)
        else:
            connection = HTTPSConnection(*address, timeout=_CONNECT_SECONDS, context=self._tls)
        connection.connect()
        return connection

    def fresh_token(self) -> str | None:
        request = BridgeRequest(self.transport.renewal_path, b"{}")
        with self._request(request, _RENEWAL_SECONDS) as response:
            if response.status in _NOT_RENEWED:
                return None
            if response.status != 200:
                raise WrongReply
            return json.loads(response.read(_MAX_SMALL_REPLY))["token"]


def _shut(line: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(line, socket.SHUT_RDWR)  # also works for TLS, which a thread may be reading


def _bridge_error(message: str) -> Failure:
    return "bridge_error", "BridgeError", message, None


def _is_token(token: object) -> TypeGuard[str]:
    """True if a header can carry the token."""
    return isinstance(token, str) and token != "" and token.isascii() and token.isprintable()


def _is_readable(line: socket.socket) -> bool:
    """True if an idle connection is readable, which means that the server has closed it."""
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        return bool(selector.select(0))


def _seconds_to_renewal(token: str) -> float | None:
    """Returns half of a token's remaining lifetime, according to the token; None if it does not state that.

    At worst, a wrong clock on this machine makes the renewal too early.
    """
    try:
        text = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        life = float(claims["exp"] - claims["iat"])
        left = min(claims["exp"] - time.time(), life)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return min(max(left / 2, life / 10), _MAX_RENEWAL_SECONDS) if life > 0 else None


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ValueError(f"the environment variable {name} is not set")
    return value


def _warn(message: str, site: Site) -> None:
    """Warns about a call that was not awaited, at its line, as Python does for its own coroutines."""
    lines = [line for line, *_ in site.code.co_positions()]
    line = lines[site.instruction // 2] or site.code.co_firstlineno
    warnings.warn_explicit(message, RuntimeWarning, site.code.co_filename, line)
