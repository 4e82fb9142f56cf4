"""The contract of a sink, and the sink that is any callable."""

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
    """Destination of events. All methods run in one thread of the log; async ones on an event loop of that thread.

    The loop may be another one after a pause. `aclose` is called before it ends, and `write` opens what it needs anew.
    """

    @abstractmethod
    def write(self, events: Sequence[AuditEvent]) -> Awaitable[None] | None:
        """Returns when the events are durable. If it raises, all of them are written again later."""

    def is_outage(self, error: BaseException) -> bool:
        """True if an error of `write` has nothing to do with its events. Otherwise they are written one by one
        after some failures, and those that fail while others do not are taken out."""
        return isinstance(error, OSError) or not isinstance(error, Exception)

    def aclose(self) -> Awaitable[None] | None:
        """Closes files and connections."""

    def after_fork(self) -> None:
        """Drops, in a forked process, files and connections that belong to its parent."""


@checked
class CallbackSink(AuditSink):
    """Hands batches of events to a sync or async function; a batch on which it raised is tried again."""

    def __init__(self, function: Callable[[Sequence[AuditEvent]], object]) -> None:
        self._function = function

    def __repr__(self) -> str:
        return f"CallbackSink({self._function!r})"

    async def write(self, events: Sequence[AuditEvent]) -> None:
        answer = self._function(events)
        if inspect.isawaitable(answer):
            await answer


def create_private(path: Path) -> None:
    """Creates a file that only its owner may read, if there is none, and makes its name durable.

    Raises:
        PermissionError: there is one that somebody else has put into a directory that all may write.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        directory, found = path.parent.stat(), path.lstat()
        if (
            os.name == "posix"
            and directory.st_mode & stat.S_IWOTH
            and found.st_uid not in (os.geteuid(), directory.st_uid)
        ):
            raise PermissionError(
                errno.EPERM, "the file belongs to another user, in a directory that all may write", str(path)
            ) from None
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def identity(file: Path | int) -> tuple[int, int] | None:
    """Tells a file from one that took its place, as log rotation does; None if there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116 - also of a descriptor
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def leave_behind(resource: object) -> None:
    """Keeps a resource of the parent process alive, so that garbage collection here does not close it."""
    _left_behind.append(resource)
