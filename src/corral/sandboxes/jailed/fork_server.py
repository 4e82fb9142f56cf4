"""The host's side of a fork server: a guest that forks a process for each execution of one trust domain."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
import time
from base64 import b64encode
from functools import cache

from corral.concurrency.descriptors import why_no_descriptors
from corral.concurrency.event_loop import asyncio_loop
from corral.errors import StartFailed
from corral.isolation import Tier
from corral.jail import child_streams
from corral.jail.seccomp import filter_program
from corral.sandboxes.jailed.guest_process import GuestProcess
from corral.sandboxes.jailed.guest_starter import StartedGuest

_MOST_AT_ONCE = 256
"""Processes of one server, which keeps three descriptors for each of them, and has 1,024."""
_BUSY = (errno.EAGAIN, errno.ETOOMANYREFS)
"""It is asked faster than it forks: unix(7)."""
_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN)
"""Its end has closed the socket, a moment before its process counts as ended."""


class ForkServer:
    """Forks processes as they are asked for, of any event loop, until it is retired or has ended.

    When one has ended, the next is forked ahead: a process takes longer to be born than a small program to run. The
    outcome of the one that has ended does not wait for it.
    """

    def __init__(self, guest: StartedGuest, *, writes: bool = False) -> None:
        self.tier: Tier = guest.tier
        self.preloaded = guest.preloaded
        self._writes = writes
        self._guest = guest
        self._live = 0
        self._lock = threading.Lock()
        self._spare: GuestProcess | None = None
        self._idle_since = time.monotonic()
        self._retired = False

    @property
    def retired(self) -> bool:
        return self._retired

    @property
    def idle_since(self) -> float | None:
        return None if self._live else self._idle_since

    def reserve(self) -> Fork | None:
        """A process of its own for one execution, which is born later; None if this server has all that it can."""
        if self._retired or not self._guest.alive:
            self.retire()
            return None
        if self._live >= _MOST_AT_ONCE:
            return None
        with self._lock:
            process, self._spare = self._spare, None
        if process is not None and process.ended:
            process.close()
            process = None
        process = process or fork(self._guest, writes=self._writes)
        if process is None:
            return None
        self._live += 1
        return Fork(self, process)

    def retire(self) -> None:
        """Nothing new starts in it, and it ends with what still runs."""
        self._retired = True
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        if self._live == 0:
            self._guest.close()

    def leave(self) -> None:
        """One of its processes is not needed any more."""
        self._live -= 1
        self._idle_since = time.monotonic()
        if self._retired:
            self.retire()
            return
        loop = asyncio_loop()
        if loop is None:
            self._fork_ahead()
        else:
            loop.call_soon(self._fork_ahead)  # after the result that somebody waits for

    def _fork_ahead(self) -> None:
        with self._lock:
            if self._spare is None and not self._retired:
                with contextlib.suppress(StartFailed):  # who needs it will hear of it
                    self._spare = fork(self._guest, writes=self._writes)


def fork(guest: StartedGuest, *, writes: bool = False) -> GuestProcess | None:
    """A new process of a server; None if the server has more to do than it can, or has ended.

    With `writes` it may write files, where its jail has any.

    Raises:
        StartFailed: this process has no descriptors left.
    """
    try:
        with child_streams(socket.SOCK_STREAM) as (child, theirs):
            guest.process.ask(fork_message(guest.tier, writes).encode(), theirs)
            return GuestProcess(child)
    except OSError as error:
        if guest.alive and error.errno not in (*_BUSY, *_GONE):
            raise StartFailed(f"cannot ask for a process: {why_no_descriptors(error)}") from error
        return None


@cache
def fork_message(tier: Tier, writes: bool) -> str:
    """The message that asks a server for a process; once code was preloaded, the server takes no other one."""
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
