"""Tasks that a program starts and does not wait for: their calls are made, whether or not anything else is awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from corral import Corral, tool
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio

SENT: list[str] = []


@tool
async def send(to: str) -> str:
    """Sends."""
    SENT.append(to)
    return to


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    async with Corral(tools=[send], sandbox="cpython", check=False) as corral:
        yield corral


PROGRAMS = {
    "t = asyncio.create_task(tools.send(to='a'))": "a",
    "asyncio.create_task(tools.send(to='a'))\n'done'": "done",
    "asyncio.ensure_future(tools.send(to='a'))\n'done'": "done",
    "asyncio.create_task(tools.send(to='a'))": "a",
    "loop = asyncio.get_running_loop()\nloop.create_task(tools.send(to='a'))\n'done'": "done",
    "def fire():\n    return asyncio.create_task(tools.send(to='a'))\nfire()\n'done'": "done",
    "async def main():\n    asyncio.create_task(tools.send(to='a'))\n    return 'done'\nasyncio.run(main())": "done",
    "asyncio.gather(tools.send(to='a'))": ["a"],
    "asyncio.gather(tools.send(to='a'))\n'done'": "done",
    "async def main():\n    asyncio.gather(tools.send(to='a'))\n    return 'done'\nmain()": "done",
    "if True:\n    asyncio.create_task(tools.send(to='a'))\n    return 'done'\n1": "done",
}


async def test_a_call_in_a_task_is_made(corral: Corral) -> None:
    wrong = Wrong()
    for source in PROGRAMS:
        with wrong.case(source):
            SENT.clear()
            result = await corral.execute(f"import asyncio\n{source}", language="python")
            assert result.error is None
            assert result.value == PROGRAMS[source]
            assert SENT == ["a"]
    assert wrong == []


async def test_a_gather_that_fails_says_nothing_of_calls_that_it_took(corral: Corral) -> None:
    source = "import asyncio\nawait asyncio.gather(tools.send(to='a'), tools.send(to=1), tools.send(to='b'))"
    result = await corral.execute(source, language="python")
    assert result.status == "failed"
    assert result.unawaited == ()
