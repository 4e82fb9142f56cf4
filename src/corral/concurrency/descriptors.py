"""Waiting for a descriptor in a thread. poll(2) takes any number, where select(2) takes none from 1,024 on."""

from __future__ import annotations

import select

__all__ = ["await_readable", "await_writable"]


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
