"""A listening socket and the HTTP server behind it, for commands that serve."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

from corral.errors import ConfigError

__all__ = ["http_server", "is_loopback", "listening", "url_of"]

_SHUTDOWN_SECONDS = 1
"""Seconds that requests may take to end during shutdown."""


@contextmanager
def listening(host: str, port: int, option: str = "--port") -> Generator[socket.socket]:
    """A socket that takes connections. Its protocol is named, without which asyncio would not set TCP_NODELAY.

    Raises:
        ConfigError: nobody can listen there.
    """
    if not 0 <= port < 65_536:
        raise ConfigError(f"{option} {port} is not between 0 and 65535")
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
    """The URL to connect to. A wildcard address is replaced, since clients cannot connect to it."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104
        host = next((name for name in allowed_hosts if name != "*"), "::1" if host == "::" else "127.0.0.1")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def http_server(uvicorn: ModuleType, app: object, *, lifespan: str) -> Any:
    """A `uvicorn.Server` that writes nothing, and leaves signals to the command."""
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
    return ConfigError(f"cannot listen at port {port} of {host}: {reason}; {option} and --host name another place")
