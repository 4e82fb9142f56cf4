"""Data flow of sessions in a ledger: other hosts, restarts, lost hosts, altered rows."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from corral.errors import LedgerDamaged
from corral.ledger import Records, SqliteLedger
from corral.policy import Policy
from corral.policy.flow import LOST, DataFlow, ProgramFlow
from corral.types import References
from tests.policy.test_flow import LABELS, MAIL, ME, TOOLS

pytestmark = pytest.mark.anyio

KEYS = {"one": b"k" * 32}


class Host:
    """Host with a ledger that others share. Its programs are made of calls, without a sandbox."""

    def __init__(self, path: Path) -> None:
        self.records = Records(SqliteLedger(path, keys=KEYS))
        self.flow = DataFlow(Policy(texts=[LABELS]), self.records)

    async def begin(self, execution_id: str, *asked: str, continues: bool = False) -> ProgramFlow:
        program = self.flow.begin(ME, "", asked, continues=continues)
        assert program is not None
        program.references = References()
        await program.join(execution_id)
        return program

    async def aclose(self) -> None:
        await self.records.writer.aclose()

    def call(self, program: ProgramFlow, name: str, output: object = None, **arguments: object) -> list[str]:
        label = self.flow.label(name, TOOLS[name])
        doubts = program.doubts(name, TOOLS[name], label, arguments)
        program.calls(name, label, arguments)
        program.returned(name, 1, label, output, str(output))
        return [each.text for each in doubts]


@asynccontextmanager
async def hosts(path: Path) -> AsyncGenerator[tuple[Host, Host]]:
    first, second = Host(path), Host(path)
    yield first, second
    await first.aclose()
    await second.aclose()


async def test_another_host_knows_what_a_session_has_read(tmp_path: Path) -> None:
    async with hosts(tmp_path / "runs.db") as (first, second):
        program = await first.begin("e1", "Write to bob@partner.example")
        first.call(program, "read_mail", MAIL)
        first.call(program, "contacts", ["carol@partner.example"])
        program.shows(MAIL)
        await program.leave()
        program = await second.begin("e2")
        assert not program.is_clean
        assert program.seen.exposed == {"read_mail": None}
        (doubt,) = second.call(program, "send", to="mallory@evil.example")
        assert "it occurs in a result of tools.read_mail" in doubt
        assert second.call(program, "send", to="bob@partner.example") == []
        assert second.call(program, "send", to="carol@partner.example") == []
        await program.leave()
        program = await first.begin("e3")
        await program.leave()
        assert LOST not in program.seen.exposed


@pytest.mark.parametrize("resumed", [False, True])
async def test_a_program_whose_host_was_lost_has_exposed_its_session(tmp_path: Path, *, resumed: bool) -> None:
    async with hosts(tmp_path / "runs.db") as (first, second):
        await (await first.begin("e0")).leave()
        program = await first.begin("e1")
        first.call(program, "read_mail", MAIL)
        program = await second.begin("e1" if resumed else "e2", continues=resumed)
        # a resumed program reads its record again, so what it showed is known
        assert program.is_clean is resumed
        assert (LOST in program.seen.exposed) is not resumed


async def test_a_trusted_result_can_repeat_what_a_lost_program_has_stored(tmp_path: Path) -> None:
    async with hosts(tmp_path / "runs.db") as (first, second):
        program = await first.begin("e1")
        first.call(program, "find_contact", [], query="mallory@evil.example")
        program = await second.begin("e2")
        second.call(program, "contacts", ["mallory@evil.example"])
        (doubt,) = second.call(program, "send", to="mallory@evil.example")
        assert "no person named it" in doubt


async def test_no_result_is_kept_twice(tmp_path: Path) -> None:
    async with hosts(tmp_path / "runs.db") as (first, _):
        program = await first.begin("e1")
        first.call(program, "read_mail", MAIL * 100)
        held = program.seen.held
        await program.leave()
        assert program.seen.held == held


async def test_programs_of_one_host_run_at_once(tmp_path: Path) -> None:
    async with hosts(tmp_path / "runs.db") as (first, _):
        programs = [await first.begin(f"e{number}") for number in range(3)]
        for each in programs:
            await each.leave()
        assert (await first.begin("e4")).is_clean


async def test_a_session_that_the_ledger_has_lost_counts_as_exposed(tmp_path: Path) -> None:
    async with hosts(tmp_path / "runs.db") as (first, second):
        assert (await first.begin("e1", "hello")).is_clean
        other = Host(tmp_path / "other.db")
        assert not (await other.begin("e2", "hello", "and now?")).is_clean
        await other.aclose()
        program = await second.begin("e3")
        assert not program.is_clean  # the first one still runs elsewhere
        await program.leave()
        await second.records.writer.run(lambda: second.records.writer.prune(keep_seconds=-1))
        later = Host(tmp_path / "runs.db")
        assert (await later.begin("e4")).seen.exposed == {LOST: None}
        await later.aclose()


async def test_an_old_session_that_read_nothing_is_deleted(tmp_path: Path) -> None:
    async with hosts(tmp_path / "runs.db") as (first, second):
        await (await first.begin("e1")).leave()
        await first.records.writer.run(lambda: first.records.writer.prune(keep_seconds=-1))
        assert (await second.begin("e2")).is_clean


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sessions SET is_exposed = 0",
        "UPDATE sessions SET body = x'036e6577'",
        "UPDATE sessions SET body = CAST(substr(body, 1, length(body) - 1) || x'00' AS BLOB)",
    ],
)
async def test_a_state_that_was_altered_is_refused(tmp_path: Path, change: str) -> None:
    async with hosts(tmp_path / "runs.db") as (first, second):
        program = await first.begin("e1")
        first.call(program, "read_mail", MAIL)
        program.shows(MAIL)
        await program.leave()
        with sqlite3.connect(tmp_path / "runs.db") as database:
            database.execute(change)
        with pytest.raises(LedgerDamaged, match="session"):
            await second.begin("e2")


HOST = """
import os, sys, anyio
from corral import Corral, ExecutionContext, tool
from corral.ledger import SqliteLedger
from corral.policy import Policy
from tests.policy.test_flow import LABELS, read_mail

sent = []

@tool
def send(to: str) -> str:
    sent.append(to)
    return "sent"

@tool
def die() -> None:
    os.kill(os.getpid(), 9)

async def main():
    ledger = SqliteLedger(sys.argv[1], keys={"one": b"k" * 32})
    async with Corral([read_mail, send, die], policy=Policy(texts=[LABELS]), ledger=ledger, check=False) as corral:
        context = ExecutionContext(user_id="user", session_id="session")
        result = await corral.execute(sys.argv[2], context=context, durable="durable" in sys.argv)
        print(result.status, sent, result.error and result.error.name)

anyio.run(main)
"""


@pytest.mark.matrix("test_a_program_whose_host_was_lost_has_exposed_its_session does the same; here processes die")
@pytest.mark.parametrize("options", [(), ("durable",)])
def test_a_killed_process_leaves_its_session_exposed(tmp_path: Path, options: tuple[str, ...]) -> None:
    def run(source: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", HOST, str(tmp_path / "runs.db"), source, *options]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": "."}
        )

    sending = "return await tools.send({to: 'new@other.example'})"
    assert run(sending).stdout.startswith("succeeded ['new@other.example']")
    killed = run("console.log(await tools.read_mail()); await tools.die()")
    assert killed.returncode == -signal.SIGKILL
    after = run(sending)
    assert after.stdout.startswith(("failed [] ApprovalDenied", "paused []")), after
