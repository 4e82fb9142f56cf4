"""Files of JSON lines and SQLite databases: kills, full disks, rotation, several processes, reading."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from corral.audit import AuditFilter, AuditLog, JsonLinesSink, SqliteSink, open_audit
from corral.audit.sinks import identity
from corral.errors import AccessDenied, ConfigError
from tests.audit.events import event, read
from tests.forks import ForkedProcess
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("name", ["audit.jsonl", "audit.sqlite"])

EVENTS = """
import asyncio, resource, sys
from corral.audit import AuditEvent, AuditLog
from corral.errors import AccessDenied
def event(id, outcome="succeeded"):
    return AuditEvent(id=id, time=1.0, kind="call", outcome=outcome, duration_ms=1.0, protocol="pipe", tool="x" * 100)
"""


def process(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", EVENTS + script, *arguments]
    return ForkedProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


# --- kills

RECORDING = """
log = AuditLog(*sys.argv[1:])
async def main():
    for number in range(1000):
        if number % 5 == 0:
            await log.record_durably(event(f"denied {number}", "denied"))
            print(f"denied {number}", flush=True)
        else:
            await log.record(event(f"allowed {number}"))
asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 100])
def test_no_denial_that_was_acknowledged_is_missing_after_a_kill(tmp_path: Path, after: int) -> None:
    paths = [tmp_path / "audit.jsonl", tmp_path / "audit.sqlite"]
    with process(RECORDING, *map(str, paths)) as recording:
        assert recording.stdout is not None
        acknowledged = [recording.stdout.readline().strip() for _ in range(after)]
        recording.send_signal(signal.SIGKILL)
        acknowledged += recording.stdout.read().splitlines()
    assert recording.returncode == -signal.SIGKILL
    assert len(acknowledged) >= after
    last = int(acknowledged[-1].split()[1])
    for path in paths:
        found = [each.id for each in asyncio.run(read(path))]
        assert set(acknowledged) <= set(found)
        # What was recorded before a denial went with it, in order.
        assert [each for each in found if int(each.split()[1]) <= last] == [
            f"{'allowed' if number % 5 else 'denied'} {number}" for number in range(last + 1)
        ]
        asyncio.run(go_on(path))


async def go_on(path: Path) -> None:
    log = AuditLog(path)
    await log.record_durably(event(id="afterwards"))
    await log.aclose()
    assert (await read(path))[-1].id == "afterwards"


# --- full disks

LIMITED = """
async def fill(path):
    log = AuditLog(path)
    recorded = 0
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        while True:
            log.check()
            recorded += 1
            await log.record_durably(event(f"{recorded}"))
            for _ in range(50):
                recorded += 1
                await log.record(event(f"{recorded}"))
    except AccessDenied as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await log.flush()
    log.check()
    await log.aclose()
    print(recorded)
for path in sys.argv[1:]:
    asyncio.run(fill(path))
"""


def test_a_full_disk_denies_and_loses_nothing_once_there_is_room(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("audit.jsonl", "audit.sqlite")]
    with process(LIMITED, *paths) as filling:
        out, err = filling.communicate(timeout=LIMIT_SECONDS)
    assert filling.returncode == 0
    lines = out.splitlines()
    assert len(lines) == 4
    for path, message, recorded in zip(paths, lines[::2], lines[1::2], strict=True):
        assert "the audit log cannot be written" in message
        assert f"({path!r}) cannot be written; events are kept" in err
        reader = open_audit(path)
        found = [each.id for each in asyncio.run(reader.read(AuditFilter(), 100_000))]
        asyncio.run(reader.aclose())
        assert found == [str(number) for number in range(1, int(recorded) + 1)]
        assert reader.torn == 0


async def test_a_device_that_is_full_denies_until_there_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.symlink_to("/dev/full")
    log = AuditLog(path)
    with pytest.raises(AccessDenied):
        await log.record_durably(event(id="first"))
    with pytest.raises(AccessDenied):
        log.check()
    path.unlink()
    await log.flush()
    log.check()
    await log.aclose()
    assert [each.id for each in await read(path)] == ["first"]


@pytest.mark.parametrize(
    ("cause", "outage"),
    [
        ("INSERT INTO audit (position) VALUES (1)", False),  # NOT NULL
        ("PRAGMA query_only = ON; DELETE FROM audit", True),
        ("PRAGMA max_page_count = 1; CREATE TABLE more AS SELECT zeroblob(100000)", True),  # as a full disk
    ],
)
def test_errors_of_rows_are_told_from_those_of_the_database(tmp_path: Path, cause: str, *, outage: bool) -> None:
    sink = SqliteSink(tmp_path / "audit.sqlite")
    sink.write(MADE)
    sink.aclose()
    with closing(sqlite3.connect(sink.path)) as connection, pytest.raises(sqlite3.Error) as caught:
        connection.executescript(cause)
    assert sink.is_outage(caught.value) is outage


# --- torn lines, rotation, several processes


async def test_a_torn_line_is_left_alone_and_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    first, torn, second = event(), event(), event()
    path.write_text(f"{first.to_json()}\n{torn.to_json()[:50]}")
    reader = open_audit(str(path))
    assert list(await reader.read(AuditFilter(), 10)) == [first]
    assert reader.torn == 1
    log = AuditLog(path)
    await log.record_durably(second)
    await log.aclose()
    assert list(await reader.read(AuditFilter(), 10)) == [second]
    assert reader.torn == 1
    assert list(await read(path)) == [first, second]


async def test_lines_that_are_no_events_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"\n\xff\xfe\nnull\n" + b"[" * 100_000 + b"\n" + event(id="a").to_json().encode() + b"\n")
    reader = open_audit(str(path))
    assert [each.id for each in await reader.read(AuditFilter(), 10)] == ["a"]
    assert reader.torn == 3


async def test_a_file_that_is_renamed_as_it_is_opened_is_followed_by_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"

    def renamed(file: Path | int) -> tuple[int, int] | None:
        """Has others rename the file, and make a new one, as it is looked at."""
        if not (tmp_path / "old.jsonl").exists():
            path.rename(tmp_path / "old.jsonl")
            path.write_text(new.to_json() + "\n")
        return identity(file)

    first, second, new = (event(tool=name) for name in ("first", "second", "new"))
    sink = JsonLinesSink(path)
    monkeypatch.setattr("corral.audit.sinks.identity", renamed)
    sink.write([first])
    sink.write([second])
    sink.aclose()
    assert list(await read(tmp_path / "old.jsonl")) == [first]
    assert list(await read(path)) == [new, second]


async def test_a_file_that_is_renamed_as_it_is_read_again_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.jsonl"
    old, new = event(tool="old"), [event(tool=f"new {number}") for number in range(3)]
    path.write_text(old.to_json() + "\n")
    reader = open_audit(str(path))
    assert list(await reader.read(AuditFilter(), 10)) == [old]

    def renamed(file: Path | int) -> tuple[int, int] | None:
        found = identity(file)
        path.rename(tmp_path / "old.jsonl")
        path.write_text("".join(each.to_json() + "\n" for each in new))
        return found

    with monkeypatch.context() as patched:
        patched.setattr("corral.audit.sinks.identity", renamed)
        assert list(await reader.read(AuditFilter(), 10)) == []
    assert (list(await reader.read(AuditFilter(), 10)), reader.torn) == (new, 0)


@BOTH
async def test_a_file_that_was_renamed_or_deleted_is_followed_by_a_new_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    log = AuditLog(path)
    await log.record_durably(event(id="1"))
    path.rename(tmp_path / f"old.{name}")
    for rest in tmp_path.glob(f"{name}-*"):
        rest.rename(tmp_path / f"old.{rest.name}")
    await log.record_durably(event(id="2"))
    old = await read(tmp_path / f"old.{name}")
    assert [each.id for each in old] == ["1"]
    assert [each.id for each in await read(path)] == ["2"]
    await log.aclose()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@BOTH
async def test_a_file_that_another_user_put_where_all_may_write_is_not_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch(mode=0o666)
    tmp_path.chmod(0o1777)
    os.chown(path, 65534, 65534)
    log = AuditLog(str(path))
    with pytest.raises(AccessDenied):
        await log.record_durably(event())
    assert path.read_bytes() == b""
    path.unlink()
    await log.flush()
    assert path.stat().st_uid == os.geteuid()
    await log.aclose()


@BOTH
async def test_only_the_owner_may_read_it(tmp_path: Path, name: str) -> None:
    before = os.umask(0)
    try:
        log = AuditLog(tmp_path / name)
        await log.record_durably(event())
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    await log.aclose()


MANY = """
async def main():
    number, *paths = sys.argv[1:]
    log = AuditLog(*paths)
    for count in range(300):
        await (log.record_durably if count % 10 == 0 else log.record)(event(f"{number} {count}"))
    await log.aclose()
asyncio.run(main())
"""


def test_several_processes_share_a_file(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("audit.jsonl", "audit.sqlite")]
    processes = [process(MANY, str(number), *paths) for number in range(2)]
    for each in processes:
        assert each.communicate(timeout=LIMIT_SECONDS)[1] == ""
    for path in paths:
        found = [each.id for each in asyncio.run(read(path))]
        assert sorted(found) == sorted(f"{number} {count}" for number in range(2) for count in range(300))


@pytest.mark.parametrize("kind", [JsonLinesSink, SqliteSink])
async def test_a_missing_directory_denies_until_it_is_there(
    tmp_path: Path, kind: type[JsonLinesSink | SqliteSink]
) -> None:
    log = AuditLog(kind(tmp_path / "logs" / "audit"))
    with pytest.raises(AccessDenied):
        await log.record_durably(event())
    (tmp_path / "logs").mkdir()
    await log.flush()
    log.check()
    await log.aclose()


# --- reading

START = time.time()
MADE = [
    event(organization_id="acme", user_id="ann", tool="a.b", time=START),
    event(organization_id="acme", user_id="bob", outcome="denied", code="scope_denied", time=START + 1),
    event(organization_id="other", user_id="ann", session_id="s", time=START + 2),
    event(organization_id=None, user_id="ann", execution_id="e", kind="execution", time=START + 3),
]


WANTED: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2, 3]),
    ({"organization_id": "acme"}, [0, 1]),
    ({"organization_id": "acm"}, []),
    ({"organization_id": "acme", "user_id": "ann"}, [0]),
    ({"user_id": "ann"}, [0, 2, 3]),
    ({"tool": "a.b"}, [0]),
    ({"outcome": "denied", "code": "scope_denied"}, [1]),
    ({"session_id": "s"}, [2]),
    ({"execution_id": "e", "kind": "execution"}, [3]),
    ({"since": START + 1, "until": START + 3}, [1, 2]),
    ({"organization_id": "' OR 1=1 --"}, []),
]


@BOTH
async def test_a_reader_gets_what_it_asks_for_and_nothing_of_other_organizations(tmp_path: Path, name: str) -> None:
    sink = JsonLinesSink(tmp_path / name) if name.endswith("jsonl") else SqliteSink(tmp_path / name)
    sink.write(MADE)
    sink.aclose()
    found = [(wanted, [MADE.index(each) for each in await read(tmp_path / name, **wanted)]) for wanted, _ in WANTED]
    assert found == WANTED


@BOTH
async def test_a_long_name_is_found_by_its_whole_and_by_what_is_kept_of_it(tmp_path: Path, name: str) -> None:
    long = "\U00020000" * 1000
    log = AuditLog(tmp_path / name)
    for tool in (long, f"{long}x", "\0", "\ud800"):
        await log.record(event(tool=tool))
    await log.aclose()
    [found] = await read(tmp_path / name, tool=long)
    assert list(await read(tmp_path / name, tool=found.tool)) == [found]
    for tool in (f"{long}x", "\0", "\ud800"):
        assert len(await read(tmp_path / name, tool=tool)) == 1


@BOTH
async def test_a_reader_gives_the_last_events_and_later_what_was_added(tmp_path: Path, name: str) -> None:
    log = AuditLog(tmp_path / name)
    for number in range(10):
        await log.record(event(id=f"{number}", organization_id="ab"[number % 2]))
    await log.flush()
    reader = open_audit(str(tmp_path / name))
    wanted = AuditFilter(organization_id="a")
    assert [each.id for each in await reader.read(wanted, 2)] == ["6", "8"]
    assert list(await reader.read(wanted, 2)) == []
    for number in range(10, 13):
        await log.record(event(id=f"{number}", organization_id="ab"[number % 2]))
    await log.aclose()
    assert [each.id for each in await reader.read(wanted, 9)] == ["10", "12"]
    await reader.aclose()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"audit log .*missing\.jsonl"):
        open_audit(str(tmp_path / "missing.jsonl"))


async def test_an_event_that_is_written_again_is_there_once(tmp_path: Path) -> None:
    sink = SqliteSink(tmp_path / "audit.sqlite")
    sink.write(MADE)
    sink.write(MADE)
    sink.aclose()
    assert len(await read(tmp_path / "audit.sqlite")) == len(MADE)
