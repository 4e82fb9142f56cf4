"""Notifications about a running program: progress of its calls, and its console as log messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.server import ServerRequestContext
from mcp_types import LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParams

from corral.events import ConsoleOutput, Event, ToolCallFinished, ToolCallProgress, ToolCallStarted
from corral.integrations.mcp.sessions import LEVELS
from corral.rendering.preview import preview_json, preview_text
from corral.types import LogLevel

_PAUSE_SECONDS = 0.1
"""Pause between two bursts of notices."""
_BURST = 100
"""Maximum number of notices in a burst; further ones are only counted."""
_TEXT_CHARS = 8_000
"""Maximum number of characters of console output in a notification."""
_CALL_CHARS = 300
_LOGGER = "program"
_LOG_LEVELS: Mapping[LogLevel, LoggingLevel] = {
    "debug": "debug",
    "log": "info",
    "info": "info",
    "warn": "warning",
    "error": "error",
}


@dataclass(slots=True)
class _Progress:
    message: str
    sequence: int | None = None
    """Number of the call that reported progress; a later report of the call replaces this one."""


@dataclass(slots=True)
class _Printed:
    level: LoggingLevel
    text: str


class Notices:
    """Notifications of a program. Up to one burst is kept while no client listens."""

    def __init__(self) -> None:
        self._held: list[_Progress | _Printed] = []
        self._dropped = 0
        self._news = anyio.Event()
        self._count = 0
        """Progress must rise with each notice (MCP, progress); the total is unknown."""
        self._level: LoggingLevel | None = None

    def see(self, event: Event) -> None:
        """Adds a notice for an event; for `Corral.execute(on_event=...)`."""
        match event:
            case ToolCallStarted(call=call):
                shown = preview_json(call.input, _CALL_CHARS) if self._has_room else ""
                self._hold(_Progress(f"{call.name} {shown}"))
            case ToolCallProgress():
                self._report(event)
            case ToolCallFinished(call=call):
                ending = f"{call.duration_ms or 0:.0f} ms" if call.error is None else call.error.message
                self._hold(_Progress(preview_text(f"{call.name}: {ending}", _CALL_CHARS)))
            case ConsoleOutput(entry=entry):
                self._print(_Printed(_LOG_LEVELS[entry.level], preview_text(entry.text, _TEXT_CHARS)))
            case _:
                pass

    @asynccontextmanager
    async def sent(self, request: ServerRequestContext[Any, Any], level: LoggingLevel | None) -> AsyncGenerator[None]:
        """Sends notices to the request's client until the end of the block. `level` is for the console."""
        self._level = level
        over = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_all, request, over)
            try:
                yield
            except BaseException:
                tasks.cancel_scope.cancel()
                raise
            over.set()
            self._news.set()

    def _report(self, event: ToolCallProgress) -> None:
        done = f"{event.done:g}" if event.total is None else f"{event.done:g}/{event.total:g}"
        text = preview_text(f"{event.tool}: {done}{f' {event.message}' if event.message else ''}", _CALL_CHARS)
        for held in self._held:
            if isinstance(held, _Progress) and held.sequence == event.sequence:
                held.message = text
                return
        self._hold(_Progress(text, event.sequence))

    def _print(self, printed: _Printed) -> None:
        """Adds printed lines; joins consecutive ones of the same level."""
        if self._level is None or LEVELS.index(printed.level) < LEVELS.index(self._level):
            return
        last = self._held[-1] if self._held else None
        if isinstance(last, _Printed) and last.level == printed.level:
            joined = f"{last.text}\n{printed.text}"
            if len(joined) <= _TEXT_CHARS:
                last.text = joined
                return
        self._hold(printed)

    @property
    def _has_room(self) -> bool:
        return len(self._held) < _BURST

    def _hold(self, notice: _Progress | _Printed) -> None:
        if self._has_room:
            self._held.append(notice)
        else:
            self._dropped += 1
        self._news.set()

    async def _send_all(self, request: ServerRequestContext[Any, Any], over: anyio.Event) -> None:
        while not over.is_set() or self._held:
            await self._news.wait()
            self._news = anyio.Event()
            held, self._held = self._held, []
            if self._dropped:
                held.append(_Progress(f"{self._dropped} more not shown"))
                self._dropped = 0
            for notice in held:
                await self._send(notice, request)
            with anyio.move_on_after(_PAUSE_SECONDS):
                await over.wait()

    async def _send(self, notice: _Progress | _Printed, request: ServerRequestContext[Any, Any]) -> None:
        """Sends a notice; the SDK drops it unless the client requested its kind."""
        session = request.session
        if isinstance(notice, _Progress):
            self._count += 1
            await session.report_progress(self._count, message=notice.message)
        else:
            params = LoggingMessageNotificationParams(level=notice.level, logger=_LOGGER, data=notice.text)
            await session.send_notification(LoggingMessageNotification(params=params), request.request_id)
