"""Live progress of a command: a line per tool call, or an animated line between calls."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import cycle
from threading import Event as Flag
from threading import Thread

from corral.cli.screen import Screen, fitted, printable, width
from corral.events import (
    Event,
    ExecutionFinished,
    ExecutionStarted,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
)
from corral.rendering.preview import json_text
from corral.results import CallRecord

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.1
_LINE_SECONDS = 10.0
"""Seconds between two lines, if there is no terminal."""
_A_WHILE_SECONDS = 0.3
"""Seconds of work after which it is announced."""
_CALL_CHARS = 1_000
"""Maximum characters of a call, more than any terminal shows on one line."""


class Progress:
    """Shows running calls as live lines and finished calls as permanent lines."""

    def __init__(self, screen: Screen, doing: str = "") -> None:
        self._screen = screen
        self._running: dict[int, str] = {}
        """State of calls on the screen, by the identity of their records, because sequence numbers come from the
        guest."""
        self._reported: dict[int, str] = {}
        """Latest progress of these calls."""
        self._frame = _FRAMES[0]
        self._doing = doing
        """Text to show after a while without a running call; empty to show none."""
        self._since = time.monotonic()

    def see(self, event: Event) -> None:
        match event:
            case ExecutionStarted():
                self._begin("running")
            case ToolCallStarted(call=call):
                self._running[call.sequence] = _called(call)
                self._draw()
            case ToolCallProgress(sequence=sequence) if sequence in self._running:
                self._reported[sequence] = _reported(event)
                self._draw()
            case ToolCallFinished(call=call):
                self._running.pop(call.sequence, None)
                self._reported.pop(call.sequence, None)
                self._begin(self._doing)
                self._draw()
                self._screen.err(finished_line(call, self._screen))
            case ExecutionFinished():
                self._begin("")
            case _:
                pass

    @contextmanager
    def turning(self) -> Generator[None]:
        """Animates the marks during the block, in a separate thread because this one can be blocked."""
        if not self._screen.live:
            yield
            return
        over = Flag()
        thread = Thread(target=self._turn, args=(over,), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._screen.show(())

    def _turn(self, over: Flag) -> None:
        frames = cycle(_FRAMES)
        with suppress(OSError):  # the terminal is gone
            while not over.wait(_FRAME_SECONDS):
                self._frame = next(frames)
                self._draw()

    def _begin(self, doing: str) -> None:
        self._doing, self._since = doing, time.monotonic()

    def _draw(self) -> None:
        columns, rows = self._screen.size
        shown = [
            fitted(self._reported.get(number, "") + called, columns - 3)
            for number, called in list(self._running.items())[: max(1, rows - 2)]
        ]
        hidden = len(self._running) - len(shown)
        seconds = time.monotonic() - self._since
        if not shown and self._doing and seconds >= _A_WHILE_SECONDS:
            shown = [fitted(f"{self._doing}, {seconds:.0f} s" if seconds >= 1 else self._doing, columns - 3)]
        lines = [f"{self._screen.paint(self._frame, 'blue')} {each}" for each in shown]
        self._screen.show([*lines, f"  and {hidden} more"] if hidden > 0 else lines)


@contextmanager
def moving(screen: Screen, doing: str, *, lasting: bool = False) -> Generator[None]:
    """Shows a live line about the work in the block; without a terminal, prints lines if it is `lasting`."""
    if screen.live or not lasting:
        with Progress(screen, doing).turning():
            yield
        return
    over = Flag()
    began = time.monotonic()

    def tell() -> None:
        screen.err(doing)
        while not over.wait(_LINE_SECONDS):
            screen.err(f"{doing}, {time.monotonic() - began:.0f} s")

    thread = Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def finished_line(call: CallRecord, screen: Screen) -> str:
    """Formats a finished call in one line that fits the screen."""
    columns = screen.size.columns - 3
    called = _called(call)
    if call.error is None:
        waits = call.state == "waiting"  # the execution is paused
        mark, ending = ("…", "waits for a decision") if waits else ("✓", _duration(call.duration_ms or 0))
        called = fitted(called, columns - len(ending) - 1)
        return f"{screen.paint(mark, 'green')} {called} {screen.paint(ending, 'dim')}"
    called = fitted(called, columns // 2)
    message = printable(f"{call.error.name}: {call.error.message}".partition("\n")[0])
    return f"{screen.paint('✗', 'red')} {called} {fitted(message, columns - width(called) - 1)}"


def _called(call: CallRecord) -> str:
    return printable(f"tools.{call.name}({json_text(call.input)})"[:_CALL_CHARS])


def _reported(event: ToolCallProgress) -> str:
    parts = [f"{event.done:g}" if event.total is None else f"{event.done:g}/{event.total:g}", event.message or ""]
    return printable(" ".join(filter(None, parts)).partition("\n")[0]) + " · "


def _duration(milliseconds: float) -> str:
    if milliseconds < 1:
        return "<1 ms"
    return f"{milliseconds:.0f} ms" if milliseconds < 1_000 else f"{milliseconds / 1_000:.1f} s"
