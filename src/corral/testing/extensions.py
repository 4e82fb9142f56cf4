"""Conformance suites of audit sinks, tool sources and sandbox providers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio

from corral import Corral, ExecutionResult, Limits, tool
from corral.audit import AuditEvent, AuditLog, AuditSink, new_event_id
from corral.errors import ToolError
from corral.sandboxes import SandboxProvider
from corral.testing.cases import Cases
from corral.tools import Tool, ToolSource
from corral.types import LIMITS_OF_SANDBOXES, Containment, Language


def _event(number: int) -> AuditEvent:
    return AuditEvent(
        id=new_event_id(float(number)),
        time=float(number),
        kind="call",
        outcome="succeeded",
        execution_id="execution-1",
        user_id='größer\n"\u2028',
        organization_id=None,
        session_id="session-1",
        duration_ms=1.5,
        protocol="pipe",
        tool="shop.find",
        sequence=number,
    )


class SinkSuite:
    """Tests that every audit sink must pass. Implement `sink` and `stored`."""

    def sink(self) -> AuditSink:
        """Makes a sink. All sinks of one test must write to the same destination."""
        raise NotImplementedError

    async def stored(self) -> Sequence[AuditEvent]:
        """Reads all events from that destination, in the order in which they were written."""
        raise NotImplementedError

    async def test_events_come_back_as_they_were(self) -> None:
        events = [_event(number) for number in range(5)]
        await self._write(events)
        assert list(await self.stored()) == events

    async def test_a_new_sink_goes_on_where_the_last_one_ended(self) -> None:
        await self._write([_event(1)])
        await self._write([_event(2)._replace(tool=None, outcome="failed", code="tool_error")])
        assert [each.sequence for each in await self.stored()] == [1, 2]

    async def _write(self, events: Iterable[AuditEvent]) -> None:
        log = AuditLog(self.sink())
        for event in events:
            await log.record(event)
        await log.aclose()


class SourceSuite:
    """Tests that every tool source must pass. Implement `source`, `program` and `expected`."""

    program: str
    """TypeScript that calls tools of the source."""
    expected: object
    """Value that the program returns."""

    def source(self) -> ToolSource:
        """Makes the source to test."""
        raise NotImplementedError

    async def test_its_tools_are_there_while_it_is_open(self) -> None:
        offers: list[tuple[Tool, ...]] = []

        def offer(tools: Iterable[Tool], *, problem: str | None = None) -> None:
            assert problem is None
            offers.append(tuple(tools))

        async with self.source().open(offer):
            assert offers, "the source must offer its tools before its block begins"
            assert offers[-1]
            assert len({tool.name for tool in offers[-1]}) == len(offers[-1])

    async def test_a_program_calls_them(self) -> None:
        async with Corral([self.source()], check=False) as corral:
            assert (await corral.execute(self.program)).value == self.expected

    async def test_it_can_be_opened_again_and_twice_at_once(self) -> None:
        source = self.source()
        values: list[object] = []

        async def run() -> None:
            async with Corral([source], check=False) as corral:
                values.append((await corral.execute(self.program)).value)

        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                tasks.start_soon(run)
        assert values == [self.expected] * 4


# --- sandbox providers --------------------------------------------------------------------------------------

_PATIENCE_SECONDS = 30.0


class _Programs(NamedTuple):
    """The tested programs, in each language."""

    value: str
    console: str
    error_in_line_3: str
    refused: str
    parallel: str
    caught: str
    environment: str
    endless: str
    wait: str
    state: str


_PROGRAMS: Mapping[Language, _Programs] = {
    "typescript": _Programs(
        value='return { text: "größer\\n\\u2028", list: [1, 2.5, null, true], nested: { a: [] } }',
        console='console.log("one"); console.error("two"); return 1',
        error_in_line_3='const a = 1;\nconst b = 2;\nthrow new RangeError("too far");',
        refused="return await tools.refuse({ reason: 'not today' })",
        parallel="return await Promise.all([1, 2, 3].map((n) => tools.double({ n })))",
        caught="try { await tools.refuse({ reason: 'no' }) } catch (e) { return e.message }",
        environment="return process.env.MODE",
        endless="while (true) {}",
        wait="return await tools.wait({})",
        state="const before = globalThis.kept; globalThis.kept = 1; return before ?? null",
    ),
    "python": _Programs(
        value='{"text": "größer\\n\\u2028", "list": [1, 2.5, None, True], "nested": {"a": []}}',
        console='import sys\nprint("one")\nprint("two", file=sys.stderr)\n1',
        error_in_line_3='a = 1\nb = 2\nraise ValueError("too far")',
        refused="await tools.refuse(reason='not today')",
        parallel="import asyncio\nawait asyncio.gather(*(tools.double(n=n) for n in [1, 2, 3]))",
        caught="try:\n    await tools.refuse(reason='no')\nexcept Exception as e:\n    result = str(e)\nresult",
        environment='import os\nos.environ["MODE"]',
        endless="while True:\n    pass",
        wait="await tools.wait()",
        state="import builtins\nbefore = getattr(builtins, 'kept', None)\nbuiltins.kept = 1\nbefore",
    ),
}


class SandboxSuite(Cases):
    """Tests that every sandbox provider must pass. Implement `provider`; each test closes its provider."""

    language: Language = "typescript"

    def provider(self) -> SandboxProvider:
        """Makes the provider to test. Can return the same one for all tests; it stays open while you are in its `async
        with`."""
        raise NotImplementedError

    async def test_a_value_and_the_console_leave_the_program(self, corral: Corral) -> None:
        result = await self._run(corral, self._programs.value)
        assert result.value == {
            "text": "größer\n\u2028",
            "list": [1, 2.5, None, True],
            "nested": {"a": []},
        }, result
        printed = await self._run(corral, self._programs.console)
        assert sorted(entry.text for entry in printed.logs) == ["one", "two"]

    async def test_an_error_has_the_models_own_line(self, corral: Corral) -> None:
        result = await self._run(corral, self._programs.error_in_line_3)
        assert result.status == "failed"
        assert result.error is not None
        assert result.error.message.endswith("too far")
        assert result.error.line == 3, result.error

    async def test_calls_run_at_the_same_time_and_their_errors_can_be_caught(self, corral: Corral) -> None:
        assert (await self._run(corral, self._programs.parallel)).value == [2, 4, 6]
        refused = await self._run(corral, self._programs.refused)
        assert refused.error is not None
        assert (refused.error.code, refused.error.name) == ("tool_error", "ToolError")
        caught = await self._run(corral, self._programs.caught)
        assert str(caught.value).endswith("no"), caught

    async def test_the_environment_is_what_was_passed(self, corral: Corral) -> None:
        assert (await self._run(corral, self._programs.environment, env={"MODE": "test"})).value == "test"

    async def test_a_program_without_end_is_timed_out_and_the_next_one_runs(self, corral: Corral) -> None:
        limits = Limits(wall_seconds=0.4)  # because the program is busy all that time
        result = await self._run(corral, self._programs.endless, limits=limits)
        assert result.status == "timed_out"
        assert (await self._run(corral, self._programs.parallel)).value == [2, 4, 6]

    async def test_a_program_without_end_is_ended_at_its_processor_limit(self) -> None:
        """Tests only providers that enforce `cpu_seconds`."""
        provider = self.provider()
        if "cpu_seconds" in provider.capabilities.enforces:
            async with self._corral(provider) as corral:
                result = await self._run(corral, self._programs.endless, limits=Limits(cpu_seconds=0.2))
                assert result.error is not None
                assert "processor time" in result.error.message, result

    async def test_a_cancelled_program_ends_with_its_calls(self, corral: Corral) -> None:
        async with corral.start(self._programs.wait, language=self.language) as run:
            with anyio.fail_after(_PATIENCE_SECONDS):
                async for event in run:
                    if event.type == "tool_call_started":
                        run.cancel()
            result = await run.result()
            assert result.status == "cancelled"
            assert len(result.tool_calls) == 1

    async def test_limits_of_the_session_are_held(self, corral: Corral) -> None:
        many = await self._run(corral, self._programs.parallel, limits=Limits(calls=2))
        assert many.error is not None
        assert many.error.code == "call_budget_exceeded"
        short = await self._run(corral, self._programs.value, limits=Limits(value_bytes=10))
        assert short.error is not None
        assert short.error.code == "output_exceeded"

    async def test_programs_share_nothing(self, corral: Corral) -> None:
        assert [(await self._run(corral, self._programs.state)).value for _ in range(2)] == [None] * 2

    async def test_executions_at_the_same_time_do_not_mix(self) -> None:
        values: dict[str, Any] = {}
        async with self._corral() as corral:

            async def run(mode: str) -> None:
                values[mode] = (await self._run(corral, self._programs.environment, env={"MODE": mode})).value

            async with anyio.create_task_group() as tasks:
                for mode in "abc":
                    tasks.start_soon(run, mode)
        assert values == {mode: mode for mode in "abc"}

    @property
    def _programs(self) -> _Programs:
        return _PROGRAMS[self.language]

    @asynccontextmanager
    async def _provide(self, names: Sequence[str]) -> AsyncGenerator[Mapping[str, object]]:
        async with self._corral() as corral:
            yield dict.fromkeys(names, corral)

    @asynccontextmanager
    async def _corral(self, provider: SandboxProvider | None = None) -> AsyncGenerator[Corral]:
        @tool
        async def double(n: int) -> int:
            """Doubles a number."""
            return 2 * n

        @tool
        async def refuse(reason: str) -> None:
            """Fails."""
            raise ToolError(reason)

        @tool
        async def wait() -> None:
            """Waits until it is cancelled."""
            await anyio.sleep_forever()

        provider = provider or self.provider()
        accepted = LIMITS_OF_SANDBOXES - provider.capabilities.enforces
        corral = Corral(
            [double, refuse, wait],
            sandbox=provider,
            check=False,
            containment=Containment(required="none", accept_unenforced=accepted),
            limits=Limits(wall_seconds=_PATIENCE_SECONDS),
        )
        async with corral:
            yield corral

    async def _run(self, corral: Corral, source: str, **options: Any) -> ExecutionResult:
        return await corral.execute(source, language=self.language, **options)
