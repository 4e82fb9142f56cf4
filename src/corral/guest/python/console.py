"""What a program prints: every line, or lines that were written at once, is one entry, sent as soon as it ends."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

from corral.guest.python.values import well_formed

__all__ = ["Console", "Stream"]

_MOST_HELD = 8192
"""Characters of a line that has not ended yet which are held back."""


class Console:
    """Bounds what a program writes. An entry counts with its newline, so that empty ones are bounded too."""

    def __init__(self, send: Callable[[bytes], None], log_bytes: int) -> None:
        self._send = send
        self._left = log_bytes
        self.dropped = 0

    def log(self, level: str, text: str) -> None:
        """One entry. Of one that is too long the beginning is kept; what is left out is counted in bytes."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            text = well_formed(text)
            data = text.encode()
        room = self._left - 1
        if len(data) > room:
            self.dropped += len(data) - max(room, -1)
            if room < 0:
                return
            text = data[:room].decode("utf-8", "ignore")
            data = data[:room]
        self._left -= len(data) + 1
        self._send(json.dumps([level, text], ensure_ascii=False, separators=(",", ":")).encode())


class Stream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, console: Console, level: str, name: str) -> None:
        self._console = console
        self._level = level
        self._held: list[str] = []
        self._held_length = 0
        self._cut = False
        self.name = name

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        shown = text.removeprefix("\n") if self._cut else text  # the end of a line of which all has been sent
        self._cut = self._cut and not text
        before, newline, rest = shown.rpartition("\n")
        if newline:
            self._held.append(before)
            self._emit()
        if rest:
            self._held.append(rest)
            self._held_length += len(rest)
            if self._held_length > _MOST_HELD:
                self._emit()
                self._cut = True
        return len(text)

    def finish(self) -> None:
        """Sends a last line that did not end."""
        if self._held_length:
            self._emit()

    def _emit(self) -> None:
        text = "".join(self._held)
        self._held.clear()
        self._held_length = 0
        self._console.log(self._level, text)
