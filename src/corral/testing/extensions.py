"""Conformance suites of audit sinks and tool sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import anyio

from corral import Corral
from corral.audit import AuditEvent, AuditLog, AuditSink, new_event_id
from corral.tools import Tool, ToolSource


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
        """Makes a sink to the same place at each call within a test."""
        raise NotImplementedError

    async def stored(self) -> Sequence[AuditEvent]:
        """Reads all events from that place, in the order of writing."""
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
    """Value of that program."""

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
