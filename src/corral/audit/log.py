"""`AuditLog`: queues audit events and hands them to sinks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import anyio

from corral.arguments import checked
from corral.audit.digests import digest_of
from corral.audit.events import AuditEvent
from corral.audit.sinks.factory import AuditSource, as_sink
from corral.audit.writer import Receipt, Writer
from corral.concurrency.threads import run_in_own_thread, thread_safe_callback
from corral.errors import AccessDenied, ConfigError
from corral.logs import get_logger
from corral.rendering.redaction import redacted
from corral.types import JsonSchema

logger = get_logger("corral.audit")

_PATIENCE_SECONDS = 5.0
_CLOSING_SECONDS = 0.5
"""Least number of seconds that a sink has to close."""
_UNAVAILABLE = "the audit log cannot be written, so no call is let in"


@checked
class AuditLog:
    """Hands events to sinks, each in a thread of its own. May be used from any thread and any event loop.

    `arguments` selects the form of a call's input in events. `record` waits while a sink has more than `queue_events`
    unwritten events. With `when_unavailable="deny"`, calls are denied while a sink cannot be written.

    Raises:
        ConfigError: no sink was given, or something that is not one.
    """

    def __init__(
        self,
        *sinks: AuditSource,
        arguments: Literal["digest", "redacted", "none"] = "digest",
        queue_events: int = 10_000,
        when_unavailable: Literal["deny", "continue"] = "deny",
    ) -> None:
        if not sinks:
            raise ConfigError("AuditLog has no sink; pass a path, a URL, a sink or a function")
        if queue_events < 1:
            raise ConfigError(f"AuditLog: queue_events={queue_events} is too small; it must be at least 1")
        self._arguments = arguments
        self._denies = when_unavailable == "deny"
        self._writers = [Writer(as_sink(sink), queue_events=queue_events) for sink in sinks]

    async def record(self, event: AuditEvent) -> None:
        """Queues an event. Returns at once if there is room, else once it is written, at the latest after some seconds.

        If a sink has failed until twice `queue_events` wait, the event goes to the logger instead.
        """
        full: list[Writer] = []
        for writer in self._writers:
            if not writer.put(event):
                full.append(writer)  # noqa: PERF401 - a comprehension takes longer
        if full:
            await self._written(event, full)

    async def record_durably(self, event: AuditEvent) -> None:
        """Returns once every sink has stored the event. It stays queued if the caller is cancelled.

        Raises:
            AccessDenied: a sink fails now, or was too slow; it may store the event later.
        """
        if not await self._written(event, self._writers):
            raise AccessDenied(_UNAVAILABLE)

    def check(self) -> None:
        """Raises AccessDenied while a sink cannot be written, unless `when_unavailable` is "continue"."""
        if self._denies:
            for writer in self._writers:
                if writer.unavailable:
                    raise AccessDenied(_UNAVAILABLE)

    @property
    def copies_arguments(self) -> bool:
        """True if `shown` needs the schema."""
        return self._arguments == "redacted"

    def shown(self, input: object, schema: JsonSchema | None = None) -> object:
        """An event's copy of a call's input, as JSON. Never raises; costs as much as encoding the input."""
        try:
            match self._arguments:
                case "digest":
                    return digest_of(input)
                case "redacted":
                    return redacted(input, schema)
                case _:
                    return None
        except Exception:  # an object of the host that cannot be printed
            return "[cannot be shown]"

    async def flush(self) -> None:
        """Returns once all recorded events are written.

        Raises:
            TimeoutError: a sink fails now, or was too slow. The events stay queued.
        """
        if not await self._written(None, self._writers):
            raise TimeoutError("audit events are not written yet, as a sink fails or is slow; they stay queued")

    async def aclose(self) -> None:
        """Flushes and ends the threads, within some seconds. Unwritten events stay queued; their number is logged.

        The log may be used again, which starts the threads again.
        """
        closed_by = time.monotonic() + _PATIENCE_SECONDS
        try:
            with suppress(TimeoutError):
                await self.flush()
        finally:
            seconds = max(_CLOSING_SECONDS, closed_by - time.monotonic())
            async with anyio.create_task_group() as tasks:
                for writer in self._writers:
                    tasks.start_soon(self._close, writer, seconds)

    async def _close(self, writer: Writer, within_seconds: float) -> None:
        await run_in_own_thread(writer.close, within_seconds, abandon_on_cancel=True)
        if unwritten := writer.unwritten:
            logger.error("the audit log is closed; %r has not taken %d events", writer.sink, unwritten)

    async def _written(self, event: AuditEvent | None, writers: Sequence[Writer]) -> bool:
        """True if all sinks wrote it in time. An event does not wait for a sink that is known to fail."""
        done = anyio.Event()
        receipt = Receipt(writers, thread_safe_callback(done.set))
        for writer in writers:
            if not writer.put_with_receipt(event, receipt):
                logger.error("%r has no room for the audit event %s", writer.sink, event and event.to_json())
                receipt.sign(writer, written=False)
            elif event is not None and writer.unavailable:
                receipt.sign(writer, written=False)
        with anyio.move_on_after(_PATIENCE_SECONDS):
            await done.wait()
        return receipt.complete


def as_audit_log(source: AuditLog | AuditSource) -> AuditLog:
    """The log itself, or one with its defaults and that sink. Raises ConfigError."""
    return source if isinstance(source, AuditLog) else AuditLog(source)
