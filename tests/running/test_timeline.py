"""Time line of a durable execution: one replay has the state that replays up to each call have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from corral import Corral, tool
from corral.ledger import MemoryLedger
from corral.types import Language

pytestmark = pytest.mark.anyio

PROGRAMS: Mapping[Language, str] = {
    "typescript": """
        console.log("begun")
        const late = new Promise((go) => setTimeout(go, 1)).then(() => console.log("timer"))
        await Promise.all([1, 2].map(async (n) => console.log(await tools.double({ n }))))
        await late
        console.log(await tools.double({ n: 3 }))
        tools.wait({})
        return "done"
    """,
    "python": """
import asyncio
print("begun")
async def show(n):
    print(await tools.double(n=n))
async def tick():
    await asyncio.sleep(0.001)
    print("timer")
await asyncio.gather(tick(), show(1), show(2))
await show(3)
asyncio.ensure_future(tools.wait())
"done"
""",
}


@pytest.mark.parametrize("language", PROGRAMS)
async def test_its_steps_are_replays_up_to_each_call(warm: Any, language: Language) -> None:
    @tool
    async def double(n: int) -> int:
        return 2 * n

    @tool(needs_approval=True)
    async def wait() -> None: ...

    async with Corral([double, wait], sandbox=warm, ledger=MemoryLedger(), check=False) as corral:
        first = await corral.execute(PROGRAMS[language], language=language, durable=True)
        assert first.status == "paused", first
        timeline = await corral.executions.timeline(first.execution_id)
        assert (timeline.result.status, timeline.result.console) == ("paused", first.console)
        steps = [step for step in timeline.steps if step.tool == "double"]
        assert len(steps) == 3
        for step in steps:
            until = await corral.executions.replay(first.execution_id, until=step.sequence)
            place = timeline.steps.index(step)
            if all(each.sequence < step.sequence for each in timeline.steps[:place]):
                assert [entry.text for entry in until.logs] == [entry.text for entry in first.logs[: step.logs]]
            assert step.sequence in step.waiting
