"""Work in worker processes: results, the cost to others, and operations that a worker cannot do."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from corral.errors import ProgramRejected
from corral.jail.workers import WorkerError, Workers, pool, run_in_worker
from corral.jail.workers.wire import Failed, read_reply
from corral.programs import prepare_python, prepare_typescript
from tests.conftest import LOOPS
from tests.jail import tasks
from tests.until import until

pytestmark = pytest.mark.anyio


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    workers = Workers(2)
    yield workers
    workers.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_function_runs_elsewhere_and_the_process_is_kept(workers: Workers) -> None:
    assert await workers.run(tasks.add, 1, 2, seconds=5) == 3
    first = await workers.run(tasks.number, seconds=5)
    assert first != os.getpid()
    assert await workers.run(tasks.number, seconds=5) == first


async def test_programs_come_back_as_they_were_with_their_places_and_types(workers: Workers) -> None:
    typed = prepare_typescript("const x: number = 1;\nreturn x as number")
    quoted = prepare_python(">>> x = 1\n>>> x\n")
    for program in (typed, quoted):
        back = await workers.run(tasks.same, program, seconds=5)
        assert back == program
        assert program.typed is not None
        places = [(line, column) for line in range(1, 5) for column in range(1, 30)]
        assert [back.locate(*place) for place in places] == [program.locate(*place) for place in places]


async def test_errors_of_corral_come_back_whole_and_others_as_text(workers: Workers) -> None:
    with pytest.raises(ProgramRejected, match="no") as rejected:
        await workers.run(tasks.reject, seconds=5)
    assert (rejected.value.line, rejected.value.column) == (2, 3)
    with pytest.raises(WorkerError, match="ValueError: no such thing"):
        await workers.run(tasks.fail, seconds=5)


async def test_a_worker_that_takes_too_long_is_ended_and_another_goes_on(workers: Workers) -> None:
    first = await workers.run(tasks.number, seconds=5)
    with pytest.raises(WorkerError, match="takes too long"):
        await workers.run(tasks.compute, seconds=0.2)
    assert await workers.run(tasks.number, seconds=5) != first


async def test_memory_is_bounded(workers: Workers) -> None:
    with pytest.raises(WorkerError, match=r"memory|MemoryError"):
        await workers.run(tasks.fill, seconds=30)
    assert await workers.run(tasks.add, 1, 2, seconds=5) == 3


async def test_a_worker_that_dies_is_replaced(workers: Workers) -> None:
    with pytest.raises(WorkerError, match="ended"):
        await workers.run(tasks.end, seconds=5)
    assert await workers.run(tasks.add, 1, 2, seconds=5) == 3


async def test_a_worker_can_neither_read_nor_write_nor_connect_nor_fork(workers: Workers, tmp_path: Path) -> None:
    for task, arguments in (
        (tasks.read, ("/etc/passwd",)),
        (tasks.read, (__file__,)),
        (tasks.write, (str(tmp_path / "x"),)),
    ):
        with pytest.raises(WorkerError, match="PermissionError"):
            await workers.run(task, *arguments, seconds=5)
    for task in (tasks.connect, tasks.fork):
        with pytest.raises(WorkerError, match="PermissionError"):
            await workers.run(task, seconds=5)


async def test_a_reply_is_of_the_type_that_its_function_returns(workers: Workers) -> None:
    with pytest.raises(WorkerError, match="cannot be read"):
        await workers.run(tasks.strange, seconds=5)


def test_what_a_worker_that_is_taken_over_sends_is_an_error_or_data() -> None:
    failed = read_reply(b'{"error": "program_rejected", "text": "no", "members": {"line": 2}}', tasks.add)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, ProgramRejected)
    assert vars(failed.error) == {"line": 2}
    hostile = [
        b"",
        b"[]",
        b"{}",
        b'{"answer": "x"}',
        b'{"answer": {"$bytes": "x"}}',
        b'{"error": 1, "text": "", "members": {}}',
        b'{"error": "program_rejected", "text": "", "members": {"line": [1]}}',
        b"[" * 100_000,
        b"\x80\x04\x95\x06\x00\x00\x00\x00\x00\x00\x00\x8c\x02ab\x94.",
        b'{"answer": ' + b"9" * 10_000 + b"}",
    ]
    for reply in hostile:
        with pytest.raises((ValueError, RecursionError)):
            read_reply(reply, tasks.add)


async def test_large_values_go_both_ways(workers: Workers) -> None:
    assert len(await workers.run(tasks.long, 5_000_000, seconds=5)) == 5_000_000
    with pytest.raises(WorkerError, match="too large"):
        await workers.run(tasks.long, 70_000_000, seconds=20)


async def test_one_tenant_never_has_all_workers(workers: Workers) -> None:
    async with anyio.create_task_group() as tasks_of_one:

        async def compute() -> None:
            await workers.run(tasks.compute, seconds=60, owner="one")

        for _ in range(8):
            tasks_of_one.start_soon(compute)
        await anyio.wait_all_tasks_blocked()
        assert await workers.run(tasks.add, 1, 2, seconds=5, owner="another") == 3
        tasks_of_one.cancel_scope.cancel()
    assert await workers.run(tasks.add, 1, 2, seconds=5, owner="one") == 3


async def test_a_thread_does_not_outlast_its_time_for_work_that_it_may_not_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_IDLE_SECONDS", 0)
    workers = Workers(2)

    async def compute() -> None:
        await workers.run(tasks.compute, seconds=60, owner="one")

    async with anyio.create_task_group() as together:
        together.start_soon(compute)
        together.start_soon(compute)
        await anyio.wait_all_tasks_blocked()
        await until(lambda: workers._threads <= 1)  # pyright: ignore[reportPrivateUsage]
        together.cancel_scope.cancel()
    workers.close()


async def test_work_that_is_cancelled_ends_and_leaves_no_descriptor() -> None:
    workers = Workers(1)
    await workers.run(tasks.add, 1, 2, seconds=5)
    gc.collect()
    before = descriptors()
    for _ in range(2):
        with anyio.move_on_after(0.05):
            await workers.run(tasks.compute, seconds=60)
        assert await workers.run(tasks.add, 1, 2, seconds=5) == 3
    await until(lambda: descriptors() <= before)
    workers.close()


async def test_the_queue_of_a_tenant_is_bounded(workers: Workers) -> None:
    refused: list[str] = []

    async def compute() -> None:
        try:
            await workers.run(tasks.compute, seconds=60, owner="one")
        except WorkerError as error:
            refused.append(str(error))

    async with anyio.create_task_group() as many:
        for _ in range(300):
            many.start_soon(compute)
        await anyio.wait_all_tasks_blocked()
        assert await workers.run(tasks.add, 1, 2, seconds=5, owner="another") == 3
        many.cancel_scope.cancel()
    assert len(refused) >= 40
    assert "already waiting" in refused[0]


def test_a_process_that_was_forked_has_workers_of_its_own() -> None:
    def added(first: int, second: int) -> int:
        async def run() -> int:
            return await run_in_worker(tasks.add, first, second, seconds=5)

        return anyio.run(run)

    assert added(1, 2) == 3
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if added(2, 2) == 4 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert added(1, 2) == 3


async def test_a_worker_that_is_left_full_is_not_used_again() -> None:
    workers = Workers(1)
    first = await workers.run(tasks.number, seconds=5)
    await workers.run(tasks.keep, 400 << 20, seconds=10)
    assert await workers.run(tasks.number, seconds=5) != first
    workers.close()
