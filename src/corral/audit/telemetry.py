"""Spans and metrics of OpenTelemetry for executions and their calls.

Names follow the semantic conventions for generative AI. These are still in development, so they are listed here. Other
attributes and metrics begin with `corral.`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from corral.arguments import checked
from corral.errors import AccessDenied, ExecutionEnded, ToolNotFound, requires_extra
from corral.types import CallError, ExecutionContext, ExecutionError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

_NOT_LOOKED_UP = frozenset({ToolNotFound.code, AccessDenied.code, ExecutionEnded.code})
"""Error codes of calls that were refused before their tool was looked up."""


@checked
class Telemetry:
    """Spans and metrics of executions and calls, for `Corral(telemetry=...)`.

    An execution's span `execute_program` is a child of the current span. Each of its calls has a child span
    `execute_tool <name>`, which is current while the tool runs. Attributes do not contain inputs or outputs; the
    message of a failed span can contain a part of an input. Metrics are `corral.execution.duration` and
    `gen_ai.execute_tool.duration` in seconds, `corral.execution.active`, and `corral.ledger.bytes`.

    Providers default to the process's global ones; without any, nothing is recorded.

    Raises:
        MissingExtra: a provider was passed, but `corral[otel]` is not installed.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._providers = tracer_provider, meter_provider
        self._is_given = tracer_provider is not None or meter_provider is not None
        self._instruments = Instruments(*self._providers) if self._is_given else None

    def __repr__(self) -> str:
        return "Telemetry()"

    def instruments(self) -> Instruments | None:
        """Returns the providers' instruments; None if nothing would receive their data."""
        if not self._is_given:
            api = sys.modules.get("opentelemetry.trace")
            if api is None or (isinstance(api.get_tracer_provider(), api.ProxyTracerProvider) and not _has_meters()):
                return None
            if self._instruments is None:
                self._instruments = Instruments(*self._providers)
        return self._instruments


class Ended:
    """Outcome of an execution or a call, for its span and metrics."""

    __slots__ = ("attributes", "began", "error", "seconds")

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.seconds = 0.0
        self.attributes: dict[str, Any] = {}
        """Attributes of both the span and the metric; each has few possible values."""
        self.error: str | None = None

    @property
    def is_unknown(self) -> bool:
        """True if the tool's name can be any text: guests must not create metric series or span names."""
        return self.attributes.get("error.type") in _NOT_LOOKED_UP

    def failed(self, error: CallError | ExecutionError | None) -> None:
        if error is not None:
            self.attributes["error.type"] = error.code
            self.error = error.message


class Instruments:
    """Tracer and metrics of one Corral."""

    def __init__(self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None) -> None:
        with requires_extra("Telemetry", "otel"):
            from opentelemetry import metrics, trace
        self._trace = trace
        self._tracer = trace.get_tracer("corral", tracer_provider=tracer_provider)
        meter = metrics.get_meter("corral", meter_provider=meter_provider)
        self._calls = meter.create_histogram(
            "gen_ai.execute_tool.duration", unit="s", description="Duration of tool calls."
        )
        self._executions = meter.create_histogram(
            "corral.execution.duration", unit="s", description="Duration of executions."
        )
        self._recorded = meter.create_counter(
            "corral.ledger.bytes", unit="By", description="Bytes of the calls of durable executions on record."
        )
        self._running = meter.create_up_down_counter(
            "corral.execution.active", unit="{execution}", description="Executions under way."
        )

    @contextmanager
    def execution(self, language: str, context: ExecutionContext, execution_id: str) -> Generator[Ended]:
        """Makes an execution's span current during the block. The block records the outcome."""
        ended = Ended()
        attributes = {
            "gen_ai.conversation.id": context.session_id,
            "user.id": context.user_id,
            "corral.organization.id": context.organization_id,
            "corral.execution.id": execution_id,
            "corral.language": language,
        }
        measured = {"corral.language": language}
        self._running.add(1, measured)
        try:
            with self._span("execute_program", attributes, ended):
                yield ended
        finally:
            self._running.add(-1, measured)
            self._executions.record(ended.seconds, measured | ended.attributes)

    def recorded(self, tool: str, organization_id: str | None, size: int) -> None:
        """Counts bytes of a tool's calls in a ledger."""
        attributes = {"gen_ai.tool.name": tool, "corral.organization.id": organization_id}
        self._recorded.add(size, {name: value for name, value in attributes.items() if value is not None})

    @contextmanager
    def call(self, tool: str, execution_id: str, sequence: int) -> Generator[Ended]:
        """Makes a call's span current during the block. The block records the outcome."""
        ended = Ended()
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": f"{execution_id}:{sequence}",
            "corral.execution.id": execution_id,
        }
        try:
            with self._span(f"execute_tool {tool}", attributes, ended):
                yield ended
        finally:
            measured = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool} | ended.attributes
            if ended.is_unknown:
                del measured["gen_ai.tool.name"]
            self._calls.record(ended.seconds, measured)

    @contextmanager
    def _span(self, name: str, attributes: Mapping[str, str | None], ended: Ended) -> Generator[None]:
        span: Span = self._tracer.start_span(
            name, attributes={key: value for key, value in attributes.items() if value is not None}
        )
        try:
            with self._trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except BaseException as error:
            ended.attributes["error.type"] = type(error).__name__
            ended.error = ""
            raise
        finally:
            ended.seconds = time.perf_counter() - ended.began
            span.set_attributes(ended.attributes)
            if ended.is_unknown:
                span.update_name("execute_tool")
            if ended.error is not None:
                span.set_status(self._trace.StatusCode.ERROR, ended.error[:1_000])
            span.end()


def _has_meters() -> bool:
    """True if the process has a meter provider."""
    api = sys.modules.get("opentelemetry.metrics")
    return api is not None and not type(api.get_meter_provider()).__module__.startswith("opentelemetry.metrics")
