"""Tools that stream, in both languages: item by item, with credit, closed when nobody reads on, and one call to all guards."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio
import pytest
from sniffio import current_async_library

from corral import Corral, ExecutionResult, Limits, Tool, ToolError, define_tool, tool
from corral.audit import AuditEvent, CallbackSink
from corral.sandboxes import DenoSandbox
from corral.sandboxes.framed.session import WINDOW_BYTES
from corral.sandboxes.monty import MontySandbox
from corral.sandboxes.selection import Sandboxes
from corral.types import Language
from tests.conftest import both_loops
from tests.e2e.clocks import UNLIMITED, WallClock

pytestmark = pytest.mark.anyio
LANGUAGES: tuple[Language, ...] = ("typescript", "python")
BOTH = pytest.mark.parametrize("language", LANGUAGES)
ITEM_BYTES = 10_000


class Shop:
    """Tools that stream, and what became of their iterators."""

    def __init__(self) -> None:
        self.yielded = 0
        self.full = anyio.Event()
        self.closed = anyio.Event()
        self.closings = 0

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.closings += 1
            self.closed.set()

    async def numbers(self, n: int) -> AsyncIterator[int]:
        """Counts to n."""
        async with self.watched():
            for number in range(n):
                yield number

    async def endless(self, size: int = ITEM_BYTES) -> AsyncIterator[str]:
        """Texts without an end."""
        async with self.watched():
            for number in count():
                self.yielded += 1
                if self.yielded * size >= WINDOW_BYTES:
                    self.full.set()
                yield f"{number}".ljust(size)

    async def waiting(self) -> AsyncIterator[int]:
        """One number, and then nothing for ever."""
        async with self.watched():
            yield 1
            await anyio.sleep_forever()

    async def broken(self, n: int) -> AsyncIterator[int]:
        """Fails after n numbers."""
        async with self.watched():
            for number in range(n):
                yield number
            raise ToolError("the shop is closed")

    async def pieces(self, n: int) -> AsyncIterator[bytes]:
        """Bytes."""
        for number in range(n):
            yield bytes([number, 255])

    def lines(self, n: int) -> Iterator[str]:
        """Lines, read in a thread."""
        try:
            yield from map(str, range(n))
        finally:
            self.closings += 1

    async def when_full(self) -> int:
        """Waits until the stream has filled its window."""
        await self.full.wait()
        for _ in range(1_000):
            await anyio.lowlevel.checkpoint()
        return self.yielded

    async def when_closed(self) -> int:
        """Waits until an iterator was closed."""
        await self.closed.wait()
        return self.closings

    async def double(self, n: int) -> int:
        """Doubles."""
        return 2 * n

    def tools(self) -> list[Tool]:
        streams: list[Any] = [self.numbers, self.endless, self.waiting, self.broken, self.pieces, self.lines]
        return [
            *(tool(stream=True)(each) for each in streams),
            tool(self.when_full),
            tool(self.when_closed),
            tool(self.double),
            tool(name="alone", sequential=True)(self.double),
            tool(name="numbers_alone", stream=True, sequential=True)(self.numbers),
        ]


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture(scope="module")
async def corral(warm: Sandboxes) -> AsyncIterator[Corral]:
    """Executions bring their tools."""
    async with Corral(sandbox=warm, check=False) as corral:
        yield corral


# Before all that use the Corral of this file: anyio runs tests on the loop of the fixtures that are open.
@both_loops
async def test_bytes_arrive_as_bytes_and_what_a_thread_yields_too(anyio_backend: str, shop: Shop) -> None:
    assert current_async_library() == anyio_backend
    sources: dict[Language, str] = {
        "typescript": "const found = []; for await (const each of tools.pieces({n: 3})) found.push([each instanceof Uint8Array, each]);"
        "return [found, await Array.fromAsync(tools.lines({n: 3}))]",
        "python": "found = [[type(each) is bytes, each] async for each in tools.pieces(n=3)]\n"
        "[found, [each async for each in tools.lines(n=3)]]",
    }
    async with Corral(shop.tools(), check=False) as corral:
        found = {each: await corral.execute(source, language=each) for each, source in sources.items()}
    for language, result in found.items():
        expected = [[[True, bytes([number, 255])] for number in range(3)], ["0", "1", "2"]]
        assert (result.value, result.error) == (expected, None), language


async def run(
    corral: Corral,
    tools: list[Tool],
    language: Language,
    source: str,
    *,
    limits: Limits | None = None,
    check: bool = False,
) -> ExecutionResult:
    limits = limits or Limits(wall_seconds=20)
    return await corral.execute(source, tools=tools, language=language, limits=limits, check=check)


READS = {
    "typescript": [
        "const found = []; for await (const each of tools.numbers({n: 1000})) found.push(each); return found",
        "const found = []; for await (const each of await tools.numbers({n: 1000})) found.push(each); return found",
        "const stream = tools.numbers({n: 1000}); const found = []; for await (const each of stream) found.push(each); return found",
        "return await Array.fromAsync(tools.numbers({n: 1000}))",
        "const [one] = await Promise.all([tools.numbers({n: 1000}), tools.double({n: 1})]); return await Array.fromAsync(one)",
        (
            "const it = (await tools.numbers({n: 1000}))[Symbol.asyncIterator](); const found = [];"
            "for (let all = [it.next(), it.next()]; ; all = [it.next(), it.next()]) {"
            " for (const each of await Promise.all(all)) { if (each.done) return found; found.push(each.value) } }"
        ),
    ],
    "python": [
        "found = []\nasync for each in tools.numbers(n=1000):\n    found.append(each)\nfound",
        "found = []\nasync for each in await tools.numbers(n=1000):\n    found.append(each)\nfound",
        "stream = await tools.numbers(n=1000)\n[each async for each in stream]",
        "[each async for each in tools.numbers(n=1000)]",
        "s = tools.numbers(n=1000)\n[await anext(s), await s.__anext__(), *[each async for each in s]]",
        "from contextlib import aclosing\nasync with aclosing(tools.numbers(n=1000)) as s:\n    found = [n async for n in s]\nfound",
        "import asyncio\none, _ = await asyncio.gather(tools.numbers(n=1000), tools.double(n=1))\n[each async for each in one]",
        (
            "import asyncio\nasync def read(number):\n    return [each async for each in tools.numbers(n=1000)]\n"
            "(await asyncio.gather(read(1), read(2)))[1]"
        ),
    ],
}


@pytest.mark.parametrize(
    ("language", "source"), [(language, each) for language in LANGUAGES for each in READS[language]]
)
async def test_a_stream_is_read_item_by_item_awaited_or_not(
    corral: Corral, shop: Shop, language: Language, source: str
) -> None:
    result = (await run(corral, shop.tools(), language, source, check=True)).raise_for_error()
    assert result.value == list(range(1000))
    record = result.tool_calls[0]
    assert (record.name, record.output, record.error) == ("numbers", "… 1000 items, 2890 bytes, streamed", None)
    assert record.state == "returned"
    assert shop.closed.is_set()
    assert result.diagnostics == ()


BREAKS = {
    "typescript": [
        "for await (const each of tools.{tool}) break; return await tools.when_closed()",
        "for await (const each of await tools.{tool}) break; return await tools.when_closed()",
        "const stream = await tools.{tool}; for await (const each of stream) break; return await tools.when_closed()",
        "try { for await (const each of tools.{tool}) throw new Error('enough') } catch {} return await tools.when_closed()",
    ],
    "python": [
        "async for each in tools.{tool}:\n    break\nawait tools.when_closed()",
        "from contextlib import aclosing\nasync with aclosing(tools.{tool}) as s:\n    await anext(s)\nawait tools.when_closed()",
        "async for each in await tools.{tool}:\n    break\nawait tools.when_closed()",
        "stream = await tools.{tool}\nasync for each in stream:\n    break\nawait stream.aclose()\nawait tools.when_closed()",
        (
            "import asyncio\ngot = asyncio.Event()\nasync def read():\n    async for each in tools.{tool}:\n        got.set()\n"
            "task = asyncio.create_task(read())\nawait got.wait()\ntask.cancel()\nawait tools.when_closed()"
        ),
    ],
}


@pytest.mark.parametrize("called", ["endless", "waiting"])
@pytest.mark.parametrize(
    ("language", "source"), [(language, each) for language in LANGUAGES for each in BREAKS[language]]
)
async def test_a_stream_that_the_program_leaves_is_closed_at_once(
    corral: Corral, shop: Shop, language: Language, source: str, called: str
) -> None:
    call = f"{called}({{}})" if language == "typescript" else f"{called}()"
    limits = Limits(wall_seconds=20, tool_output_bytes=100_000_000)
    result = (
        await run(corral, shop.tools(), language, source.replace("{tool}", call), limits=limits)
    ).raise_for_error()
    assert result.value == 1
    [record, _] = result.tool_calls
    assert str(record.output).endswith("streamed, until the program stopped reading")
    assert (record.error, record.state) == (None, "returned")


@BOTH
async def test_the_end_of_the_program_closes_its_streams(corral: Corral, shop: Shop, language: Language) -> None:
    source = {
        "typescript": "const one = await tools.waiting(); const other = tools.endless({}); await tools.when_full(); return 7",
        "python": "one = await tools.waiting()\nother = await tools.endless()\nawait tools.when_full()\n7",
    }[language]
    result = (await run(corral, shop.tools(), language, source)).raise_for_error()
    assert (result.value, shop.closings) == (7, 2)


@BOTH
async def test_the_deadline_closes_the_streams_too(
    corral: Corral, shop: Shop, wall_clock: WallClock, language: Language
) -> None:
    source = {
        "typescript": "for await (const each of tools.waiting()) await tools.double({n: each})",
        "python": "async for each in tools.waiting():\n    await tools.double(n=each)",
    }[language]
    tools = [each for each in shop.tools() if each.name != "double"]

    @tool
    async def double(n: int) -> int:
        wall_clock.run_out()
        return 2 * n

    result = await run(corral, [*tools, double], language, source, limits=UNLIMITED)
    assert (result.status, shop.closings) == ("timed_out", 1)
    [record] = [each for each in result.tool_calls if each.name == "waiting"]
    assert record.error is not None
    assert record.error.code == "cancelled"


@BOTH
async def test_an_error_in_mid_stream_is_the_tools_own_at_the_line_of_the_call(
    corral: Corral, shop: Shop, language: Language
) -> None:
    caught = {
        "typescript": "const found = [];\ntry { for await (const each of tools.broken({n: 3})) found.push(each) }\n"
        "catch (error) { found.push(error.code, error.message) }\nreturn found",
        "python": "found = []\ntry:\n    async for each in tools.broken(n=3):\n        found.append(each)\n"
        "except ToolError as error:\n    found += [error.code, str(error)]\nfound",
    }[language]
    result = (await run(corral, shop.tools(), language, caught)).raise_for_error()
    assert result.value == [0, 1, 2, "tool_error", "the shop is closed"]
    assert result.tool_calls[0].state == "raised"
    uncaught = {
        "typescript": "let sum = 0;\nfor await (const each of tools.broken({n: 300}))\n  sum += each;\nreturn sum",
        "python": "sum = 0\nasync for each in tools.broken(n=300):\n    sum += each\nsum",
    }[language]
    result = await run(corral, shop.tools(), language, uncaught)
    assert result.error is not None
    assert (result.error.code, result.error.message, result.error.line) == ("tool_error", "the shop is closed", 2)


@BOTH
async def test_a_tool_waits_while_the_program_does_not_read(corral: Corral, shop: Shop, language: Language) -> None:
    source = {
        "typescript": "const stream = await tools.endless({}); const before = await tools.when_full(); let read = 0;\n"
        "for await (const each of stream) if (++read === 100) break; return before",
        "python": "stream = await tools.endless()\nbefore = await tools.when_full()\nread = 0\nasync for each in stream:\n"
        "    read += 1\n    if read == 100: break\nbefore",
    }[language]
    limits = Limits(wall_seconds=20, tool_output_bytes=100_000_000)
    result = (await run(corral, shop.tools(), language, source, limits=limits)).raise_for_error()
    most = WINDOW_BYTES // ITEM_BYTES + 1
    assert result.value <= most
    assert 100 <= shop.yielded <= 100 + 2 * most


@BOTH
async def test_all_of_a_stream_is_one_output_to_its_bound(corral: Corral, shop: Shop, language: Language) -> None:
    source = {
        "typescript": "let read = 0; try { for await (const each of tools.endless({})) read += 1 }\n"
        "catch (error) { return [read, error.code] }",
        "python": "read = 0\ntry:\n    async for each in tools.endless():\n        read += 1\n"
        "except MessageTooLarge as error:\n    result = [read, error.code]\nresult",
    }[language]
    result = (
        await run(corral, shop.tools(), language, source, limits=Limits(tool_output_bytes=1_000_000))
    ).raise_for_error()
    assert result.value == [1_000_000 // (ITEM_BYTES + 2), "message_too_large"]
    assert shop.closings == 1


@BOTH
async def test_streams_run_at_the_same_time_and_calls_in_between(
    corral: Corral, shop: Shop, language: Language
) -> None:
    source = {
        "typescript": """
            async function total(n) {
              let sum = 0;
              for await (const each of tools.numbers({n})) sum += await tools.double({n: each});
              return sum;
            }
            return await Promise.all([total(10), total(20), total(30)])""",
        "python": """
import asyncio
async def total(n):
    sum = 0
    async for each in tools.numbers(n=n):
        sum += await tools.double(n=each)
    return sum
await asyncio.gather(total(10), total(20), total(30))""",
    }[language]
    result = (await run(corral, shop.tools(), language, source)).raise_for_error()
    assert result.value == [n * (n - 1) for n in (10, 20, 30)]
    assert len(result.tool_calls) == 63


@BOTH
async def test_an_open_stream_leaves_room_for_calls(corral: Corral, shop: Shop, language: Language) -> None:
    source = {
        "typescript": "const open = [await tools.waiting(), await tools.waiting()];\n"
        "try { await tools.waiting() } catch (error) { return [error.code, await tools.double({n: 2})] }",
        "python": "open = [await tools.waiting(), await tools.waiting()]\ntry:\n    await tools.waiting()\n"
        "except CallBudgetExceeded as error:\n    result = [error.code, await tools.double(n=2)]\nresult",
    }[language]
    result = (await run(corral, shop.tools(), language, source, limits=Limits(calls_in_flight=3))).raise_for_error()
    assert result.value == ["call_budget_exceeded", 4]
    assert result.tool_calls[2].state == "waiting"
    assert shop.closings == 2


@pytest.mark.parametrize(
    ("stream", "called"),
    [
        ("numbers", "alone"),
        ("numbers_alone", "double"),
        pytest.param(
            *("numbers_alone", "alone"), marks=pytest.mark.matrix("either of the two is sequential in the gate; both")
        ),
    ],
)
@BOTH
async def test_sequential_tools_take_turns_between_two_items(
    corral: Corral, shop: Shop, language: Language, stream: str, called: str
) -> None:
    source = {
        "typescript": f"let sum = 0; for await (const n of tools.{stream}({{n: 200}})) sum += await tools.{called}({{n}}); return sum",
        "python": f"sum = 0\nasync for n in tools.{stream}(n=200):\n    sum += await tools.{called}(n=n)\nsum",
    }[language]
    assert (await run(corral, shop.tools(), language, source)).raise_for_error().value == 200 * 199


@BOTH
async def test_each_item_is_validated(corral: Corral, language: Language) -> None:
    async def mixed(_: object) -> AsyncIterator[Any]:
        yield 1
        yield "two"

    def tools(**settings: Any) -> list[Tool]:
        return [define_tool(name="mixed", output_schema={"type": "integer"}, execute=mixed, stream=True, **settings)]

    source = {
        "typescript": "const found = []; try { for await (const each of tools.mixed()) found.push(each) }\n"
        "catch (error) { found.push(error.code) } return found",
        "python": "found = []\ntry:\n    async for each in tools.mixed():\n        found.append(each)\n"
        "except InvalidToolOutput as error:\n    found.append(error.code)\nfound",
    }[language]
    strict = (await run(corral, tools(validate_output="strict"), language, source)).raise_for_error()
    assert strict.value == [1, "invalid_tool_output"]
    warned = (await run(corral, tools(), language, source)).raise_for_error()
    assert warned.value == [1, "two"]
    assert [each.code for each in warned.diagnostics] == ["output_not_as_declared"]


@BOTH
async def test_the_timeout_of_a_tool_is_for_each_item(corral: Corral, language: Language) -> None:
    closed: list[bool] = []

    @tool(stream=True, timeout_seconds=0.2)
    async def stuck() -> AsyncIterator[int]:
        try:
            yield 1
            await anyio.sleep_forever()
        finally:
            closed.append(True)

    source = {
        "typescript": "const found = []; try { for await (const each of tools.stuck()) found.push(each) }\n"
        "catch (error) { found.push(error.code) } return found",
        "python": "found = []\ntry:\n    async for each in tools.stuck():\n        found.append(each)\n"
        "except ToolFailed as error:\n    found.append(error.code)\nfound",
    }[language]
    result = (await run(corral, [stuck], language, source)).raise_for_error()
    assert (result.value, closed) == ([1, "tool_failed"], [True])


MISUSES = {
    "typescript": [
        "return (await tools.numbers({n: 3})).map((each) => each)",
        "return (await tools.numbers({n: 3})).length",
        "return (await tools.numbers({n: 3}))[0]",
        "return [...(await tools.numbers({n: 3}))]",
        "for (const each of await tools.numbers({n: 3})) console.log(each)",
        "return JSON.stringify(await tools.numbers({n: 3}))",
    ],
    "python": [
        "len(await tools.numbers(n=3))",
        "(await tools.numbers(n=3))[0]",
        "[each for each in await tools.numbers(n=3)]",
        "list(await tools.numbers(n=3))",
        "(await tools.numbers(n=3)).append(3)",
        "3 in (await tools.numbers(n=3))",
    ],
}


@pytest.mark.parametrize(
    ("language", "source"), [(language, each) for language in LANGUAGES for each in MISUSES[language]]
)
async def test_a_stream_used_as_an_array_is_an_error_that_says_how_to_read_it(
    corral: Corral, shop: Shop, language: Language, source: str
) -> None:
    ways = ("for await (const", "Array.fromAsync") if language == "typescript" else ("async for", "[item async for")
    result = await run(corral, shop.tools(), language, source)
    assert result.error is not None
    assert all(way in result.error.message for way in ("is a stream, not a", *ways))


@BOTH
async def test_a_stream_is_no_result(corral: Corral, shop: Shop, language: Language) -> None:
    source = {"typescript": "return tools.numbers({n: 3})", "python": "await tools.numbers(n=3)"}[language]
    result = await run(corral, shop.tools(), language, source)
    assert result.error is not None
    assert "collect it first" in result.error.message


async def test_programs_that_share_an_engine_have_streams_of_their_own(shop: Shop, warm_deno: DenoSandbox) -> None:
    async with Corral(tools=shop.tools(), sandbox=warm_deno, check=False) as corral:
        results: list[Any] = []

        async def each(n: int) -> None:
            source = f"let sum = 0; for await (const n of tools.numbers({{n: {n}}})) sum += await tools.double({{n}}); return sum"
            results.append((await corral.execute(source)).raise_for_error().value)

        async with anyio.create_task_group() as tasks:
            for n in (10, 100, 200):
                tasks.start_soon(each, n)
        left = await corral.execute("for await (const n of tools.waiting()) break; return await tools.when_closed()")
    assert sorted(results) == [n * (n - 1) for n in (10, 100, 200)]
    assert left.raise_for_error().value == shop.closings


async def test_in_monty_the_items_arrive_as_a_list(shop: Shop) -> None:
    async with Corral(shop.tools(), sandbox=MontySandbox(), check=False) as corral:
        result = await corral.execute("sum(await tools.numbers(n=100))", language="python")
    assert result.raise_for_error().value == 4950


@pytest.mark.parametrize("must_finish", [False, True])
@BOTH
async def test_a_stream_is_a_call_to_the_audit_when_it_ends(
    shop: Shop, warm: Sandboxes, language: Language, must_finish: bool
) -> None:
    events: list[AuditEvent] = []
    streaming: list[Any] = [shop.numbers, shop.broken, shop.waiting]
    streams = [tool(stream=True, must_finish=must_finish)(each) for each in streaming]
    source = {
        "typescript": "for await (const each of tools.numbers({n: 2})); try { for await (const each of tools.broken({n: 1})); } catch {}\n"
        "for await (const each of tools.waiting()) return 1",
        "python": "async for each in tools.numbers(n=2): pass\ntry:\n    async for each in tools.broken(n=1): pass\nexcept ToolError: pass\n"
        "async for each in tools.waiting():\n    break\n1",
    }[language]
    async with Corral(streams, sandbox=warm, check=False, audit=CallbackSink(events.extend)) as corral:
        (await corral.execute(source, language=language)).raise_for_error()
    calls = [(event.tool, event.outcome) for event in events if event.kind == "call"]
    assert calls == [("numbers", "succeeded"), ("broken", "failed"), ("waiting", "succeeded")]
    assert shop.closings == 3
