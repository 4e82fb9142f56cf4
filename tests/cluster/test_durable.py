"""Durable executions on workers: a worker or a host is killed, and the execution goes on elsewhere by itself."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Generator
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from corral import Corral, tool
from corral.cluster import WorkerSandbox
from corral.events import Event
from corral.languages import LANGUAGES
from corral.ledger import MemoryLedger, PostgresLedger
from corral.types import Language
from tests.cluster.processes import SECRET, WorkerProcess
from tests.running.conftest import own_server as own_server
from tests.running.conftest import postgres_server as postgres_server
from tests.running.conftest import url as url
from tests.running.killed_host import CHANGES, KEYS, VALUE, Folder
from tests.running.kills import Kills
from tests.until import until

pytestmark = pytest.mark.anyio

PROGRAMS: dict[Language, str] = {
    "typescript": """
        const seen = [Math.random()];
        for (let n = 0; n < 6; n++) seen.push(await tools.change({ n }), await tools.look({ n }));
        console.log("done");
        return [seen[0], await tools.look({ n: seen[0] }), ...seen.slice(1)];
    """,
    "python": """
import random
seen = [random.random()]
for n in range(6):
    seen += [await tools.change(n=n), await tools.look(n=n)]
print("done")
[seen[0], await tools.look(n=seen[0]), *seen[1:]]
""",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def workers(language: Language) -> Generator[list[WorkerProcess]]:
    started = [WorkerProcess("--warm", language) for _ in range(2)]
    yield started
    for each in started:
        each.end()


class Changes:
    """A tool that changes something, and kills its worker while it does so for the fourth time."""

    def __init__(self, workers: list[WorkerProcess]) -> None:
        self.made: Counter[float] = Counter()
        self.sandbox = WorkerSandbox([each.address for each in workers], secret=SECRET, containment="landlock")

        @tool
        async def change(n: float) -> float:
            """Changes something."""
            self.made[n] += 1
            if n == 3:
                [busy] = [each for each in workers if each.address in self.addresses()]
                busy.signal(signal.SIGKILL)
                await until(lambda: not self.addresses())
                await anyio.lowlevel.checkpoint()
            return n

        @tool(read_only=True)
        async def look(n: float) -> float:
            """Reads something."""
            return n

        self.tools = [change, look]

    def addresses(self) -> list[str]:
        """Workers with a guest."""
        return [node.address for node in self.sandbox.nodes() if node.live]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.matrix(
    "test_a_lost_worker_ends_its_executions_with_one_line_in_the_log_and_durable_ones_go_on: here in both languages, while "
    "a tool changes something"
)
async def test_a_durable_execution_goes_on_elsewhere_when_its_worker_is_killed(
    language: Language, workers: list[WorkerProcess]
) -> None:
    changes, events = Changes(workers), list[Event]()
    async with Corral(
        changes.tools, sandbox=changes.sandbox, ledger=MemoryLedger(), resume_on_loss=True, check=False
    ) as corral:
        result = await corral.execute(PROGRAMS[language], language=language, durable=True, on_event=events.append)
        assert result.error is None
        first, again, *rest = result.value
        assert first == again
        assert rest == [n for n in range(6) for _ in range(2)]
        assert changes.made == dict.fromkeys(range(6), 1)
        assert [each.text for each in result.logs] == ["done"]
        assert [each.sequence for each in result.tool_calls] == [*range(1, 14)]
        replay = await corral.executions.replay(result.execution_id)
        assert (replay.value, [each.status for each in await corral.executions.list()]) == (result.value, ["succeeded"])
    kinds = Counter(each.type for each in events)
    assert (kinds["execution_started"], kinds["execution_resumed"], kinds["execution_finished"]) == (1, 1, 1)
    assert [each.number for each in events] == sorted({each.number for each in events})


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.matrix(
    "test_hosts_over_postgres_that_are_killed_lose_nothing kills hosts; here their programs are on workers"
)
async def test_another_host_goes_on_by_itself_when_one_is_killed(
    language: Language, workers: list[WorkerProcess], tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, stop = Folder(tmp_path), 11
    monkeypatch.setenv("WORKERS", workers[0].address)
    monkeypatch.setenv("CORRAL_WORKER_SECRET", SECRET)
    killed = Kills(tmp_path, language, 1, url=url)
    assert not await anyio.to_thread.run_sync(partial(killed.host, tmp_path, None, stop=stop))

    def host() -> Corral:
        sandbox = WorkerSandbox([workers[1].address], secret=SECRET, containment="landlock")
        ledger = PostgresLedger(url, keys=KEYS)
        return Corral(folder.tools(), sandbox=sandbox, ledger=ledger, resume_on_loss=True, check=False)

    async with host() as one, host() as other:
        [execution] = await one.executions.list()
        name = execution.execution_id
        while (record := await one.executions.get(name)).status == "running":
            await anyio.sleep(0.01)
        assert record.result is not None
        deciding, resuming, result = one, other, record.result
        while result.status == "paused":
            await deciding.executions.settle(name, folder.decide(result))
            result = await resuming.executions.resume(name)
            deciding, resuming = resuming, deciding
    assert (result.status, result.value) == ("succeeded", VALUE)
    assert folder.effects == Counter(CHANGES) + folder.retries
    assert folder.retries[stop] == 1
