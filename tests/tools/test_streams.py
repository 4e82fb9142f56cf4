"""Tools that yield, of every shape: what they yield is a list, within a bound, and they are closed in any case."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionContext, ExecutionResult, Limits, Tool, ToolCall, ToolError, define_tool, tool
from corral.errors import InvalidToolOutput, ToolDefinitionError
from corral.model import declare_python, declare_typescript
from corral.tools import ToolRegistry
from corral.types import Language
from tests.conftest import both_loops
from tests.until import until

pytestmark = pytest.mark.anyio


class Counter:
    """Counts."""

    @classmethod
    async def of_class(cls, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    @staticmethod
    def static(n: int) -> Iterator[int]:
        yield from range(n)

    def bound(self, n: int) -> Generator[int, None, None]:
        yield from range(n)

    def __call__(self, n: int) -> Iterable[int]:
        yield from range(n)


class AsyncCounter:
    async def __call__(self, n: int) -> AsyncGenerator[int, None]:
        for number in range(n):
            await anyio.lowlevel.checkpoint()
            yield number


class Shelf:
    """An async iterator that is no generator."""

    def __init__(self, n: int) -> None:
        self.left = iter(range(n))

    def __aiter__(self) -> Shelf:
        return self

    async def __anext__(self) -> int:
        for number in self.left:
            return number
        raise StopAsyncIteration


async def iterator_of_its_own(n: int) -> AsyncIterable[int]:
    return Shelf(n)


async def another_ones(n: int) -> AsyncIterator[int]:
    return Counter.of_class(n)


async def expression(n: int) -> Iterator[int]:
    return (number for number in range(n))


def mapped(n: int) -> Iterator[int]:
    return map(int, range(n))


def unannotated(n: int):  # pyright: ignore[reportUnknownParameterType]
    yield from range(n)


def bare(n: int) -> Iterator:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]
    yield from range(n)


async def from_document(input: dict[str, Any]) -> AsyncIterator[int]:
    for number in range(input["n"]):
        yield number


SHAPES: dict[str, Callable[..., Any]] = {
    "class_method": Counter.of_class,
    "static_method": Counter.static,
    "bound_method": Counter().bound,
    "callable_object": Counter(),
    "async_callable_object": AsyncCounter(),
    "partial": functools.partial(Counter().bound),
    "partial_of_object": functools.partial(AsyncCounter()),
    "returned_iterator": iterator_of_its_own,
    "returned_generator": another_ones,
    "generator_expression": expression,
    "mapped": mapped,
    "unannotated": unannotated,
    "bare": bare,
}


async def run(tools: list[Tool], program: str, **limits: Any) -> ExecutionResult:
    return await Corral(tools, check=False, limits=Limits(**limits)).execute(program)


def test_an_iterator_is_declared_as_an_array_of_its_items() -> None:
    untyped = {"unannotated", "bare"}
    for name, function in SHAPES.items():
        schema = tool(name=name)(function).output_schema
        assert schema == {"type": "array", "items": {} if name in untyped else {"type": "integer"}}


@both_loops
async def test_what_a_tool_yields_is_a_list_whatever_the_tool_is() -> None:
    tools: list[Tool] = [tool(name=name)(function) for name, function in SHAPES.items()]
    tools.append(define_tool(name="from_document", input_schema={"type": "object"}, execute=from_document))
    result = await run(
        tools,
        "const all = Object.keys(tools).map(async (name) => [name, await tools[name]({ n: 2 })]);"
        "return Object.fromEntries(await Promise.all(all));",
    )
    assert result.value == {name: [0, 1] for name in [*SHAPES, "from_document"]}


async def test_names_and_descriptions_come_from_what_a_partial_calls() -> None:
    made = tool(functools.partial(Counter()))
    assert (made.name, made.description) == ("Counter", "Counts.")


async def test_inputs_are_validated_and_the_context_passed_on() -> None:
    @tool
    async def who(n: int, context: ExecutionContext) -> AsyncIterator[str]:
        for _ in range(n):
            yield context.user_id

    result = await run([who], "try { await tools.who({}) } catch (e) { return [e.code, await tools.who({ n: 1 })] }")
    assert result.value == ["invalid_arguments", ["anonymous"]]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_an_error_after_some_items_is_the_failure_of_the_call(kind: str) -> None:
    @tool(name="t")
    async def in_loop() -> AsyncIterator[int]:
        yield 1
        raise ToolError("in the middle")

    @tool(name="t")
    def in_thread() -> Iterator[int]:
        yield 1
        raise ToolError("in the middle")

    result = await run([in_loop if kind == "async" else in_thread], "return await tools.t()")
    assert result.error is not None
    assert (result.error.name, result.error.message) == ("ToolError", "in the middle")


async def test_an_item_of_another_type_is_a_wrong_result() -> None:
    @tool(validate_output="strict")
    def wrong() -> Iterator[int]:
        yield 1
        yield "two"  # pyright: ignore[reportReturnType]

    context = ExecutionContext()
    with pytest.raises(InvalidToolOutput, match=r"\[1\]: expected integer"):
        await wrong.dump_output(await wrong.execute(await wrong.parse_input({}), ToolCall(context)))


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_tool_that_never_ends_is_closed_when_it_has_yielded_too_much(kind: str) -> None:
    closed: list[str] = []

    @tool(name="t")
    async def in_loop() -> AsyncIterator[Any]:
        try:
            while True:
                yield {"text": ["x" * 1000]}
        finally:
            closed.append("async")

    @tool(name="t")
    def in_thread() -> Iterator[Any]:
        try:
            while True:
                yield {"text": ["x" * 1000]}
        finally:
            closed.append("sync")

    program = "try { await tools.t() } catch (e) { return [e.code, e.message] }"
    result = await run([in_loop if kind == "async" else in_thread], program, tool_output_bytes=100_000)
    assert result.value == [
        "message_too_large",
        "tools.t ran, and was stopped: it yields more than the 100000 bytes allowed; ask for less at a time",
    ]
    assert closed == [kind]


async def test_a_list_a_little_over_the_limit_is_refused_as_any_result_is() -> None:
    @tool
    def t() -> Iterator[str]:
        yield from ["x" * 100] * 20

    result = await run([t], "return await tools.t()", tool_output_bytes=1000)
    assert result.error is not None
    assert "it has 2061 bytes, and 1000 are allowed" in result.error.message


@both_loops
async def test_a_tool_that_is_cancelled_is_closed() -> None:
    closed: list[str] = []

    @tool(timeout_seconds=0.05)
    async def waits() -> AsyncIterator[int]:
        try:
            yield 1
            await anyio.sleep_forever()
        finally:
            closed.append("waits")

    @tool(timeout_seconds=0.05)
    async def never_waits() -> AsyncIterator[None]:
        try:
            while True:
                yield None
        finally:
            closed.append("never_waits")

    program = "try { await tools.NAME() } catch (e) { return e.message }"
    for each in (waits, never_waits):
        result = await run([each], program.replace("NAME", each.name), tool_output_bytes=1_000_000_000)
        assert result.value == f"tools.{each.name} did not answer within 0.05 s; it may have taken effect"
    assert closed == ["waits", "never_waits"]


@both_loops
async def test_a_thread_whose_call_is_cancelled_stops_at_the_next_item() -> None:
    began, may_go_on, closed = threading.Event(), threading.Event(), threading.Event()

    @tool
    def t() -> Iterator[int]:
        try:
            yield 1
            began.set()
            may_go_on.wait()
            while True:
                yield 2
        finally:
            closed.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(run, [t], "await tools.t()", tool_output_bytes=10**12))
        await until(began.is_set)
        tasks.cancel_scope.cancel()
    may_go_on.set()
    assert await anyio.to_thread.run_sync(closed.wait, 10)


# --- streams


def test_a_stream_says_what_it_yields() -> None:
    @tool(stream=True)
    async def rows() -> AsyncIterator[dict[str, int]]:
        """Rows."""
        yield {}

    @tool(stream=True)
    def untyped():  # pyright: ignore[reportUnknownParameterType]
        yield 1

    registry = ToolRegistry(rows, untyped)
    assert rows.output_schema == {"additionalProperties": {"type": "integer"}, "type": "object"}
    assert untyped.output_schema is None
    typescript = declare_typescript(registry.snapshot())
    assert "rows(): AsyncIterable<Record<string, number>>;" in typescript
    assert "untyped(): AsyncIterable<unknown>;" in typescript
    python = declare_python(registry.snapshot())
    assert "    def rows() -> AsyncIterator[dict[str, int]]:" in python
    assert "from typing import Any, AsyncIterator" in python
    assert "    async def" not in python


@pytest.mark.parametrize("annotation", [int, list[int], None])
def test_a_stream_that_is_annotated_as_something_else_is_refused(annotation: Any) -> None:
    def wrong() -> None: ...

    wrong.__annotations__["return"] = annotation
    with pytest.raises(ToolDefinitionError, match="annotate a stream with the type it yields"):
        tool(stream=True)(wrong)


@pytest.mark.parametrize("made", [5, "text", b"bytes", {"a": 1}, None])
async def test_a_stream_that_gives_nothing_to_iterate_over_fails(made: Any) -> None:
    def make(_: object) -> Any:
        return made

    stream = define_tool(name="made", execute=make, stream=True)
    with pytest.raises(TypeError, match="instead of an iterator"):
        await stream.open_stream(await stream.parse_input({}), ToolCall(ExecutionContext()))


def test_a_prompt_speaks_of_streams_only_where_there_are_some() -> None:
    @tool(stream=True)
    async def rows() -> AsyncIterator[int]:
        """Rows."""
        yield 1

    for tools, expected in (([rows], True), ([], False)):
        corral = Corral(tools=[*tools, tool(iterator_of_its_own)])
        prompts: dict[Language, str] = {"typescript": "for await", "python": "async for"}
        for language, words in prompts.items():
            [runs, *_] = corral.model.tools(language)
            assert (words in runs.description) is expected
            assert (words in corral.model.prompt(language=language)) is expected
