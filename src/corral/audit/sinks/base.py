"""Interface of audit sinks, and the sink for any callable."""

from __future__ import annotations

import errno
import inspect
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from corral.arguments import checked
from corral.audit.events import AuditEvent

_left_behind: list[object] = []


class AuditSink(ABC):
    """Destination of events. All methods run in one thread of the log; async ones on that thread's event loop.

    After a pause there can be another loop. `aclose` is called before a loop ends; the next `write` reopens resources.
    """

    @abstractmethod
    def write(self, events: Sequence[AuditEvent]) -> Awaitable[None] | None:
        """Returns when the events are durable. If it raises, all of them are written again later."""

    def is_outage(self, error: BaseException) -> bool:
        """True if an error of `write` is unrelated to its events. Otherwise they are written one by one after some
        failures, and events that fail while others succeed are dropped."""
        return isinstance(error, OSError) or not isinstance(error, Exception)

    def aclose(self) -> Awaitable[None] | None:
        """Closes files and connections."""

    def after_fork(self) -> None:
        """Drops, in a forked process, the parent's files and connections."""


@checked
class CallbackSink(AuditSink):
    """Passes batches of events to a sync or async function; a batch for which it raises is retried."""

    def __init__(self, function: Callable[[Sequence[AuditEvent]], object]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return f"CallbackSink({self._function!r})"

    async def write(self, events: Sequence[AuditEvent]) -> None:
        answer = self._function(events)
        if inspect.isawaitable(answer):
            await answer


def create_private(path: Path) -> None:
    """Creates a file readable only by its owner, unless it exists, and makes its name durable.

    Raises:
        PermissionError: it exists and belongs to another user, in a world-writable directory.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        directory, status = path.parent.stat(), path.lstat()
        if (
            os.name == "posix"
            and directory.st_mode & stat.S_IWOTH
            and status.st_uid not in (os.geteuid(), directory.st_uid)
        ):
            raise PermissionError(
                errno.EPERM, "the file belongs to another user, in a world-writable directory", str(path)
            ) from None
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def identity(file: Path | int) -> tuple[int, int] | None:
    """Returns the device and inode of a file, which change when log rotation replaces it; None if it is missing."""
    try:
        status = os.stat(file)  # noqa: PTH116 - also of a descriptor
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def leave_behind(resource: object) -> None:
    """Keeps a resource of the parent process alive, so that garbage collection in this process does not close it."""
    _left_behind.append(resource)
