"""The table in PostgreSQL, with a real server."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from corral.audit import AuditFilter, AuditLog, PostgresSink, open_audit
from corral.cli import main
from corral.errors import AccessDenied, ConfigError
from tests.audit.events import POISON, event, read
from tests.postgres import CONNECT
from tests.until import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Any]:
    connection = await CONNECT(url)
    try:
        yield connection
    finally:
        await connection.close()


async def test_events_come_back_and_filter_by_organization(postgres: str) -> None:
    made = [event(organization_id="ab"[number % 2], arguments={"n": number}, sequence=number) for number in range(20)]
    log = AuditLog(postgres)
    for each in made[:-1]:
        await log.record(each)
    await log.record_durably(made[-1])
    assert list(await read(postgres)) == made
    assert list(await read(postgres, organization_id="a")) == made[::2]
    assert list(await read(postgres, organization_id="c")) == []
    reader = open_audit(postgres)
    assert list(await reader.read(AuditFilter(user_id=None, since=made[3].time), 4)) == made[-4:]
    await log.record_durably(later := event())
    assert list(await reader.read(AuditFilter(), 10)) == [later]
    await reader.aclose()
    await log.aclose()


def test_a_host_on_trio_writes_it_too(postgres: str) -> None:
    async def record() -> None:
        log = AuditLog(postgres)
        await log.record(event(id="1"))
        await log.record_durably(event(id="2"))
        await log.aclose()

    anyio.run(record, backend="trio")
    assert [each.id for each in anyio.run(read, postgres)] == ["1", "2"]


async def test_no_event_blocks_those_behind_it(postgres: str) -> None:
    log = AuditLog(postgres)
    for fields in POISON.values():
        await log.record(event(**fields))
    await log.record_durably(event(tool="healthy"))
    await log.aclose()
    assert len(await read(postgres)) == len(POISON) + 1


async def test_long_texts_fit_into_every_index_and_are_found(postgres: str, caplog: pytest.LogCaptureFixture) -> None:
    chosen = random.Random(1)  # noqa: S311 - text that does not compress, as PostgreSQL tries before it refuses
    long = "".join(chr(chosen.randrange(0x20000, 0x2A6D0)) for _ in range(1000))
    columns = ("tool", "user_id", "organization_id", "execution_id", "session_id", "code", "id")
    log = AuditLog(postgres)
    await log.record_durably(event(**dict.fromkeys(columns, long), reason=long, arguments={long: long}))
    log.check()
    await log.aclose()
    for column in columns[:-1]:
        assert [each.reason for each in await read(postgres, 10, **{column: long})] == [long]
    assert list(await read(postgres, tool=long[:-1])) == []
    assert caplog.records == []


async def test_a_row_that_the_database_refuses_goes_to_the_logger_and_blocks_none(
    postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(postgres)
    await log.record_durably(event(id="1"))
    async with connected(postgres) as other:
        await other.execute("ALTER TABLE corral_audit ADD CONSTRAINT none CHECK (tool <> 'poison')")
    for id, tool in (("2", "add"), ("3", "poison"), ("4", "add")):
        await log.record(event(id=id, tool=tool))
    await until(lambda: "is not stored" in caplog.text)
    await log.flush()
    log.check()
    await log.record_durably(event(id="5"))
    await log.aclose()
    assert sorted(each.id for each in await read(postgres)) == ["1", "2", "4", "5"]
    [refused] = [record for record in caplog.records if "is not stored" in record.getMessage()]
    assert '"id":"3"' in refused.getMessage()


@pytest.mark.parametrize(
    ("cause", "outage"),
    [
        ("SELECT 1/0", False),
        ("DO $$ BEGIN RAISE SQLSTATE '54000'; END $$", False),
        ("DO $$ BEGIN RAISE SQLSTATE '53100'; END $$", True),
        ("DO $$ BEGIN RAISE SQLSTATE '53300'; END $$", True),
        ("SELECT * FROM no_such_table", True),
        ("SELECT pg_terminate_backend(pg_backend_pid())", True),
    ],
)
async def test_errors_of_rows_are_told_from_those_of_the_server(postgres: str, cause: str, *, outage: bool) -> None:
    async with connected(postgres) as other:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of asyncpg
            await other.execute(cause)
    assert PostgresSink(postgres).is_outage(caught.value) is outage


async def test_an_event_that_is_written_again_is_there_once(postgres: str) -> None:
    sink = PostgresSink(postgres)
    made = [event() for _ in range(3)]
    await sink.write(made[:2])
    await sink.write(made)
    await sink.aclose()
    assert list(await read(postgres)) == made


async def test_a_connection_that_was_closed_is_made_again(postgres: str, caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(postgres)
    await log.record_durably(event(id="1"))
    async with connected(postgres) as other:
        others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        assert await other.fetchval(f"{others} AND datname = current_database()")
    await log.record_durably(event(id="2"))
    assert caplog.records == []
    await log.aclose()
    assert [each.id for each in await read(postgres)] == ["1", "2"]


async def test_a_database_that_refuses_denies_until_it_does_not(postgres: str) -> None:
    log = AuditLog(postgres)
    await log.record_durably(event(id="1"))
    async with connected(postgres) as other:
        await other.execute("ALTER TABLE corral_audit ADD CONSTRAINT none CHECK (id = '1')")
        with pytest.raises(AccessDenied):
            await log.record_durably(event(id="2"))
        with pytest.raises(AccessDenied):
            log.check()
        await other.execute("ALTER TABLE corral_audit DROP CONSTRAINT none")
    await log.flush()
    log.check()
    await log.aclose()
    assert [each.id for each in await read(postgres)] == ["1", "2"]


async def test_several_logs_may_create_the_table_at_the_same_time(
    postgres: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logs = [AuditLog(postgres) for _ in range(4)]
    async with anyio.create_task_group() as tasks:
        for number, log in enumerate(logs):
            tasks.start_soon(log.record_durably, event(id=f"{number}"))
    for log in logs:
        await log.aclose()
    assert sorted(each.id for each in await read(postgres)) == ["0", "1", "2", "3"]
    assert caplog.records == []


async def test_a_role_that_may_only_insert_is_enough(postgres: str) -> None:
    created = PostgresSink(postgres)
    await created.write([event(id="1")])
    await created.aclose()
    async with connected(postgres) as other:
        await other.execute("DROP ROLE IF EXISTS appender; CREATE ROLE appender LOGIN")
        await other.execute("GRANT INSERT ON corral_audit TO appender")
    sink = PostgresSink(postgres.replace("corral@", "appender@"))
    await sink.write([event(id="2"), event(id="1")])
    await sink.aclose()
    assert [each.id for each in await read(postgres)] == ["1", "2"]
    async with connected(postgres) as other:
        await other.execute("DROP OWNED BY appender; DROP ROLE appender")


async def test_a_table_may_have_another_name_and_schema(postgres: str) -> None:
    async with connected(postgres) as other:
        await other.execute("CREATE SCHEMA logs")
        sink = PostgresSink(postgres, table="logs.calls")
        await sink.write([event(arguments={"a": 1})])
        await sink.aclose()
        assert await other.fetchval("SELECT arguments->>'a' FROM logs.calls") == "1"


@pytest.mark.parametrize("table", ["", "a b", "a;drop table x", 'a"', "a.b.c", "Audit", "1a", "x" * 60])
def test_what_is_no_name_of_a_table_is_refused(table: str) -> None:
    with pytest.raises(ConfigError, match="is not a table name"):
        PostgresSink("postgresql://localhost/app", table=table)


def test_the_password_is_not_shown() -> None:
    assert "hunter2" not in repr(PostgresSink("postgresql://u:hunter2@localhost/app"))


def test_the_command_reads_it(
    postgres: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write() -> None:
        log = AuditLog(postgres)
        await log.record(event(tool="orders.refund", outcome="denied"))
        await log.record(event(tool="add"))
        await log.aclose()

    anyio.run(write)
    monkeypatch.setattr(sys, "argv", ["corral", "audit", postgres, "--outcome", "denied"])
    assert main() == 0
    table = capfd.readouterr().out
    assert table.count("\n") == 2
    assert "orders.refund" in table
    monkeypatch.setattr(sys, "argv", ["corral", "audit", "postgresql://u:hunter2@127.0.0.1:1/app"])
    assert main() == 2
    error = capfd.readouterr().err
    assert "cannot be read" in error
    assert "hunter2" not in error
