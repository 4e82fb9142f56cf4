"""The two output streams of a command, and live lines below what has been printed on them."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Literal, TextIO, TypeAlias

from corral.cli.text import printable

Color: TypeAlias = Literal["red", "green", "yellow", "blue", "bold", "dim"]

_SGR: dict[Color, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34}
_COLUMNS_OF_A_FILE = 120


class Screen:
    """Prints to standard output and error; on a terminal, keeps live lines at the bottom.

    Live lines are on standard error. They are erased before anything is printed and drawn again after it, so that they
    never stand in the way of other output. Tools may print from any thread.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._lock = threading.Lock()
        self._lines: Sequence[str] = ()
        self._held: list[tuple[TextIO, str]] | None = None
        """Output to print when `holding` is over."""
        self.live = err.isatty() and os.environ.get("TERM") != "dumb"
        self.color = self.live and not os.environ.get("NO_COLOR")

    @property
    def size(self) -> os.terminal_size:
        """Columns and rows of the terminal that standard error is."""
        if self._err.isatty():
            size = os.get_terminal_size(self._err.fileno())
            return os.terminal_size((size.columns or 80, size.lines or 24))
        return os.terminal_size((_COLUMNS_OF_A_FILE, 24))

    def paint(self, text: str, *colors: Color) -> str:
        """`text` in color, where standard error shows colors."""
        if not self.color:
            return text
        return f"\x1b[{';'.join(str(_SGR[color]) for color in colors)}m{text}\x1b[0m"

    def out(self, text: str) -> None:
        """Prints what a program made to standard output: as it is, but without control characters on a terminal."""
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
        """Within the block only what it is given prints, to standard error; all else waits until the block is over."""
        with self._lock:
            self._held = []
        try:
            yield lambda text: self._write(self._err, text)
        finally:
            with self._lock:
                held, self._held = self._held, None
            for stream, text in held or ():
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
        """Up to the first live line, then clear from there to the end of the screen."""
        return f"\x1b[{len(self._lines)}F\x1b[J" if self._lines else ""

    def _draw(self) -> None:
        self._err.write("".join(f"{line}\n" for line in self._lines))
        self._err.flush()


@contextmanager
def screen() -> Generator[Screen]:
    """A screen of its own on the standard streams.

    Within the block standard output belongs to the screen alone: what tools print, and what processes they start
    print, goes to standard error.
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
    """A text stream that hands on whole lines."""

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
        """Hands on a line that was begun and not ended."""
        if self._begun:
            self.write("\n")
