"""Ledgers in PostgreSQL, with a real server."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import anyio.to_thread
import asyncpg
import pytest

from corral import ApprovalRequest, ExecutionContext, ExecutionResult
from corral.cli import main
from corral.cli.commands.executions import paused_line
from corral.errors import ConfigError, HeldElsewhere, LedgerDamaged, LedgerFailed, MissingExtra
from corral.ledger import (
    Ledger,
    PostgresLedger,
    Records,
    StoredCall,
    StoredDecision,
    StoredExecution,
    as_ledger,
    base,
    postgres,
)
from corral.testing import LedgerSuite
from corral.types import Approved
from tests.ledger.test_ledgers import HEAD, KEYS, OWNER, call
from tests.postgres import PostgresServer, execute, fresh_url
from tests.until import LIMIT_SECONDS

LOST: type[Exception] = cast("Any", asyncpg).ConnectionDoesNotExistError
EXECUTION = StoredExecution("a", None, "ann", "running", 1.0, 1.0, 1, 100.0, b"head")
CALL = StoredCall("a", 1, "done", 0, b"body")
DECISION = StoredDecision("a", 1, b"binding", b"yes")


class TestPostgresLedger(LedgerSuite):
    @pytest.fixture(autouse=True)
    def place(self, url: str) -> None:
        self.url = url

    def ledger(self) -> Ledger:
        return PostgresLedger(self.url, keys={})


@pytest.fixture
def ledger(url: str) -> Iterator[PostgresLedger]:
    ledger = PostgresLedger(url, keys={})
    yield ledger
    ledger.close()


def test_hosts_can_create_the_tables_at_once(url: str) -> None:
    ledgers = [PostgresLedger(url, keys={}) for _ in range(6)]

    def get(ledger: PostgresLedger) -> StoredExecution | None:
        try:
            return ledger.get("a")
        finally:
            ledger.close()

    with ThreadPoolExecutor(6) as threads:
        assert [*threads.map(get, ledgers)] == [None] * 6
    assert [tuple(row) for row in execute(url, "SELECT version FROM corral_ledger")] == [(1,)]


def test_tables_of_a_later_version_are_refused(url: str, ledger: PostgresLedger) -> None:
    ledger.create(EXECUTION)
    execute(url, "UPDATE corral_ledger SET version = 2")
    other = PostgresLedger(url, keys={})
    with pytest.raises(LedgerFailed, match="has tables of version 2, and this corral has 1"):
        other.get("a")
    other.close()


def test_a_role_needs_to_read_and_write_the_tables_only(url: str, ledger: PostgresLedger) -> None:
    schema = url.rpartition("=")[2]
    execute(url, "CREATE ROLE app LOGIN")
    execute(url, f"GRANT USAGE ON SCHEMA {schema} TO app")
    other = PostgresLedger(url.replace("corral@", "app@"), keys={})
    try:
        with pytest.raises(LedgerFailed, match="cannot be opened: permission denied for schema"):
            other.get("a")
        ledger.create(EXECUTION)
        execute(url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO app")
        other.write({"a": 1}, [CALL], durably=True)
        assert other.decide(DECISION, now=2.0)
        assert other.claim("a", now=200.0, lease=230.0)
        assert not other.renew({"a": 2}, lease=240.0)
        assert other.end("a", 2, "failed", b"result", now=201.0)
        assert other.prune(ended_before=300.0, paused_before=None) == 1
    finally:
        other.close()
        execute(url, "DROP OWNED BY app")
        execute(url, "DROP ROLE app")


def test_a_connection_that_was_closed_is_made_again(url: str, ledger: PostgresLedger) -> None:
    ledger.create(EXECUTION)
    for _ in range(2):
        execute(url, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        ledger.write({"a": 1}, [CALL], durably=True)
    assert ledger.calls("a") == [CALL]


class Losing(PostgresLedger):
    """Ledger that loses its connection after the server has done what it was asked, before the answer."""

    loses = False

    async def _open(self) -> Any:
        connection, ledger = await super()._open(), self
        fetch = connection.fetch

        class Lost:
            async def fetch(self, *arguments: Any) -> Any:
                rows = await fetch(*arguments)
                if ledger.loses:
                    ledger.loses = False
                    raise LOST("connection was closed in the middle of operation")
                return rows

            terminate = staticmethod(connection.terminate)
            close = staticmethod(connection.close)

        return Lost()


def test_a_change_whose_answer_was_lost_is_made_once_and_is_known_to_be(url: str) -> None:
    ledger = Losing(url, keys={})

    def losing() -> Losing:
        ledger.loses = True
        return ledger

    losing().create(EXECUTION)
    assert not losing().write({"a": 1}, [CALL, CALL._replace(sequence=2, place=1)], durably=True)
    assert not losing().renew({"a": 1}, lease=50.0)
    assert losing().decide(DECISION, now=2.0)
    assert not losing().decide(DECISION._replace(body=b"no"), now=3.0)
    with pytest.raises(LedgerFailed, match="failed: connection was closed in the middle of operation"):
        losing().claim("a", now=51.0, lease=81.0)  # as that of a host that is lost
    assert ledger.claim("a", now=52.0, lease=82.0) is None
    assert ledger.claim("a", now=82.0, lease=112.0) == EXECUTION._replace(claim=3, updated=51.0, lease=81.0)
    assert losing().end("a", 3, "paused", b"state", now=83.0)
    assert not losing().end("a", 2, "paused", b"state", now=83.0)
    assert losing().prune(ended_before=0.0, paused_before=None) == 0
    assert len(ledger.calls("a")) == 2
    ledger.close()


def test_what_a_server_has_confirmed_survives_its_crash(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_RESTART_SECONDS", LIMIT_SECONDS)
    ledger = PostgresLedger(fresh_url(str(own_server.home)), keys={})
    ledger.create(EXECUTION)
    ledger.write({"a": 1}, [CALL], durably=False)
    own_server.stop(signal.SIGQUIT)
    with ThreadPoolExecutor(1) as thread:  # it waits for the server
        calls = thread.submit(ledger.calls, "a")
        own_server.start()
        assert calls.result() == [CALL]
        thread.submit(ledger.close).result()


@pytest.mark.anyio
async def test_a_server_that_is_gone_fails_in_one_line_until_it_is_back(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postgres, "_RESTART_SECONDS", 0.3)
    url = await anyio.to_thread.run_sync(fresh_url, str(own_server.home))
    records, other = (Records(PostgresLedger(url, keys=KEYS)) for _ in range(2))
    claim = await records.create("a", OWNER, HEAD)
    own_server.stop(signal.SIGINT)
    with pytest.raises(LedgerFailed, match=r"^the ledger in PostgreSQL cannot be opened: \[Errno"):
        await other.load("a")
    records.writer.put(claim, call(1, 0))
    with pytest.raises(LedgerFailed, match=r"^the ledger in PostgreSQL cannot be opened: \[Errno"):
        await records.writer.durable(claim)
    own_server.start()
    await records.end(claim, "running", None)
    again, recorded = await other.claim("a")
    assert (again.number, recorded.calls) == (2, [])
    await other.end(again, "succeeded", dict)
    for each in (records, other):
        await each.writer.aclose()


@pytest.mark.anyio
async def test_leases_are_by_the_clock_of_the_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (Records(PostgresLedger(url, keys=KEYS)) for _ in range(2))
    claim = await one.create("a", OWNER, HEAD)
    monkeypatch.setattr(base.time, "time", lambda: 1e12)
    with pytest.raises(HeldElsewhere, match=r"can be resumed in \d\d s"):
        await two.claim("a")
    await one.end(claim, "paused", dict)
    assert (await two.load("a")).execution.updated < 1e12
    for each in (one, two):
        await each.writer.aclose()


@pytest.mark.anyio
async def test_rows_are_sealed_and_one_that_was_altered_is_refused(url: str) -> None:
    records = Records(PostgresLedger(url, keys=KEYS))
    claim = await records.create("a", OWNER, HEAD)
    records.writer.put(claim, call(1, 0))
    await records.decide("a", 1, b"tool", Approved(by="ann"))
    await records.end(claim, "paused", lambda: {"replies": 1})
    recorded = await records.load("a")
    assert ([*recorded.calls], recorded.decisions) == ([call(1, 0)], {(1, b"tool"): Approved(by="ann")})
    run = anyio.to_thread.run_sync
    stored = await run(
        execute,
        url,
        "SELECT head FROM corral_executions UNION SELECT body FROM corral_calls UNION SELECT body FROM corral_decisions",
    )
    assert not any(secret in body for (body,) in stored for secret in (b"secret", b"shop.pay", b"ann"))
    await run(execute, url, "UPDATE corral_calls SET body = set_byte(body, 40, 255 - get_byte(body, 40))")
    with pytest.raises(LedgerDamaged, match="a call 1 done 0 was altered"):
        await records.load("a")
    await records.writer.aclose()


def test_more_rows_than_fit_into_a_statement_are_written(
    ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_STATEMENT_BYTES", 100)
    ledger.create(EXECUTION)
    rows = [CALL._replace(sequence=n, place=n, body=b"b" * 40) for n in range(7)]
    assert not ledger.write({"a": 1}, rows, durably=True)
    assert {*ledger.write({"a": 1, "b": 1}, [*rows, *rows], durably=True)} == {"b"}
    assert [*ledger.calls("a")] == rows


@pytest.mark.parametrize(
    "url",
    ["postgresql://ann:hunter2@127.0.0.1:1/app", "postgres://ann:hunter2/x@host/app", "postgresql://ann:hunter2@[x/"],
)
def test_passwords_are_neither_shown_nor_in_errors(url: str) -> None:
    ledger = PostgresLedger(url, keys={})
    with pytest.raises((LedgerFailed, ConfigError)) as caught:
        ledger.get("a")
    ledger.close()
    assert "hunter2" not in f"{ledger!r} {caught.value} {caught.value.__cause__}"
    assert "\n" not in str(caught.value)


def test_other_urls_are_refused_without_their_password() -> None:
    with pytest.raises(ConfigError, match=r"a URL mysql://... is not a ledger") as caught:
        as_ledger("mysql://ann:hunter2@host/app")
    assert "hunter2" not in str(caught.value)


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingExtra, match=r"a ledger in PostgreSQL needs .*: pip install 'corral\[postgres\]'"):
        PostgresLedger("postgresql://localhost/app", keys={})


@pytest.mark.matrix("cli/test_executions.py reads a ledger in a file in the gate; here one in Postgres")
def test_the_command_reads_it(url: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORRAL_LEDGER_KEYS", "new=bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4=")

    async def record() -> None:
        records = Records(as_ledger(url))
        await records.end(await records.create("execution-1", OWNER, HEAD), "paused", dict)
        await records.writer.aclose()

    anyio.run(record)
    monkeypatch.setattr(sys, "argv", ["corral", "executions", "list", "--ledger", url])
    assert main() == 0
    assert "execution-1" in capfd.readouterr().out
    wrong = "postgresql://ann:hunter2@127.0.0.1:1/app"
    monkeypatch.setattr(sys, "argv", ["corral", "executions", "list", "--ledger", wrong])
    assert main() != 0
    error = capfd.readouterr().err
    assert "the ledger in PostgreSQL cannot be opened" in error
    assert "hunter2" not in error
    asked = ApprovalRequest(
        tool="pay",
        input={},
        arguments={},
        description="",
        read_only=False,
        context=ExecutionContext(),
        execution_id="execution-1",
        sequence=1,
    )
    paused = ExecutionResult(execution_id="execution-1", status="paused", language="python", pending=(asked,))
    assert paused_line(paused, wrong) == "paused, 1 decision missing: corral executions show execution-1 --ledger URL"
