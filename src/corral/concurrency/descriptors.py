"""Waits for descriptors with poll(2), because select(2) rejects numbers of 1,024 or more. Blocks its thread.

Also opens process descriptors (pidfds), which not every system has.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from contextlib import suppress
from functools import cache

_REAP_SECONDS = 1.0
"""Seconds for a killed process to end. It takes milliseconds, unless the process belongs to another user."""
_PAUSE_SECONDS = 0.002


def await_readable(descriptor: int, seconds: float | None) -> bool:
    """Blocks until the descriptor is readable, or its process has ended. Returns False after `seconds`."""
    return _happens(descriptor, select.POLLIN, seconds)


def await_writable(descriptor: int, seconds: float | None) -> bool:
    """Blocks until the descriptor is writable. Returns False after `seconds`."""
    return _happens(descriptor, select.POLLOUT, seconds)


def _happens(descriptor: int, event: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(None if seconds is None else max(seconds, 0) * 1000))


def why_no_descriptors(error: OSError) -> str:
    """Explains why a descriptor could not be created, with the remedy if this process is at its limit."""
    reason = error.strerror or str(error)
    if error.errno != errno.EMFILE or sys.platform == "win32":
        return reason
    import resource  # Windows lacks it

    most, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{reason}: this process can have {most} and an execution takes three; raise it with `ulimit -n {allowed}`"


def process_descriptor(pid: int) -> int | None:
    """Returns a descriptor for watching and signalling a process; None if this system has none.

    Raises:
        OSError: the process does not exist, or no descriptors are left.
    """
    return os.pidfd_open(pid) if why_no_process_descriptors() is None else None


@cache
def why_no_process_descriptors() -> str | None:
    """Explains why this system has no process descriptors, with the remedy; None if it has them.

    gVisor lacks them, and a container's system call filter can be older than they are.
    """
    if sys.platform != "linux":
        return "only Linux has descriptors of processes"
    call = "pidfd_open"
    try:
        descriptor = os.pidfd_open(os.getpid())
        try:
            call = "pidfd_send_signal"
            signal.pidfd_send_signal(descriptor, 0)  # pyright: ignore[reportArgumentType] - which asks if it may
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            return None  # for example, no descriptor is left
        return (
            f"{call}, which watches sandboxes, is refused here ({error.strerror}): it needs Linux 5.3, and a container "
            "whose runtime supports, and whose seccomp profile allows, pidfd_open and pidfd_send_signal"
        )
    return None


def reap(pid: int) -> None:
    """Waits up to a second for a killed process if it is now a child of this process, so that it does not remain a
    zombie.

    It becomes a child if this is process 1, as in a container without an init. A negative number stands for a process
    group whose leader has already been reaped.
    """
    end = time.monotonic() + _REAP_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                time.sleep(_PAUSE_SECONDS)
