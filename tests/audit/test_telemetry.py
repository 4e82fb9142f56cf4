"""Spans and metrics, as the real SDK exports them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from corral import Corral, ExecutionContext, ToolError, tool
from corral.audit import Telemetry
from corral.ledger import MemoryLedger
from corral.sandboxes import DenoSandbox
from corral.tools import traced_elsewhere

pytestmark = pytest.mark.anyio


@tool
async def find(order: int) -> str:
    with trace.get_tracer("shop", tracer_provider=PROVIDERS[-1]).start_as_current_span("select"):
        return f"order {order}"


@tool
async def close() -> None:
    raise ToolError("it is closed")


PROVIDERS: list[TracerProvider] = []


@dataclass
class Seen:
    corral: Corral
    tracer: trace.Tracer
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    points: dict[str, list[tuple[dict[str, Any], Any]]] = field(default_factory=dict)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def measured(self) -> dict[str, list[Any]]:
        data: Any = self.reader.get_metrics_data()
        [scope] = data.resource_metrics[0].scope_metrics
        return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


@asynccontextmanager
async def traced(sandbox: DenoSandbox, **options: Any) -> AsyncGenerator[Seen]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    PROVIDERS.append(tracers)
    telemetry = Telemetry(tracer_provider=tracers, meter_provider=meters)
    async with Corral([find, close], sandbox=sandbox, check=False, telemetry=telemetry, **options) as corral:
        yield Seen(corral, tracers.get_tracer("host"), exporter, reader)
    PROVIDERS.pop()
    tracers.shutdown()
    meters.shutdown()


async def test_an_execution_and_its_calls_are_children_of_the_current_span(warm_deno: DenoSandbox) -> None:
    ada = ExecutionContext(user_id="ada", session_id="s", organization_id="o")
    async with traced(warm_deno) as seen:
        with seen.tracer.start_as_current_span("request"):
            result = await seen.corral.execute(
                "await tools.find({ order: 7 }); await tools.close().catch(() => {})", context=ada
            )
    spans = seen.spans()
    ran, found, closed = spans["execute_program"], spans["execute_tool find"], spans["execute_tool close"]
    assert [span.parent for span in (ran, found, closed, spans["select"])] == [
        spans["request"].context, ran.context, ran.context, found.context,
    ]  # fmt: skip
    assert dict(ran.attributes or {}) == {
        "gen_ai.conversation.id": "s",
        "user.id": "ada",
        "corral.organization.id": "o",
        "corral.execution.id": result.execution_id,
        "corral.language": "typescript",
        "corral.status": "succeeded",
        "corral.containment": result.containment,
    }
    assert dict(closed.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "close",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": f"{result.execution_id}:2",
        "corral.execution.id": result.execution_id,
        "error.type": "tool_error",
    }
    assert (closed.status.status_code, closed.status.description) == (StatusCode.ERROR, "it is closed")
    assert found.status.status_code is StatusCode.UNSET


async def test_executions_and_calls_are_measured(warm_deno: DenoSandbox) -> None:
    async with traced(warm_deno) as seen:
        await seen.corral.execute("await tools.find({ order: 7 }); await tools.find({ order: 8 })")
        await seen.corral.execute("await tools.close()")
        measured = seen.measured()
    calls = {
        (point.attributes["gen_ai.tool.name"], point.attributes.get("error.type")): point.count
        for point in measured["gen_ai.execute_tool.duration"]
    }
    assert calls == {("find", None): 2, ("close", "tool_error"): 1}
    ends = {point.attributes["corral.status"]: point.count for point in measured["corral.execution.duration"]}
    assert ends == {"succeeded": 1, "failed": 1}
    assert [point.value for point in measured["corral.execution.active"]] == [0]


async def test_bytes_of_durable_calls_are_measured_by_tool_and_organization(warm_deno: DenoSandbox) -> None:
    program = "await tools.find({ order: 7 }); await (tools as any).made_up().catch(() => {})"
    async with traced(warm_deno, ledger=MemoryLedger()) as seen:
        await seen.corral.execute(program, durable=True, context=ExecutionContext(organization_id="o"))
        [point] = seen.measured()["corral.ledger.bytes"]
    assert dict(point.attributes) == {"gen_ai.tool.name": "find", "corral.organization.id": "o"}
    assert point.value > 200


async def test_a_program_cannot_make_up_series_of_a_metric_or_names_of_spans(warm_deno: DenoSandbox) -> None:
    program = "for (let n = 0; n < 20; n++) await (tools as any)[`made_up_${n}`]().catch(() => {})"
    async with traced(warm_deno) as seen:
        await seen.corral.execute(program)
        measured = seen.measured()
    assert seen.spans().keys() == {"execute_program", "execute_tool"}
    [point] = measured["gen_ai.execute_tool.duration"]
    assert (point.count, point.attributes["error.type"]) == (20, "tool_not_found")


async def test_calls_that_a_framework_traces_have_one_span(warm_deno: DenoSandbox) -> None:
    async with traced(warm_deno) as seen:
        before = traced_elsewhere.set({"find"})
        await seen.corral.execute("await tools.find({ order: 7 })")
        traced_elsewhere.reset(before)
    assert seen.spans().keys() == {"execute_program", "select"}


GLOBAL = """
import asyncio
from corral import Corral, tool

@tool
async def find() -> int:
    return 1

async def main(names):
    async with Corral([find], sandbox="deno", check=False) as corral:
        await corral.execute("await tools.find()")
        print([span.name for span in names()])
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        await corral.execute("await tools.find()")
        print([span.name for span in exporter.get_finished_spans()])

asyncio.run(main(list))
"""


def test_the_provider_of_the_process_is_used_from_when_it_is_set() -> None:
    done = subprocess.run([sys.executable, "-c", GLOBAL], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["[]", "['execute_tool find', 'execute_program']"]
