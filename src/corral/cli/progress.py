"""What a run is doing, one line per tool call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import count

from corral import Event, ToolCallFinished, ToolCallRecord, ToolCallStarted
from corral.cli.screen import Screen
from corral.cli.text import fitted, json_text, printable, width

__all__ = ["Progress", "finished_line"]

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.1
_CALL_CHARS = 1_000
"""More of a call than any terminal shows in one line."""


class Progress:
    """Shows calls that run as live lines, and each that has ended as a line that stays."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._running: dict[int, str] = {}
        """What is shown of a call, by the identity of its record: its sequence number is the guest's word."""
        self._frame = _FRAMES[0]

    def see(self, event: Event) -> None:
        match event:
            case ToolCallStarted(call=call):
                self._running[id(call)] = _called(call)
                self._draw()
            case ToolCallFinished(call=call):
                self._running.pop(id(call), None)
                self._draw()
                self._screen.err(finished_line(call, self._screen))
            case _:
                pass

    @asynccontextmanager
    async def turning(self) -> AsyncGenerator[None]:
        """Within the block the running calls' marks turn, where there are live lines."""
        if not self._screen.live:
            yield
            return
        spinning = asyncio.create_task(self._spin())
        try:
            yield
        finally:
            spinning.cancel()
            with suppress(asyncio.CancelledError):
                await spinning
            self._screen.show(())

    async def _spin(self) -> None:
        for turn in count():
            self._frame = _FRAMES[turn % len(_FRAMES)]
            self._draw()
            await asyncio.sleep(_FRAME_SECONDS)

    def _draw(self) -> None:
        columns, rows = self._screen.size
        shown = list(self._running.values())[: max(1, rows - 2)]
        lines = [f"{self._screen.paint(self._frame, 'blue')} {fitted(called, columns - 3)}" for called in shown]
        hidden = len(self._running) - len(shown)
        self._screen.show([*lines, f"  and {hidden} more"] if hidden else lines)


def finished_line(call: ToolCallRecord, screen: Screen) -> str:
    """A call that has ended, in one line that fits the screen."""
    columns = screen.size.columns - 3
    called = _called(call)
    if call.error is None:
        ending = _duration(call.duration_ms or 0)
        called = fitted(called, columns - len(ending) - 1)
        return f"{screen.paint('✓', 'green')} {called} {screen.paint(ending, 'dim')}"
    called = fitted(called, columns // 2)
    message = printable(f"{call.error.name}: {call.error.message}".partition("\n")[0])
    return f"{screen.paint('✗', 'red')} {called} {fitted(message, columns - width(called) - 1)}"


def _called(call: ToolCallRecord) -> str:
    return printable(f"tools.{call.name}({json_text(call.input)})"[:_CALL_CHARS])


def _duration(milliseconds: float) -> str:
    if milliseconds < 1:
        return "<1 ms"
    return f"{milliseconds:.0f} ms" if milliseconds < 1_000 else f"{milliseconds / 1_000:.1f} s"
