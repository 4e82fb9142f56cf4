"""Executions as steps of workflows of DBOS, whose process is killed in the middle of one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

HOST = """
import asyncio, os, sqlite3, sys
from pathlib import Path

from dbos import DBOS, SetWorkflowID

from corral import Corral, tool
from corral.ledger import SqliteLedger

folder = Path(sys.argv[1])


def note(text):
    with open(folder / "effects", "a") as file:
        print(text, file=file, flush=True)


@tool
async def put(n: int) -> int:
    note(f"put {n}")
    return n


@tool(read_only=True)
async def look(n: int) -> int:
    note(f"look {n}")
    if len(sys.argv) > 2:
        while not sqlite3.connect(folder / "runs.db").execute("SELECT 1 FROM calls WHERE status = 'done'").fetchall():
            await asyncio.sleep(0.01)  # replies are written a few milliseconds later
        os.kill(os.getpid(), 9)
    return n * 10


corral = Corral([put, look], ledger=SqliteLedger(folder / "runs.db", keys={}), check=False)


@DBOS.step(retries_allowed=True, max_attempts=3, interval_seconds=0.1)
async def run(execution_id: str, source: str) -> str:
    result = await corral.execute(source, durable=True, execution_id=execution_id)
    result.raise_for_error()
    return str(result.value)


@DBOS.workflow()
async def program(source: str) -> str:
    return await run(f"dbos-{DBOS.workflow_id}", source)


async def main():
    database = f"sqlite:///{folder}/dbos.db"
    DBOS(config={"name": "shop", "system_database_url": database, "application_version": "1"})
    async with corral:
        DBOS.launch()
        with SetWorkflowID("42"):
            handle = await DBOS.start_workflow_async(
                program, "await tools.put({ n: 1 }); const n = await tools.look({ n: 2 }); return n + await tools.put({ n: 3 })"
            )
        print("value:", await handle.get_result())
        DBOS.destroy()


asyncio.run(main())
"""


@pytest.mark.matrix("docs_src/durable_workflow.py runs in the gate; here the process is killed in a step")
def test_a_step_whose_process_was_killed_goes_on_and_changes_nothing_twice(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", HOST, str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert run("dies").returncode == -9
    assert (tmp_path / "effects").read_text().split("\n") == ["put 1", "look 2", ""]
    with closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("UPDATE executions SET lease = 0")  # as 30 s later
    again = run()
    assert again.returncode == 0, again.stderr
    assert "value: 23" in again.stdout
    assert (tmp_path / "effects").read_text().split("\n") == ["put 1", "look 2", "look 2", "put 3", ""]
