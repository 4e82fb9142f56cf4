"""Durable executions whose host is lost: killed, or cut off at any moment."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from corral import Corral, ExecutionResult
from corral.languages import LANGUAGES
from corral.ledger import MemoryLedger, PostgresLedger, SqliteLedger
from corral.sandboxes.wasm import WasmSandbox
from corral.types import Language
from tests.postgres import execute
from tests.running.conftest import Store
from tests.running.killed_host import CHANGES, KEYS, VALUE, Folder, finish
from tests.running.kills import Keep, Kills
from tests.running.random_programs import Randomly

pytestmark = pytest.mark.anyio


async def test_a_host_that_is_killed_loses_no_change_and_makes_none_twice(tmp_path: Path, warm: Any) -> None:
    folder, stop = Folder(tmp_path), 11
    assert not await anyio.to_thread.run_sync(partial(Kills(tmp_path, "typescript", 1).host, tmp_path, None, stop=stop))
    ledger = SqliteLedger(folder.ledger, keys=KEYS)
    async with Corral(folder.tools(), sandbox=warm, ledger=ledger, check=False) as corral:
        await finish(corral, folder, "typescript")
        [execution] = await corral.executions.list()
        assert (await corral.executions.replay(execution.execution_id)).value == VALUE
    assert folder.retries[stop] == 1
    assert folder.effects == Counter(CHANGES) + folder.retries


@pytest.mark.matrix(
    "test_a_host_that_is_killed_loses_no_change_and_makes_none_twice: here two other hosts go on, over PostgreSQL"
)
async def test_other_hosts_go_on_with_the_execution_of_a_killed_one(tmp_path: Path, url: str, warm: Any) -> None:
    folder, stop = Folder(tmp_path), 11
    killed = Kills(tmp_path, "typescript", 1, url=url)
    one, other = (
        Corral(folder.tools(), sandbox=warm, ledger=PostgresLedger(url, keys=KEYS), check=False) for _ in range(2)
    )
    async with one, other:
        assert not await anyio.to_thread.run_sync(partial(killed.host, tmp_path, None, stop=stop))
        results = list[ExecutionResult]()

        async def resume_lost(corral: Corral) -> None:
            results.extend(await corral.executions.resume_lost())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(resume_lost, one)
            tasks.start_soon(resume_lost, other)
        [result] = results
        deciding, resuming = one, other
        while result.status == "paused":
            await deciding.executions.settle(result.execution_id, folder.decide(result))
            result = await resuming.executions.resume(result.execution_id)
            deciding, resuming = resuming, deciding
    assert (result.status, result.value) == ("succeeded", VALUE)
    assert folder.effects == Counter(CHANGES) + folder.retries
    assert folder.retries[stop] == 1


@pytest.mark.parametrize("keep", ["nothing", "commits"])
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.matrix("kills hosts at random moments, with and without power")
def test_hosts_that_are_killed_at_random_moments_lose_nothing(tmp_path: Path, language: Language, keep: Keep) -> None:
    kills = Kills(tmp_path, language, 2, keep)
    kills.run(6)
    assert kills.counts["kills"] == 6, kills.counts


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.matrix("kills hosts of one database in PostgreSQL at random moments")
def test_hosts_over_postgres_that_are_killed_lose_nothing(tmp_path: Path, language: Language, url: str) -> None:
    kills = Kills(tmp_path, language, 3, url=url)
    kills.run(6)
    assert kills.counts["kills"] == 6, kills.counts


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.matrix("runs random programs over PostgreSQL while their connections are cut")
async def test_random_programs_whose_connections_are_cut_end_as_if_they_were_not(
    warm: Any, language: Language, url: str
) -> None:
    runs = Randomly(warm, PostgresLedger(f"{url}&application_name=cut", keys=KEYS), seed=7, expire=Store(url).expire)
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut'"
    cuts = 0
    await runs.run(1, language)
    async with anyio.create_task_group() as tasks:

        async def cut_often() -> None:
            nonlocal cuts
            while True:
                await anyio.to_thread.run_sync(execute, url, cut)
                cuts += 1
                await anyio.sleep(0.2)

        tasks.start_soon(cut_often)
        await runs.run(7, language)
        tasks.cancel_scope.cancel()
    assert cuts > 8
    assert runs.counts["succeeded"] == 8, runs.counts
    assert (runs.counts["twice"], runs.counts["differ"]) == (0, 0), runs.counts


@pytest.mark.parametrize(
    ("language", "count"),
    [
        *(pytest.param(language, 2, id=f"{language}-some") for language in LANGUAGES),
        *(
            pytest.param(
                language,
                40,
                id=f"{language}-many",
                marks=pytest.mark.matrix("runs forty random programs again and again"),
            )
            for language in LANGUAGES
        ),
    ],
)
async def test_random_programs_that_are_cut_off_end_as_if_they_were_not(
    warm: Any, language: Language, count: int
) -> None:
    runs = Randomly(warm, MemoryLedger(), seed=count)
    await runs.run(count, language)
    assert runs.counts["succeeded"] == count, runs.counts
    assert (runs.counts["twice"], runs.counts["differ"]) == (0, 0), runs.counts
    assert runs.counts["cuts"], runs.counts


@pytest.mark.matrix("runs random programs in WebAssembly, as test_stopped.py does with one program")
async def test_random_programs_in_webassembly_that_are_cut_off_end_as_if_they_were_not(warm_wasm: WasmSandbox) -> None:
    runs = Randomly(warm_wasm, MemoryLedger(), seed=3)
    await runs.run(20, "typescript")
    assert runs.counts["succeeded"] == 20, runs.counts
    assert (runs.counts["twice"], runs.counts["differ"]) == (0, 0), runs.counts
    assert runs.counts["cuts"], runs.counts
