"""Stores events in a file, one JSON object per line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from corral.arguments import checked
from corral.audit.events import AuditEvent, json_of
from corral.audit.sinks.base import AuditSink, create_private, identity


@checked
class JsonLinesSink(AuditSink):
    """Appends to a file, which several processes can share on one machine. POSIX only.

    A batch is written completely or not at all: a partly written batch is removed under a lock of the file. If the
    file was renamed or deleted, the next batch goes to a new file with the old name.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: int | None = None
        self._identity: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"JsonLinesSink({str(self.path)!r})"

    def write(self, events: Sequence[AuditEvent]) -> None:
        text = b"".join([json_of(event) + b"\n" for event in events])
        file = self._opened()
        import fcntl  # POSIX only

        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            _append(file, text)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    def aclose(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def after_fork(self) -> None:
        self._file = None  # left open: closing it would release the lock for every process that inherited it

    def _opened(self) -> int:
        if self._file is None or self._identity != identity(self.path):
            self.aclose()
            create_private(self.path)
            self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            self._identity = identity(self._file)
        return self._file


def _append(file: int, text: bytes) -> None:
    before = os.fstat(file).st_size
    if before and os.pread(file, 1, before - 1) != b"\n":
        text = b"\n" + text  # a process was killed while writing
    try:
        while text:
            text = text[os.write(file, text) :]
        os.fdatasync(file)
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, before)
        raise
