import sys
from collections.abc import Sequence

from ask import agent
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from pydantic_ai.capabilities import Instrumentation


class Tree(SpanExporter):
    """Prints the spans as a tree when the outermost one ends. A real service sends them elsewhere."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        if spans[-1].parent is None:
            self.show(None, 0)
        return SpanExportResult.SUCCESS

    def show(self, parent: int | None, depth: int) -> None:
        below = [each for each in self.spans if (each.parent and each.parent.span_id) == parent]
        for each in sorted(below, key=lambda each: (each.start_time, each.name)):
            print("  " * depth + each.name)
            self.show(each.context and each.context.span_id, depth + 1)


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Tree()))
trace.set_tracer_provider(provider)

print(agent.run_sync(sys.argv[1], capabilities=[Instrumentation()]).output)
