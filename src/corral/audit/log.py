"""`AuditLog`: what the guards hand their events to."""

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

__all__ = ["AuditLog", "as_audit_log"]

logger = get_logger("corral.audit")

_PATIENCE_SECONDS = 5.0
_CLOSING_SECONDS = 0.5
"""Least number of seconds that a sink has to close."""
_UNAVAILABLE = "the audit log cannot be written, so no call is let in"


@checked
class AuditLog:
    """Hands events to sinks, each in a thread of its own. May be used from any thread and any event loop.

    `arguments` says what events hold of a call's input. Over `queue_events` that a sink has not taken yet, `record`
    waits. While a sink cannot be written and `when_unavailable` is "deny", no call is let in.

    Raises:
        ConfigError: there is no sink, or it is none.
    """

    def __init__(
        self,
        *sinks: AuditSource,
        arguments: Literal["digest", "redacted", "none"] = "digest",
        queue_events: int = 10_000,
        when_unavailable: Literal["deny", "continue"] = "deny",
    ) -> None:
        if not sinks:
            raise ConfigError("an AuditLog needs a sink")
        if queue_events < 1:
            raise ConfigError("queue_events is at least 1")
        self._arguments = arguments
        self._denies = when_unavailable == "deny"
        self._writers = [Writer(as_sink(sink), queue_events=queue_events) for sink in sinks]

    async def record(self, event: AuditEvent) -> None:
        """Queues an event. Returns at once if there is room; else when it is written, or after some seconds.

        Where a sink has failed for so long that twice the queue is full, the event goes to the logger instead.
        """
        full: list[Writer] = []
        for writer in self._writers:
            if not writer.put(event):
                full.append(writer)  # noqa: PERF401 - a comprehension takes longer
        if full:
            await self._written(event, full)

    async def record_durably(self, event: AuditEvent) -> None:
        """Returns when every sink has the event for good; cancelled or not, it is queued.

        Raises:
            AccessDenied: a sink fails now, or did not take it within some seconds. It may yet.
        """
        if not await self._written(event, self._writers):
            raise AccessDenied(_UNAVAILABLE)

    def check(self) -> None:
        """Raises AccessDenied while a sink cannot be written, unless this log is to go on regardless."""
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
        """Returns when all that was recorded is written.

        Raises:
            TimeoutError: a sink fails now, or did not take it within some seconds. It is still queued.
        """
        if not await self._written(None, self._writers):
            raise TimeoutError("there are audit events that are not written yet")

    async def aclose(self) -> None:
        """Flushes, and ends the threads, within some seconds. What a sink does not take stays queued, and the logger is
        told how much.

        The log may be used again; then the threads are started again.
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
