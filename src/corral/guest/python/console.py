"""Console output of a program: each line, or group of lines written at once, is one entry.

An entry is sent as soon as it ends, or earlier in parts, because a program can be killed at any time.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from corral.guest.python.values import well_formed

_MOST_PARTS = 500
"""Number of parts of lines that are sent as they are written. Later parts are joined."""
_PART_SECONDS = 0.02
"""Maximum delay in seconds of a line while the program keeps writing."""
_print = print


_NO_FAULT = "deallocated bytearray object has exported buffers"
"""Text that CPython (at least up to 3.13) prints when a bytearray gets no memory. It also raises MemoryError."""


def print_unraised(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Prints an error that cannot be caught, as `sys.excepthook` does."""
    if kind is not SystemError or str(error) != _NO_FAULT:
        sys.__excepthook__(kind, error, traceback)


class Console:
    """Limits a program's output. Each entry counts with its newline, so that empty ones are limited too."""

    def __init__(self, send: Callable[[bytes], None], left: int = 0) -> None:
        self._send = send
        self.turn = threading.RLock()
        """Held by the thread that is writing."""
        self.left = left
        """Number of bytes that may still be written."""
        self.dropped = 0

    def log(self, level: str, text: str, *, open: bool = False) -> None:
        """Sends an entry or, if `open`, a part of one. Text beyond the limit is dropped, and its bytes counted."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            text = well_formed(text)
            data = text.encode()
        room = self.left - (not open)
        if len(data) > room:
            self.dropped += len(data) - max(room, open - 1)
            if room < open:
                return
            text = data[:room].decode("utf-8", "ignore")
            data = data[:room]
        self.left -= len(data) + (not open)
        entry = [level, text, True] if open else [level, text]
        self._send(json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode())


class Stream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, console: Console, level: str, name: str) -> None:
        self._console = console
        self._level = level
        self._held: list[str] = []
        """Parts of an unfinished line."""
        self._open = False
        """True if the beginning of the line was already sent."""
        self._parts = 0
        self._sent = 0.0
        self.name = name

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with self._console.turn:
            self._write(text)
        return len(text)

    def _write(self, shown: str) -> None:
        if self._open and "\n" in shown:
            end, _, shown = shown.partition("\n")
            self._held.append(end)
            self._emit()
        before, newline, rest = shown.rpartition("\n")
        if newline:
            self._held.append(before)
            self._emit()
        if rest:
            self._held.append(rest)
            self._parts += 1
            if self._parts <= _MOST_PARTS or time.monotonic() > self._sent + _PART_SECONDS:
                self.flush()

    def flush(self) -> None:
        """Sends what has been written of the unfinished line."""
        with self._console.turn:
            if self._held:
                self._sent = time.monotonic()
                self._emit(open=True)

    def finish(self) -> None:
        """Ends an unfinished last line."""
        with self._console.turn:
            if self._held or self._open:
                self._emit()

    def _emit(self, *, open: bool = False) -> None:
        text = "".join(self._held)
        self._held.clear()
        self._open = open
        self._console.log(self._level, text, open=open)


def print_at_once(
    *values: object, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False
) -> None:
    """`print`, but in one write for a `Stream`: the built-in one writes `end` separately."""
    stream = sys.stdout if file is None else file
    if type(stream) is Stream and type(sep) is str and type(end) is str:
        text = sep.join(map(str, values))
        for part in (text, end) if "\n" in text else (f"{text}{end}",):
            stream.write(part)
        if flush:
            stream.flush()
    else:
        _print(*values, sep=sep, end=end, file=file, flush=flush)


print_at_once.__name__ = print_at_once.__qualname__ = "print"
