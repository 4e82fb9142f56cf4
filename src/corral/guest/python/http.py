"""`tools` for a program that runs elsewhere, in Python 3.11 or later: calls travel over HTTP to corral's bridge.

POST {url}/calls takes the calls of one turn of the event loop as JSON; its reply is a stream of lines, one for each
call in the order in which they end. POST {url}/token gives a fresh token for the one it is sent with.

Requests are made in threads: what a program computes between its calls does not keep the token from being renewed, and
connections outlive an event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import io
import json
import math
import os
import selectors
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, IncompleteRead
from types import TracebackType
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit

from corral.guest.python.calls import (
    FAILURES,
    CallLimits,
    Calls,
    CorralError,
    Site,
    ToolCall,
    Tools,
    failure_class,
)
from corral.guest.python.values import Encoded, revive

__all__ = ["Connection", "connect", "connect_from_environment"]

_MAX_BATCH_CALLS = 64
_MAX_BATCH_BYTES = 1_000_000
_CALLS_IN_FLIGHT = 128
_MAX_SMALL_REPLY = 65_536
"""More of the text of a refusal, or of a reply to a renewal, is not read."""
_CHUNK_BYTES = 65_536
_CONNECT_SECONDS = 10.0
_RENEWAL_SECONDS = 10.0
_SILENCE_SECONDS = 60.0
"""After so long without a word the bridge is taken for dead: it sends an empty line every 15 seconds."""
_IDLE_SECONDS = 4.0
"""Seconds that a connection is kept for the next request; uvicorn closes it after 5."""
_MAX_RENEWAL_SECONDS = 86_400.0
_NOT_RENEWED = frozenset({401, 403, 404})
"""With these, the host says that it will not renew the token."""

_MAX_NAME = 100
"""Characters of what an error is called."""

_Failure: TypeAlias = tuple[str, str, str, float | None]
"""Failure of a call: code, name, message, seconds until it may be made again."""


def connect(
    url: str,
    token: str,
    tools: Iterable[str] = (),
    *,
    max_input_bytes: int = 1_000_000,
    max_output_bytes: int = 64_000_000,
) -> Connection:
    """Makes `tools` out of a bridge's address and a token. Nothing is sent before the first call.

    `tools` are the names that are shown, `name` or `namespace.name`; others can be called too. `max_input_bytes` bounds
    the input of a call, `max_output_bytes` a line of a reply.

    Raises:
        ValueError: `url` is not the http or https URL of a bridge, or there is no token.
    """
    return Connection(_Bridge(url, token), tools, max_input_bytes, max_output_bytes)


def connect_from_environment(tools: Iterable[str] = (), **options: int) -> Connection:
    """The same with the address and the token that CORRAL_URL and CORRAL_TOKEN hold.

    Raises:
        ValueError: one of them is not set.
    """
    return connect(_variable("CORRAL_URL"), _variable("CORRAL_TOKEN"), tools, **options)


def __getattr__(name: str) -> type[CorralError]:
    """Error classes of calls can be imported by name: RateLimited, ToolNotFound and so on."""
    if name in FAILURES:
        return failure_class(name)
    raise AttributeError(f"there is no {name} here")


class Connection:
    """`tools`, for any number of event loops. `close`, or the end of a `with` block, ends what is under way."""

    def __init__(self, bridge: _Bridge, tools: Iterable[str], max_input_bytes: int, max_output_bytes: int) -> None:
        self._bridge = bridge
        self._calls = _Loops(bridge, max_input_bytes, max_output_bytes)
        self.tools = Tools(self._calls, tuple(tools))
        atexit.register(self.close)

    def close(self) -> None:
        """Calls that have no reply yet, and later ones, fail. Idempotent."""
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
    """The calls of all event loops. What becomes of one does not concern the others."""

    def __init__(self, bridge: _Bridge, max_input_bytes: int, max_output_bytes: int) -> None:
        self.unstarted: dict[ToolCall, None] = {}
        self._bridge = bridge
        self._limits = CallLimits(math.inf, _CALLS_IN_FLIGHT, max_input_bytes, plain=True)
        self._max_output_bytes = max_output_bytes
        self._calls: dict[asyncio.AbstractEventLoop, Calls] = {}

    def start(self, tool: str, path: str, input: object, site: Site) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        calls = self._calls.get(loop)
        if calls is None:
            for other in [each for each in list(self._calls) if each.is_closed()]:
                self._calls.pop(other, None)
            calls = self._calls[loop] = _Turns(loop, self._bridge, self._limits, self._max_output_bytes).calls
        return calls.start(tool, path, input, site)


class _Turns:
    """The calls of one event loop. Those of one of its turns leave together."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, bridge: _Bridge, limits: CallLimits, max_output_bytes: int
    ) -> None:
        self.calls = Calls(self._add, self._tell, limits)
        self._loop = loop
        self._bridge = bridge
        self._max_output_bytes = max_output_bytes
        self._batch: dict[int, bytes] = {}
        self._batch_bytes = 0

    def _add(self, sequence: int, path: str, input: Encoded, /) -> None:
        tagged = b',"tagged":true' if input.tagged else b""
        call = b'{"sequence":%d,"tool":%b,"input":%b%b}' % (sequence, path.encode(), input.text, tagged)
        size = len(call) + 1
        if len(self._batch) == _MAX_BATCH_CALLS or self._batch_bytes + size > _MAX_BATCH_BYTES:
            self._flush()
        if not self._batch:
            self._loop.call_soon(self._flush)
        self._batch[sequence] = call
        self._batch_bytes += size

    def _tell(self, told: str, sequence: int, /) -> None:
        """Nothing yet: the bridge sends lists."""

    def _flush(self) -> None:
        if not self._batch:
            return
        batch, self._batch, self._batch_bytes = self._batch, {}, 0
        try:
            threading.Thread(target=self._exchange, args=(batch,), name="corral", daemon=True).start()
        except RuntimeError as error:  # there can be no more threads
            for sequence in batch:
                self._loop.call_soon(self.calls.fail, sequence, *_bridge_error(str(error)))

    def _exchange(self, unanswered: dict[int, bytes]) -> None:
        """Sends a batch, and settles its calls as the lines of the reply come in. In a thread of its own."""
        bridge = self._bridge
        failure = _bridge_error(f"the bridge at {bridge.url} ended its reply without an answer to this call")
        try:
            body = b'{"calls":[%b]}' % b",".join(unanswered.values())
            with closing(bridge.lines("/calls", body, self._max_output_bytes)) as lines:
                for line in lines:
                    if line:  # an empty one keeps a slow connection from being taken for a dead one
                        self._settle(unanswered, line)
        except _Refused as refused:
            failure = refused.failure
        except Exception as error:
            failure = _bridge_error(
                "the connection to the bridge was closed"
                if bridge.closed
                else f"the bridge at {bridge.url} failed: {str(error) or type(error).__name__}"
            )
        for sequence in unanswered:
            self._in_loop(self.calls.fail, sequence, *failure)

    def _settle(self, unanswered: dict[int, bytes], line: bytes) -> None:
        sequence, failure, value = _read_reply(line)
        if unanswered.pop(sequence, None) is None:
            raise _WrongReply("it answered a call that was not asked")
        if failure is None:
            self._in_loop(self.calls.settle, sequence, value)
        else:
            self._in_loop(self.calls.fail, sequence, *failure)

    def _in_loop(self, done: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, so that nobody waits any more
            self._loop.call_soon_threadsafe(done, *arguments)


class _Refused(Exception):
    """The bridge did not take a request as a whole."""

    def __init__(self, failure: _Failure) -> None:
        super().__init__(failure)
        self.failure = failure


class _WrongReply(Exception):
    """The bridge breaks the protocol."""


class _Bridge:
    """A bridge's address, a token that is kept fresh, and connections. Any thread may use it."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or parts.query:
            raise ValueError("url: it has to be an http or https URL, without a user or a query")
        if not _is_token(token):
            raise ValueError("token: there is none")
        self.url = url.rstrip("/")
        self.closed = False
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._token = token
        self._lock = threading.Lock()
        self._idle: list[tuple[HTTPConnection, float]] = []
        self._busy: set[socket.socket] = set()
        self._renewal: threading.Timer | None = None
        self._schedule_renewal()

    def close(self) -> None:
        """Ends what is under way in other threads. Idempotent."""
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
            for each in self._busy:
                with suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)  # of TLS too, which a thread may be reading
            if self._renewal is not None:
                self._renewal.cancel()
        for connection, _ in idle:
            connection.close()

    def lines(self, path: str, body: bytes, max_bytes: int) -> Generator[bytes]:
        """The bridge's answer to a request, line by line.

        Raises:
            _Refused: the status is not 200.
            _WrongReply: a line is longer than `max_bytes`.
            OSError, HTTPException: the connection or the server does not work.
        """
        with self._request(path, body, _SILENCE_SECONDS) as response:
            if response.status != 200:
                raise _Refused(_read_refusal(response, f"{self.url}{path}"))
            if response.length is None or response.length > _MAX_SMALL_REPLY:
                yield from _lines(response, max_bytes)
                if response.length:
                    raise IncompleteRead(b"", response.length)
                return
            text = response.read()
        yield from _lines(io.BytesIO(text), max_bytes)  # by now the connection is free for the next call

    @contextmanager
    def _request(self, path: str, body: bytes, silence_seconds: float) -> Generator[HTTPResponse]:
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        connection = self._take()
        line: socket.socket = connection.sock
        reusable = False
        try:
            line.settimeout(silence_seconds)
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before it read everything
                connection.request("POST", f"{self._path}{path}", body, headers)
            with connection.getresponse() as response:
                yield response
                reusable = (response.isclosed() or response.length == 0) and not response.will_close
        finally:
            with self._lock:
                self._busy.discard(line)
                if reusable and not self.closed:
                    self._idle.append((connection, time.monotonic()))
                else:
                    connection.close()

    def _take(self) -> HTTPConnection:
        """A connection that is open; from now on it is busy."""
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
        address = (self._host, self._port)
        if self._tls is None:
            connection = HTTPConnection(*address, timeout=_CONNECT_SECONDS)
        else:
            connection = HTTPSConnection(*address, timeout=_CONNECT_SECONDS, context=self._tls)
        connection.connect()
        return connection

    def _schedule_renewal(self) -> None:
        seconds = _seconds_to_renewal(self._token)
        with self._lock:
            if seconds is not None and not self.closed:
                self._renewal = threading.Timer(seconds, self._renew)
                self._renewal.daemon = True
                self._renewal.start()

    def _renew(self) -> None:
        status = 0
        with (  # the token that is there may still be good, and the bridge may be back the next time
            suppress(Exception),
            self._request("/token", b"{}", _RENEWAL_SECONDS) as response,
        ):
            status = response.status
            token = json.loads(response.read(_MAX_SMALL_REPLY))["token"]
            if status == 200 and _is_token(token):
                self._token = token
        if status not in _NOT_RENEWED:
            self._schedule_renewal()


def _lines(source: io.BufferedIOBase, max_bytes: int) -> Generator[bytes]:
    """Text after the last line end is no line."""
    parts: list[bytes] = []
    length = 0
    while chunk := source.read1(_CHUNK_BYTES):
        first, *others = chunk.split(b"\n")
        parts.append(first)
        length += len(first)
        if length > max_bytes:
            raise _WrongReply(f"a line of its reply is longer than {max_bytes} bytes")
        if others:
            yield b"".join(parts)
            yield from others[:-1]
            parts = [others[-1]]
            length = len(others[-1])


def _read_reply(line: bytes) -> tuple[int, _Failure | None, Any]:
    """The number of a call, why it failed, its value."""
    try:
        reply: dict[str, Any] = dict(json.loads(line.decode()))
        sequence: object = reply.get("sequence")
        failure = _read_failure(reply["error"]) if "error" in reply else None
        value = reply.get("value")
        return (
            sequence if type(sequence) is int else -1,
            failure,
            revive(value) if reply.get("tagged") is True else value,
        )
    except Exception:
        raise _WrongReply("it sent a line that is not a reply") from None


def _read_failure(error: dict[str, Any]) -> _Failure:
    code, name, message, seconds = (error.get(key) for key in ("code", "name", "message", "retryAfterSeconds"))
    if not (isinstance(code, str) and isinstance(message, str) and isinstance(name, str)):
        raise TypeError("an error has a code, a name and a message")
    if not name.isidentifier() or len(name) > _MAX_NAME:
        raise ValueError("an error is called as a class is")
    return code, name, message, seconds if isinstance(seconds, int | float) else None


def _read_refusal(response: HTTPResponse, url: str) -> _Failure:
    """The host's reason for refusing a whole request."""
    text = response.read(_MAX_SMALL_REPLY)
    try:
        return _read_failure(json.loads(text)["error"])
    except Exception:
        redirect = "; redirects are not followed" if 300 <= response.status < 400 else ""
        return _bridge_error(f"the bridge at {url} answered with the status {response.status}{redirect}")


def _bridge_error(message: str) -> _Failure:
    return "bridge_error", "BridgeError", message, None


def _is_token(token: object) -> bool:
    """True if a header can carry it."""
    return isinstance(token, str) and token != "" and token.isascii() and token.isprintable()


def _is_readable(line: socket.socket) -> bool:
    """True if an idle connection is readable, which means that it ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        return bool(selector.select(0))


def _seconds_to_renewal(token: str) -> float | None:
    """Half of what is left of a token's life, by what it says of itself; None if it does not say how long that is.

    A clock that is wrong here makes that too early at worst.
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
    """Of a call that nobody awaited, at the line where it was made, as Python does of its own coroutines."""
    lines = [line for line, *_ in site.code.co_positions()]
    line = lines[site.instruction // 2] or site.code.co_firstlineno
    warnings.warn_explicit(message, RuntimeWarning, site.code.co_filename, line)
