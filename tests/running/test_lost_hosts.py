"""Durable executions whose host is lost: killed, or cut off at any moment."""

from __future__ import annotations

import random
import sqlite3
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import anyio.to_thread
import pytest

from corral import Corral
from corral.ledger import MemoryLedger, SqliteLedger
from corral.types import Language, Retry, Settled
from tests.running.killed_host import KEYS, PROGRAMS, VALUE, tools
from tests.running.random_programs import Randomly

pytestmark = pytest.mark.anyio
DEAR = pytest.mark.matrix("starts a host of its own for each kill")


@pytest.mark.parametrize(
    ("language", "seed"),
    [("typescript", 1), *(pytest.param(language, seed, marks=DEAR) for language in PROGRAMS for seed in range(2, 7))],
)
async def test_a_host_that_is_killed_loses_no_change_and_makes_none_twice(
    tmp_path: Path, warm: Any, language: Language, seed: int
) -> None:
    ledger, effects = tmp_path / "runs.db", tmp_path / "effects"
    stop = random.Random(seed).choice(VALUE[::2])  # noqa: S311 - repeatable
    arguments = str(ledger), str(effects), language, str(stop)
    with Popen([sys.executable, "-m", "tests.running.killed_host", *arguments], stdout=PIPE) as host:
        try:
            assert host.stdout is not None
            assert await anyio.to_thread.run_sync(host.stdout.readline) == b"stopped\n"
        finally:
            host.kill()
    with sqlite3.connect(ledger) as database:
        database.execute("UPDATE executions SET lease = 0")  # as 30 s later
    again: list[int] = []
    async with Corral(tools(effects), sandbox=warm, ledger=SqliteLedger(ledger, keys=KEYS), check=False) as corral:
        [execution] = await corral.executions.list()
        result = await corral.executions.resume(execution.execution_id)
        while result.status == "paused":
            done = {int(line) for line in effects.read_text().split()}
            decisions: dict[int, Any] = {}
            for call in result.pending:
                n = call.input["n"]
                decisions[call.sequence] = Settled(n) if n in done and seed % 2 else Retry()
                again += [n] if n in done and not seed % 2 else []
            assert await corral.executions.settle(execution.execution_id, decisions) == decisions.keys()
            result = await corral.executions.resume(execution.execution_id)
        assert result.value == VALUE
        assert (await corral.executions.replay(execution.execution_id)).value == VALUE
    assert sorted(map(int, effects.read_text().split())) == sorted([*VALUE[::2], *again])


@pytest.mark.parametrize(
    ("language", "count"),
    [
        *(pytest.param(language, 2, id=f"{language}-some") for language in PROGRAMS),
        *(
            pytest.param(
                language,
                40,
                id=f"{language}-many",
                marks=pytest.mark.matrix("runs forty random programs again and again"),
            )
            for language in PROGRAMS
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
