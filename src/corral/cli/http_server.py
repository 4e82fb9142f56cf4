"""Listening socket and HTTP server for commands that serve, with probes and draining."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import anyio

from corral.errors import ConfigError

_READY = "/readyz"
_PROBES = ("/healthz", _READY)
_SHUTDOWN_SECONDS = 1
"""Seconds for requests to end during shutdown."""


def check_port(port: int, option: str) -> None:
    """Checks the number of a port. Some event loops would take the remainder of a wrong one.

    Raises:
        ConfigError: the number is not between 0 and 65535.
    """
    if not 0 <= port < 65_536:
        raise ConfigError(f"{option} {port} is not between 0 and 65535")


@contextmanager
def listening(host: str, port: int, option: str = "--port") -> Generator[socket.socket]:
    """Opens a listening socket. Sets its protocol explicitly, without which asyncio would not set TCP_NODELAY.

    Raises:
        ConfigError: the address cannot be used.
    """
    check_port(port, option)
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(host, port, option, error) from error
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen()
        except OSError as error:
            raise _cannot_listen(host, port, option, error) from error
        yield listener


def url_of(host: str, port: int, allowed_hosts: list[str]) -> str:
    """Returns the URL to connect to. A wildcard address is replaced, because clients cannot connect to it."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104
        host = next((name for name in allowed_hosts if name != "*"), "::1" if host == "::" else "127.0.0.1")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Drainable:
    """App with the probes `GET /healthz` and `GET /readyz`, which accept any Host and need no token.

    `is_work` is True for the methods and paths that draining refuses and waits for. `unready` returns the reason why
    the app should get no requests, if any.
    """

    def __init__(
        self, app: Any, is_work: Callable[[str, str], bool], unready: Callable[[], str | None] = lambda: None
    ) -> None:
        self._app = app
        self._is_work = is_work
        self._unready = unready
        self._draining = False
        self._working = 0
        self._idle = anyio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        if path in _PROBES and method in ("GET", "HEAD"):
            reason = ("draining" if self._draining else self._unready()) if path == _READY else None
            await _answer(send, {"status": "ok"} if reason is None else {"status": "unavailable", "reason": reason})
        elif not self._is_work(method, path):
            await self._app(scope, receive, send)
        elif self._draining:
            await _answer(send, {"error": "this server is draining; send the request to another one"})
        else:
            self._working += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._working -= 1
                if not self._working:
                    self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Refuses new work, and waits up to `seconds` for running work."""
        self._draining = True
        with anyio.move_on_after(seconds):
            while self._working:
                self._idle = anyio.Event()
                await self._idle.wait()


async def _answer(send: Any, content: dict[str, str]) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    status = 200
    if "status" not in content or content["status"] != "ok":
        status = 503
        headers += [(b"retry-after", b"1"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def http_server(uvicorn: ModuleType, app: object, *, lifespan: str) -> Any:
    """Returns a `uvicorn.Server` that logs nothing and leaves signals to the command."""
    config = uvicorn.Config(
        app,
        lifespan=lifespan,
        ws="none",
        log_config=None,
        log_level="critical",
        server_header=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext
    return server


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _cannot_listen(host: str, port: int, option: str, error: OSError) -> ConfigError:
    reason = error.strerror or error
    return ConfigError(f"cannot listen on port {port} of {host}: {reason}; choose another with {option} and --host")
