"""No text or value of somebody else's holds the event loop for long.

What is measured is processor time of the loop's own thread within one of its turns, and it is compared with that of a fixed
piece of work in the same thread: neither depends on what else the machine does, or on other threads. The longest turn of
these takes up to 0.8 times as long; before there were workers and bounds, it took 15 to 170 times as long.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Generator

import pytest
from bench.stalls import CASES, Case

MOST_TIMES_REFERENCE = 4


def counted(file: str) -> pytest.MarkDecorator:
    return pytest.mark.matrix(f"{file} says it by the work that is done; in a whole execution")


_usual = asyncio.Handle._run  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(scope="module", autouse=True)
def no_garbage_collection() -> Generator[None]:
    """Keeps full collections from falling into a turn of the loop. They walk through all that the process holds: what
    thousands of tests have made, and the 2,000 tools of a case, which takes longer than the case itself.

    What is frozen stays so: later tests would walk through all that the process has imported.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def longest_turn(case: Case, monkeypatch: pytest.MonkeyPatch) -> float:
    """The most processor time of a turn of the loop, without the first one, in which a case makes its own tools."""
    turns: list[float] = []

    def run(handle: asyncio.Handle) -> None:
        before = time.thread_time()
        _usual(handle)
        turns.append(time.thread_time() - before)

    async def started() -> None:
        task = asyncio.ensure_future(case())
        await asyncio.sleep(0)
        with monkeypatch.context() as context:
            context.setattr(asyncio.Handle, "_run", run)
            await task

    asyncio.run(started())
    return max(turns)


def reference_seconds() -> float:
    before = time.thread_time()
    assert sum(number * number for number in range(1_000_000))
    return time.thread_time() - before


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("TypeScript, short and slow to parse", marks=counted("tests/programs/test_bounds.py")),
        pytest.param(
            "another server's enum of 9,000 objects", marks=counted("tests/tools/json_schema/test_complexity.py")
        ),
        "another server's 40 patterns",
        pytest.param("calls of 256 unknown names among 2,000", marks=counted("tests/rendering/test_suggestions.py")),
        pytest.param("values deep and large, shown", marks=counted("tests/rendering/test_preview_work.py")),
        pytest.param(
            "2,000 descriptions of a large tool", marks=counted("tests/model/catalog/test_describing_work.py")
        ),
    ],
)
def test_the_loop_is_not_held_for_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ratios: list[float] = []  # the first may import and start what is needed
    while len(ratios) < 3 and not any(ratio < MOST_TIMES_REFERENCE for ratio in ratios):
        ratios.append(longest_turn(CASES[name], monkeypatch) / reference_seconds())
    assert min(ratios) < MOST_TIMES_REFERENCE, ratios
