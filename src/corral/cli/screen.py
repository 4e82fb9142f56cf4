"""Output of a command, with live lines below the printed text. Also width, truncation and control characters of
text."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
import unicodedata
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Literal, TextIO, TypeAlias

Color: TypeAlias = Literal["red", "green", "yellow", "blue", "bold", "dim"]

_SGR: dict[Color, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34}
_COLUMNS_OF_A_FILE = 120
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Screen:
    """Prints to standard output and error; on a terminal, keeps live lines at the bottom.

    Live lines are on standard error. They are erased before any output and redrawn after it. Tools can print from any
    thread.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._lock = threading.Lock()
        self._lines: Sequence[str] = ()
        self._held: list[tuple[TextIO, str]] | None = None
        """Output to print when `holding` ends."""
        self.live = err.isatty() and os.environ.get("TERM") != "dumb"
        self.color = self.live and not os.environ.get("NO_COLOR")

    @property
    def size(self) -> os.terminal_size:
        """Columns and rows of the terminal on standard error."""
        if self._err.isatty():
            size = os.get_terminal_size(self._err.fileno())
            return os.terminal_size((size.columns or 80, size.lines or 24))
        return os.terminal_size((_COLUMNS_OF_A_FILE, 24))

    def paint(self, text: str, *colors: Color) -> str:
        """Colors `text` if standard error shows colors."""
        if not self.color:
            return text
        return f"\x1b[{';'.join(str(_SGR[color]) for color in colors)}m{text}\x1b[0m"

    def out(self, text: str) -> None:
        """Prints a program's output to standard output, unchanged except for control characters on a terminal."""
        self._print(self._out, printable(text) if self._out.isatty() else text)

    def err(self, text: str) -> None:
        """Prints lines to standard error."""
        self._print(self._err, text)

    def show(self, lines: Sequence[str]) -> None:
        """Replaces the live lines. None of them may be wider than the terminal."""
        if self.live:
            with self._lock:
                if self._held is not None:
                    return
                self._err.write(self._erasing())
                self._lines = lines
                self._draw()

    @contextmanager
    def holding(self) -> Generator[Callable[[str], None]]:
        """Yields a function that prints to standard error. All other output waits until the end of the block."""
        with self._lock:
            self._held = []
        try:
            yield lambda text: self._write(self._err, text)
        finally:
            with self._lock:
                waiting, self._held = self._held, None
            for stream, text in waiting or ():
                self._print(stream, text)

    def _print(self, stream: TextIO, text: str) -> None:
        with self._lock:
            if self._held is not None:
                self._held.append((stream, text))
                return
            self._write(stream, text)

    def _write(self, stream: TextIO, text: str) -> None:
        if self._lines:
            self._err.write(self._erasing())
            self._err.flush()
        stream.write(f"{text}\n")
        stream.flush()
        if self._lines:
            self._draw()

    def _erasing(self) -> str:
        """Returns the escape sequence that clears the screen from the first live line on."""
        return f"\x1b[{len(self._lines)}F\x1b[J" if self._lines else ""

    def _draw(self) -> None:
        self._err.write("".join(f"{line}\n" for line in self._lines))
        self._err.flush()


@contextmanager
def screen() -> Generator[Screen]:
    """Yields a screen on the standard streams.

    During the block only the screen writes to standard output: output of tools, and of processes they start, goes to
    standard error.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding=sys.stdout.encoding, errors="backslashreplace") as out:
        os.dup2(2, 1)
        try:
            view = Screen(out, sys.stderr)
            aside = _Lines(view.err)
            with redirect_stdout(aside), redirect_stderr(aside):
                yield view
            aside.end()
        finally:
            os.dup2(out.fileno(), 1)


class _Lines(io.TextIOBase):
    """Text stream that passes on whole lines only."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print_line = print_line
        self._lock = threading.Lock()
        self._begun = ""

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "utf-8"

    def fileno(self) -> int:
        return 2

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with self._lock:
            lines, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            self._print_line(lines)
        return len(text)

    def end(self) -> None:
        """Passes on an unfinished line."""
        if self._begun:
            self.write("\n")


# --- text


def counted(number: int, what: str) -> str:
    """Formats a count of things, such as "2 calls". `what` is the singular."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Escapes control characters other than tabs and newlines."""
    return _CONTROL.sub(lambda control: f"\\x{ord(control[0]):02x}", text)


def width(text: str) -> int:
    """Returns the terminal columns of one line without tabs."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def fitted(text: str, columns: int) -> str:
    """Returns `text`, cut with an ellipsis if it does not fit."""
    used = 0
    room_ends = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used < columns:
            room_ends = index + 1
        elif used > columns:
            return f"{text[:room_ends]}…"
    return text


def _columns(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
