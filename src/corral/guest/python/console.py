"""Console output of a program: every line, or lines that were written at once, is one entry.

It is sent as soon as it ends, and what there is of it before that: a program may be killed at any time.
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
"""Parts of lines that are sent as they are written. From then on parts are put together."""
_PART_SECONDS = 0.02
"""Maximum delay of a line while the program goes on writing."""
_print = print


_NO_FAULT = "deallocated bytearray object has exported buffers"
"""CPython prints it, to 3.13 at least, of a bytearray that got no memory; a MemoryError is raised besides."""


def print_unraised(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Prints an error that nobody can catch, as `sys.excepthook` does."""
    if kind is not SystemError or str(error) != _NO_FAULT:
        sys.__excepthook__(kind, error, traceback)


class Console:
    """Bounds what a program writes. An entry counts with its newline, so that empty ones are bounded too."""

    def __init__(self, send: Callable[[bytes], None], left: int = 0) -> None:
        self._send = send
        self.turn = threading.RLock()
        """Held by the thread that writes."""
        self.left = left
        """Bytes that may still be written."""
        self.dropped = 0

    def log(self, level: str, text: str, *, open: bool = False) -> None:
        """One entry, or, `open`, a part of one. What is over the limit is left out, and counted in bytes."""
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
        """Parts of a line that has not ended."""
        self._open = False
        """The beginning of that line was sent."""
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
        """Sends what there is of a line that has not ended."""
        with self._console.turn:
            if self._held:
                self._sent = time.monotonic()
                self._emit(open=True)

    def finish(self) -> None:
        """Ends a last line that did not end."""
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
    """`print`, but to a `Stream` in one write: the built-in one writes the end by itself, as if it might not come."""
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
