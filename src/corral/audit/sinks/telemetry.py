"""Events as spans and a metric of OpenTelemetry.

Names are those of the semantic conventions for generative AI, which are still in development and therefore listed
here. Attributes without such a name begin with `corral.`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from corral.arguments import checked
from corral.audit.events import AuditEvent
from corral.audit.sinks.base import AuditSink
from corral.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

__all__ = ["OpenTelemetrySink"]

_NOT_LOOKED_UP = frozenset({"tool_not_found", "invalid_token", "execution_ended", "access_denied"})
"""Codes of calls whose tool may be any text: a guest must not make up as many series of a metric as it likes."""
_ATTRIBUTES = {
    "gen_ai.tool.name": "tool",
    "gen_ai.conversation.id": "session_id",
    "error.type": "code",
    "user.id": "user_id",
    "corral.organization.id": "organization_id",
    "corral.execution.id": "execution_id",
    "corral.event.id": "id",
    "corral.outcome": "outcome",
    "corral.correlation.id": "correlation_id",
    "corral.protocol": "protocol",
    "corral.language": "language",
    "corral.isolation": "isolation",
    "corral.calls": "calls",
    "corral.program": "program",
    "corral.decision": "decision",
    "corral.decided_by": "decided_by",
}


@checked
class OpenTelemetrySink(AuditSink):
    """A span for each event, with the event's own times, and the duration of calls as a histogram.

    Without providers, the global ones of the process. Spans are handed to the provider without waiting, so durability
    is up to it.

    Raises:
        MissingExtra: `corral[otel]` is not installed.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise MissingExtra("OpenTelemetrySink needs opentelemetry-api: pip install 'corral[otel]'") from None
        self._failed = trace.StatusCode.ERROR
        self._tracer = trace.get_tracer("corral", tracer_provider=tracer_provider)
        self._durations = metrics.get_meter("corral", meter_provider=meter_provider).create_histogram(
            "gen_ai.execute_tool.duration", unit="s", description="How long tool calls took."
        )

    def __repr__(self) -> str:
        return "OpenTelemetrySink()"

    def write(self, events: Sequence[AuditEvent]) -> None:
        for event in events:
            self._write(event)

    def _write(self, event: AuditEvent) -> None:
        named = {name: getattr(event, field) for name, field in _ATTRIBUTES.items()}
        attributes = {name: value for name, value in named.items() if value is not None}
        measured = {"gen_ai.operation.name": "execute_tool"}
        if event.kind == "execution":
            name = "execute_program"
        elif event.kind == "request":
            name = "program_request"
        else:
            tool = "" if event.tool is None or event.code in _NOT_LOOKED_UP else event.tool
            name = f"execute_tool {tool}".rstrip()
            measured |= {"gen_ai.tool.name": tool} if tool else {}
            measured |= {"error.type": event.code} if event.code is not None else {}
            attributes |= {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": f"{event.execution_id}:{event.sequence}",
            }
            self._durations.record(event.duration_ms / 1000, measured)
        start = round(event.time * 1e6) * 1000  # nanoseconds, of which a float does not hold the last three digits
        span = self._tracer.start_span(name, start_time=start, attributes=attributes)
        if event.outcome != "succeeded":
            span.set_status(self._failed, event.reason or event.code)
        span.end(start + round(event.duration_ms * 1e6))
