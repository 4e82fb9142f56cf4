"""Spans and the metric, as the real SDK exports them."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from corral.audit import AuditEvent, AuditLog, OpenTelemetrySink
from tests.audit.events import POISON, event

pytestmark = pytest.mark.anyio


async def exported(*events: AuditEvent) -> tuple[list[ReadableSpan], list[Any]]:
    """The spans, and the points of the histogram."""
    spans, metrics = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([metrics])
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    log = AuditLog(OpenTelemetrySink(tracer_provider=tracers, meter_provider=meters))
    for each in events:
        await log.record(each)
    await log.aclose()
    found: Any = metrics.get_metrics_data()
    points: list[Any] = []
    if found is not None:
        [scope] = found.resource_metrics[0].scope_metrics
        points = [(metric.name, metric.unit, point) for metric in scope.metrics for point in metric.data.data_points]
    tracers.shutdown()
    meters.shutdown()
    return list(spans.get_finished_spans()), points


async def test_a_call_is_a_span_with_its_own_times_and_a_duration() -> None:
    called = event(
        time=1_700_000_000.25, duration_ms=500.0, tool="orders.find", execution_id="execution-1", sequence=3,
        session_id="s", user_id="u", organization_id="o", outcome="failed", code="tool_failed", correlation_id="c1",
    )  # fmt: skip
    [span], [(name, unit, point)] = await exported(called)
    assert span.name == "execute_tool orders.find"
    assert (span.start_time, span.end_time) == (1_700_000_000_250_000_000, 1_700_000_000_750_000_000)
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "orders.find",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "execution-1:3",
        "gen_ai.conversation.id": "s",
        "error.type": "tool_failed",
        "user.id": "u",
        "corral.organization.id": "o",
        "corral.execution.id": "execution-1",
        "corral.event.id": called.id,
        "corral.outcome": "failed",
        "corral.correlation.id": "c1",
        "corral.protocol": "pipe",
    }
    assert (name, unit, point.sum) == ("gen_ai.execute_tool.duration", "s", 0.5)
    assert dict(point.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "orders.find",
        "error.type": "tool_failed",
    }


async def test_an_execution_is_a_span_without_a_duration_of_a_tool() -> None:
    ran = event(kind="execution", tool=None, language="typescript", isolation="landlock", calls=2, program="sha256:0")
    [span], points = await exported(ran)
    assert span.name == "execute_program"
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["corral.calls"] == 2
    assert points == []


async def test_a_program_cannot_make_up_series_of_the_metric() -> None:
    spans, points = await exported(
        *(event(tool=f"made_up_{number}", outcome="failed", code="tool_not_found") for number in range(50))
    )
    assert {span.name for span in spans} == {"execute_tool"}
    assert len({str((span.attributes or {})["gen_ai.tool.name"]) for span in spans}) == 50
    assert [point.count for _, _, point in points] == [50]


async def test_hostile_fields_are_exported() -> None:
    spans, _ = await exported(*(event(**fields) for fields in POISON.values()))
    assert len(spans) == len(POISON)
