"""Asks for approval of calls on the terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from corral import ApprovalRequest
from corral.cli.screen import Screen
from corral.rendering.full_text import escape_hidden, full_text

if TYPE_CHECKING or sys.platform != "win32":
    import termios
    import tty

_SHOWN_CHARS = 4_000
"""Maximum characters of an input; longer ones are denied, so that only text that was shown is approved."""


@contextmanager
def keyboard() -> Generator[int | None]:
    """Yields the descriptor of the terminal from which keys can be read, or None without a terminal."""
    if sys.stdin.isatty():
        yield sys.stdin.fileno()
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield terminal
    finally:
        os.close(terminal)


class Asker:
    """Asks about one call after another. A single key answers; only `y` and `a` mean yes."""

    def __init__(self, screen: Screen, terminal: int) -> None:
        self._screen = screen
        self._terminal = terminal
        self._one_at_a_time = asyncio.Lock()
        self._always: set[str] = set()

    async def approve(self, request: ApprovalRequest) -> bool:
        """Decides on a call, for `Corral(approve=...)`."""
        async with self._one_at_a_time:
            if request.tool in self._always:
                return True
            tool = f"tools.{escape_hidden(request.tool)}"
            input = full_text(request.input, _SHOWN_CHARS, long_first=True)  # the end is next to the question
            # Output is held, or the program could print a forged question below this one.
            with self._keys() as pressed, self._screen.holding() as say:
                say(
                    f"{self._screen.paint('?', 'yellow')} {tool}({input})\n  needs your approval: y = yes, "
                    f"a = yes to every call of {escape_hidden(request.tool)}, any other key = no"
                )
                key = await pressed
                if key == "a":
                    self._always.add(request.tool)
                allowed = key in ("y", "a")
                answer = self._screen.paint("allowed" if allowed else "denied", "green" if allowed else "red")
                say(f"  {answer}: {tool}")
            return allowed

    @contextmanager
    def _keys(self) -> Generator[asyncio.Future[str]]:
        """Yields a future for the next key pressed during the block; earlier keys are discarded."""
        loop = asyncio.get_running_loop()
        pressed: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            if not pressed.done():
                pressed.set_result(os.read(self._terminal, 16).decode("utf-8", "replace").lower())

        before = termios.tcgetattr(self._terminal)
        tty.setcbreak(self._terminal, termios.TCSAFLUSH)
        loop.add_reader(self._terminal, read)
        try:
            yield pressed
        finally:
            loop.remove_reader(self._terminal)
            termios.tcsetattr(self._terminal, termios.TCSAFLUSH, before)
