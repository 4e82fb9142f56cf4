"""Host's side of a fork server: a guest that forks a process for each execution of one owner."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
from base64 import b64encode
from functools import cache
from typing import TypeVar

from typing_extensions import override

from corral.concurrency.descriptors import why_no_descriptors
from corral.concurrency.event_loop import asyncio_loop
from corral.containment import Tier
from corral.errors import StartFailed
from corral.jail.launcher_client import child_streams
from corral.jail.seccomp import filter_program
from corral.sandboxes.jailed.guest_starter import GuestProcess, StartedGuest
from corral.sandboxes.pool import Box

_MOST_AT_ONCE = 256
"""Maximum number of a server's processes. The server keeps three descriptors for each, and has 1,024."""
_BUSY = (errno.EAGAIN, errno.ETOOMANYREFS)
"""Errors if requests arrive faster than it forks: unix(7)."""
P = TypeVar("P", bound=GuestProcess)
_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)
"""Errors after it has closed the socket, a moment before its process counts as ended."""


class ForkServer(Box["Fork"]):
    """Forks processes on request, from any event loop, until it is retired or has ended.

    When a process has ended, the next one is forked in advance, because creating a process takes longer than running a
    small program. The outcome of the previous program does not wait for that.
    """

    def __init__(self, guest: StartedGuest, *, writes: bool = False) -> None:
        super().__init__(_MOST_AT_ONCE)
        self.tier: Tier = guest.tier
        self.preloaded = guest.preloaded
        self._writes = writes
        self._guest = guest
        self._lock = threading.Lock()
        self._spare: GuestProcess | None = None

    @override
    def enter(self) -> Fork | None:
        """Returns a new process for one execution. The process is created later."""
        if not self._guest.alive:
            self.retire()
            return None
        process = self._take_spare()
        if process is not None and process.ended:
            process.close()
            process = None
        process = process or self._fork()
        return None if process is None else Fork(self, process)

    @override
    def retire(self) -> None:
        super().retire()
        spare = self._take_spare()
        if spare is not None:
            spare.close()

    @override
    def leave(self) -> None:
        super().leave()
        if self.retired:
            return
        loop = asyncio_loop()
        if loop is None:
            self._fork_ahead()
        else:
            loop.call_soon(self._fork_ahead)  # runs after the pending result

    @override
    def end(self) -> None:
        self._guest.close()

    def _take_spare(self) -> GuestProcess | None:
        with self._lock:
            spare, self._spare = self._spare, None
        return spare

    def _fork_ahead(self) -> None:
        with self._lock:
            if self._spare is None and not self.retired:
                with contextlib.suppress(StartFailed):  # the next request will report it
                    self._spare = self._fork()

    def _fork(self) -> GuestProcess | None:
        """Returns a new process; None if the server is overloaded or has ended. Raises as `fork`."""
        return fork(self._guest, writes=self._writes)


def fork(guest: StartedGuest, *, writes: bool = False) -> GuestProcess | None:
    """Returns a new process of a server; None if the server is overloaded or has ended.

    With `writes` it can write files, if its jail has writable ones.

    Raises:
        StartFailed: this process has no descriptors left.
    """
    return request(guest, fork_message(guest.tier, writes).encode(), GuestProcess)


def request(guest: StartedGuest, message: bytes, process: type[P]) -> P | None:
    """Sends a message with a connection and a lifeline, and returns their process. For the rest see `fork`."""
    try:
        with child_streams(socket.SOCK_STREAM) as (child, theirs):
            guest.process.ask(message, theirs)
            return process(child)
    except OSError as error:
        if guest.alive and error.errno not in (*_BUSY, *_GONE):
            raise StartFailed(f"cannot request a process: {why_no_descriptors(error)}") from error
        return None


@cache
def fork_message(tier: Tier, writes: bool) -> str:
    """Returns the message that requests a process. Once code was preloaded, the server accepts no other message."""
    program = None if tier == "none" else b64encode(filter_program(profile="program", writes=writes)).decode()
    return json.dumps({"filter": program})


class Fork:
    """A process of a fork server, until it is closed."""

    def __init__(self, server: ForkServer, process: GuestProcess) -> None:
        self.tier: Tier = server.tier
        self.preloaded = server.preloaded
        self.process = process
        self._server: ForkServer | None = server

    def close(self) -> None:
        """Ends it. Idempotent."""
        self.process.close()
        if self._server is not None:
            server, self._server = self._server, None
            server.leave()
