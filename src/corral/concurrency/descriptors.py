"""Waiting for a descriptor in a thread. poll(2) takes any number, where select(2) takes none from 1,024 on.

And descriptors of processes, which not every system has.
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
"""Time for a process to end that was killed; it takes milliseconds, unless another user has it."""
_PAUSE_SECONDS = 0.002


def await_readable(descriptor: int, seconds: float | None) -> bool:
    """Blocks until there is something to read, or a process has ended. False if the time is over first."""
    return _happens(descriptor, select.POLLIN, seconds)


def await_writable(descriptor: int, seconds: float | None) -> bool:
    """Blocks until there is room for more. False if the time is over first."""
    return _happens(descriptor, select.POLLOUT, seconds)


def _happens(descriptor: int, event: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(None if seconds is None else max(seconds, 0) * 1000))


def why_no_descriptors(error: OSError) -> str:
    """The reason that a descriptor could not be made, with the remedy where this process has as many as it may."""
    reason = error.strerror or str(error)
    if error.errno != errno.EMFILE or sys.platform == "win32":
        return reason
    import resource  # which Windows does not have

    most, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{reason}: this process may have {most} and an execution takes three; raise it, as by `ulimit -n {allowed}`"


def process_descriptor(pid: int) -> int | None:
    """A descriptor of a process, by which it is watched and signalled; None where this system has no such.

    Raises:
        OSError: there is no such process, or no descriptor is left.
    """
    return os.pidfd_open(pid) if why_no_process_descriptors() is None else None


@cache
def why_no_process_descriptors() -> str | None:
    """The reason that this system has no descriptors of processes, and the remedy; None if it has.

    gVisor has none, nor has a container whose filter of system calls is older than they are.
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
            return None  # no descriptor is left, say
        return (
            f"{call}, by which sandboxes are watched, is refused here ({error.strerror}): it needs Linux 5.3, and a "
            "container whose runtime has, and whose seccomp profile allows, pidfd_open and pidfd_send_signal"
        )
    return None


def reap(pid: int) -> None:
    """Waits, for a second, for what was killed and has become a child of this process, so that no zombie is left.

    That is so where this process is process 1, as in a container without an init. A negative number is that of a group,
    whose leader has been waited for.
    """
    end = time.monotonic() + _REAP_SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                time.sleep(_PAUSE_SECONDS)
