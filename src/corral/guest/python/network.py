"""HTTP for Python's libraries without sockets: a request is one call to the host's service `$http`.

`http.client`, `urllib3` and `httpcore` get a connection that collects a request, and reads its response in pieces. The
host parses both, checks the request, and adds secrets that the program must not see. Modules are patched when they are
loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.abc
import importlib.machinery
import io
import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from types import ModuleType
from typing import Any

from corral.guest.python.calls import Calls
from corral.guest.python.errors import network, packages
from corral.guest.python.loop import GuestLoop

_SERVICE = "$http"
_SENT_BYTES = 262_144
"""Maximum bytes of a request in one call. Longer ones are sent in several calls."""
_NO_SOCKETS = (
    "programs have no sockets: use urllib, requests or httpx, for the origins of Network(allow=[...]); "
    "WebSockets are available only to programs in TypeScript"
)
_numbers = itertools.count(1)


class _Asker:
    """Calls the host, whether or not an event loop is running."""

    def __init__(self, calls: Calls, loop: asyncio.AbstractEventLoop, *, durable: bool) -> None:
        self._calls = calls
        self._durable = durable
        self._loop = loop
        self._turn = threading.RLock()
        self._postponed: deque[object] = deque()

    def postpone(self, request: object) -> None:
        """Queues a request to send before the next one. Its reply is ignored.

        A finalizer can run at any moment, even during another request, so it must not send one itself. In a durable
        execution, calls must not depend on that moment, so connections end with the program.
        """
        if not self._durable:
            self._postponed.append(request)

    def _take_postponed(self) -> Generator[object]:
        with contextlib.suppress(IndexError):
            while True:
                yield self._postponed.popleft()

    async def ask(self, request: object) -> Any:
        for each in self._take_postponed():
            with contextlib.suppress(Exception):
                await self._calls.service(_SERVICE, each)
        return await self._calls.service(_SERVICE, request)

    def ask_now(self, request: object) -> Any:
        """Waits for the reply, in any thread. Other tasks of the loop do not run meanwhile."""
        for each in self._take_postponed():
            with contextlib.suppress(Exception):
                self._ask_now(each)
        return self._ask_now(request)

    def _ask_now(self, request: object) -> Any:
        running = next((each for each in list(GuestLoop.loops) if each.is_running()), None)
        if running is not None and threading.current_thread() is not threading.main_thread():
            return asyncio.run_coroutine_threadsafe(self.ask(request), running).result()
        with self._turn:
            future = self._calls.service(_SERVICE, request, loop=running or self._loop)
            source = GuestLoop.source
            while not future.done():
                source.flush()
                source.receive()
        return future.result()


class _Line:
    """Connection, in the form that libraries expect."""

    def __init__(self, asker: _Asker, host: str, port: int, *, tls: bool = False) -> None:
        self._asker = asker
        self.host, self.port, self.tls = host, port, tls
        self._out, self._into = bytearray(), bytearray()
        self._number = 0
        self._done = False

    def sendall(self, data: Any, *_: Any) -> None:
        if self._number:  # another request, after the previous response was read
            self.finish()
            self._number, self._done = 0, False
            self._into.clear()
        self._out += data

    def send(self, data: Any, *_: Any) -> int:
        self.sendall(data)
        return len(data)

    def _steps(self) -> Generator[object, Any, None]:
        """Yields the calls that fetch the next piece of the response."""
        if self._number == 0:
            self._number = next(_numbers)
            raw = bytes(self._out)
            self._out.clear()
            while len(raw) > _SENT_BYTES:
                yield {"do": "write", "id": self._number, "data": raw[:_SENT_BYTES]}
                raw = raw[_SENT_BYTES:]
            place = {"host": self.host, "port": self.port, "tls": self.tls}
            answer = yield {"do": "open", "id": self._number, "raw": raw, **place}
        else:
            answer = yield {"do": "read", "id": self._number}
        self._into += answer["data"]
        self._done = answer["done"]

    def _taken(self, size: int) -> bytes:
        data = bytes(self._into[:size])
        del self._into[:size]
        return data

    def recv(self, size: int, *_: Any) -> bytes:
        while not self._into and not self._done:
            steps = self._steps()
            request = next(steps)
            while request is not None:
                request = _next_step(steps, self._asker.ask_now(request))
        return self._taken(size)

    async def receive(self, size: int) -> bytes:
        while not self._into and not self._done:
            steps = self._steps()
            request = next(steps)
            while request is not None:
                request = _next_step(steps, await self._asker.ask(request))
        return self._taken(size)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self))

    @property
    def is_unread(self) -> bool:
        return bool(self._number) and not self._done

    def close_request(self) -> object:
        self._done = True
        return {"do": "close", "id": self._number}

    def close(self) -> None:
        """Does nothing, because a response can still be read after its connection is closed."""

    def finish(self) -> None:
        """Ends a partly read response, before the next request at the latest."""
        if self.is_unread:
            self._asker.postpone(self.close_request())

    def _nothing(self, *_: Any) -> None:
        """Ignores socket options, which have no meaning here."""

    shutdown = setsockopt = settimeout = setblocking = gettimeout = _nothing

    def fileno(self) -> int:
        return -1

    def getpeername(self) -> tuple[str, int]:
        return self.host, self.port


def _next_step(steps: Generator[object, Any, None], answer: Any) -> object:
    try:
        return steps.send(answer)
    except StopIteration:
        return None


class _Incoming(io.RawIOBase):
    """Bytes received over a connection."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self._line = line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._line.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._line.finish()
        super().close()


def _change_http_client(module: Any, asker: _Asker) -> None:
    def connect(self: Any) -> None:
        if getattr(self, "_tunnel_host", None):
            raise OSError("proxies are not supported: leave out set_tunnel()")
        self.sock = _Line(asker, self.host, self.port, tls=isinstance(self, module.HTTPSConnection))

    module.HTTPConnection.connect = module.HTTPSConnection.connect = connect


def _change_urllib3(module: Any, asker: _Asker) -> None:
    def connect(self: Any) -> None:
        if self.proxy is not None:
            raise OSError("proxies are not supported: leave out the proxy")
        self.sock = _Line(asker, self.host, self.port, tls=isinstance(self, module.HTTPSConnection))
        self.is_verified = True  # by the host

    module.HTTPConnection.connect = module.HTTPSConnection.connect = connect
    module.HTTPConnection.is_connected = property(lambda self: self.sock is not None)


def _change_httpcore(module: Any, asker: _Asker) -> None:
    class Stream(module.NetworkStream):
        def __init__(self, line: _Line) -> None:
            self.line = line

        def read(self, max_bytes: int, *_: Any, **__: Any) -> bytes:
            return self.line.recv(max_bytes)

        def write(self, buffer: bytes, *_: Any, **__: Any) -> None:
            self.line.sendall(buffer)

        def close(self) -> None:
            self.line.finish()

        def start_tls(self, *_: Any, **__: Any) -> Any:
            self.line.tls = True
            return self

        def get_extra_info(self, _info: str) -> Any:
            return None

    def connect_tcp(_self: Any, host: str, port: int, *_: Any, **__: Any) -> Any:
        return Stream(_Line(asker, host, port))

    module.SyncBackend.connect_tcp = connect_tcp


def _change_async_httpcore(module: Any, asker: _Asker) -> None:
    class Stream(module.AsyncNetworkStream):
        def __init__(self, line: _Line) -> None:
            self.line = line

        async def read(self, max_bytes: int, *_: Any, **__: Any) -> bytes:
            return await self.line.receive(max_bytes)

        async def write(self, buffer: bytes, *_: Any, **__: Any) -> None:
            self.line.sendall(buffer)

        async def aclose(self) -> None:
            if self.line.is_unread:
                await asker.ask(self.line.close_request())

        async def start_tls(self, *_: Any, **__: Any) -> Any:
            self.line.tls = True
            return self

        def get_extra_info(self, _info: str) -> Any:
            return None

    async def connect_tcp(_self: Any, host: str, port: int, *_: Any, **__: Any) -> Any:
        return Stream(_Line(asker, host, port))

    module.AutoBackend.connect_tcp = connect_tcp


def _change_socket(module: Any, _: _Asker) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(_NO_SOCKETS)

    module.create_connection = module.getaddrinfo = refuse


async def _refuse_connection(*_: Any, **__: Any) -> Any:
    raise OSError(_NO_SOCKETS)


_CHANGES: dict[str, Callable[[Any, _Asker], None]] = {
    "http.client": _change_http_client,
    "socket": _change_socket,
    "urllib3.connection": _change_urllib3,
    "httpcore._backends.sync": _change_httpcore,
    "httpcore._backends.auto": _change_async_httpcore,
}


class _Changes(importlib.abc.MetaPathFinder):
    """Patches modules when they are loaded."""

    def __init__(self, asker: _Asker) -> None:
        self._asker = asker

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = _CHANGES.get(fullname)
        spec = None if change is None else importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if change is None or spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            change(module, self._asker)

        loader.exec_module = exec_module
        return spec


def install_network(calls: Calls, loop: asyncio.AbstractEventLoop, *, durable: bool) -> None:
    """Enables the program's network access."""
    asker = _Asker(calls, loop, durable=durable)
    network[:] = ["`urllib.request`", *(f"`{name}`" for name in ("requests", "httpx") if name in packages)]
    GuestLoop.create_connection = _refuse_connection  # type: ignore[method-assign]
    for name, change in _CHANGES.items():
        if (module := sys.modules.get(name)) is not None:
            change(module, asker)
    sys.meta_path.insert(0, _Changes(asker))
