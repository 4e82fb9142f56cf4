"""`corral audit`: the table, the options, the exit codes, and hostile names on a terminal."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from pathlib import Path

import pytest

from corral.audit import AuditEvent, JsonLinesSink, SqliteSink
from tests.audit.events import event
from tests.cli.terminal import Ended, Here, Terminal
from tests.forks import CORRAL

NOW = time.time()
HOSTILE = "evil\x1b[2J\x9b31m\r\n\u202e\u2028"
EVENTS = [
    event(time=NOW - 86_400, user_id="ann", organization_id="acme", tool="orders.find", execution_id="execution-1"),
    event(time=NOW - 60, user_id="bob", organization_id="acme", tool="orders.refund", outcome="denied",
          code="scope_denied", reason="tools.orders.refund needs the scope refunds"),
    event(time=NOW - 50, user_id="eve", organization_id="other", tool=HOSTILE, outcome="failed", code="tool_not_found"),
    event(time=NOW - 40, kind="execution", tool=None, calls=3, user_id="ann", session_id="s"),
]  # fmt: skip


class Logs(Here):
    """A directory with two logs."""

    def audit(self, *arguments: str) -> Ended:
        """`corral audit`."""
        return self.main("audit", *arguments)

    def listed(self, *arguments: str) -> list[AuditEvent]:
        """What it prints as JSON."""
        ended = self.audit(*arguments, "--json")
        assert (ended.returncode, ended.stderr) == (0, "")
        return [AuditEvent.from_json(line) for line in ended.stdout.splitlines()]


@pytest.fixture
def project(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Logs:
    for sink in (JsonLinesSink(tmp_path / "audit.jsonl"), SqliteSink(tmp_path / "audit.sqlite")):
        sink.write(EVENTS)
        sink.aclose()
    monkeypatch.chdir(tmp_path)
    return Logs(tmp_path, capfd)


def test_the_table_has_a_row_for_each_event(project: Logs) -> None:
    ended = project.audit("audit.jsonl")
    assert (ended.returncode, ended.stderr) == (0, "")
    title, first, second, third, fourth = ended.stdout.splitlines()
    assert title.split() == ["TIME", "OUTCOME", "TOOL", "USER", "ORGANIZATION", "MS", "EXECUTION", "REASON"]
    moment = (
        datetime.fromtimestamp(NOW - 86_400)
        .astimezone()
        .replace(tzinfo=None)
        .isoformat(sep=" ", timespec="milliseconds")
    )
    assert re.fullmatch(rf"{moment}  succeeded  orders\.find +ann +acme +1\.5  execution-1", first)
    assert re.search(r"denied +orders\.refund +bob .*tools\.orders\.refund needs the scope refunds$", second)
    assert "tool_not_found" in third
    assert re.search(r"succeeded  \(3 calls\) +ann", fourth)


@pytest.mark.parametrize("source", ["audit.jsonl", "audit.sqlite"])
def test_the_options_choose_events(project: Logs, source: str) -> None:
    assert project.listed(source, "--organization", "acme", "--since", "600m") == EVENTS[1:2]
    assert project.listed(source, "--user", "ann", "--limit", "1") == EVENTS[3:]
    until = datetime.fromtimestamp(NOW - 55).astimezone().isoformat()
    assert project.listed(source, "--until", until, "--since", "2026-01-01") == EVENTS[:2]


def test_each_option_is_heeded(project: Logs) -> None:
    for options, number in (
        (["--tool", "orders.find", "--execution", "execution-1"], 0),
        (["--outcome", "denied", "--code", "scope_denied"], 1),
        (["--kind", "execution", "--session", "s"], 3),
    ):
        assert project.listed("audit.jsonl", *options) == [EVENTS[number]], options


def test_no_hostile_name_drives_the_terminal(project: Logs) -> None:
    with Terminal([CORRAL, "audit", "audit.jsonl"], project.directory, columns=200, rows=30, env={}) as terminal:
        assert terminal.ends() == 0
    table = terminal.output.replace("\r\n", "\n")
    json_lines = project.audit("audit.jsonl", "--json").stdout
    assert (table.count("\n"), json_lines.count("\n")) == (5, 4)
    for text in (table, json_lines):
        assert "evil" in text
        assert text.replace("\n", "").isprintable()


def test_torn_lines_are_counted_on_standard_error(project: Logs) -> None:
    with (project.directory / "audit.jsonl").open("a") as file:
        file.write('{"v":1,"id":"0')
    ended = project.audit("audit.jsonl", "--json")
    assert (ended.returncode, ended.stdout.count("\n")) == (0, 4)
    assert ended.stderr == "1 torn line left out\n"


def test_wrong_usage_is_exit_code_2(project: Logs) -> None:
    project.write("broken.sqlite", "no database " * 100)
    for arguments, message in (
        (["missing.jsonl"], "the audit log missing.jsonl does not exist"),
        (["audit.txt"], r"\.jsonl or \.sqlite, a postgresql:// URL"),
        (["audit.jsonl", "--since", "yesterday"], "--since 'yesterday' is neither 15m, 2h or 7d, nor a date"),
        (["audit.jsonl", "--limit", "0"], "--limit 0 is too small; it must be at least 1"),
        (["audit.jsonl", "--outcome", "refused"], "invalid choice"),
        (["broken.sqlite"], "cannot be read: DatabaseError"),
    ):
        ended = project.audit(*arguments)
        assert (ended.returncode, "Traceback" in ended.stderr) == (2, False), arguments
        assert re.search(message, ended.stderr), arguments


def test_following_prints_events_as_they_are_written(project: Logs) -> None:
    command = [CORRAL, "audit", "audit.jsonl", "--follow", "--organization", "acme"]
    with Terminal(command, project.directory, columns=200, rows=30, env={}) as terminal:
        terminal.until("refund")
        sink = JsonLinesSink(project.directory / "audit.jsonl")
        sink.write([event(organization_id="other", tool="hidden"), event(organization_id="acme", tool="later.one")])
        sink.aclose()
        terminal.until(r"later\.one")
        terminal.interrupt()
        assert terminal.ends() == 130
        assert "hidden" not in terminal.output
        assert terminal.output.count("later.one") == 1


def test_json_lines_are_those_of_the_file(project: Logs) -> None:
    lines = project.audit("audit.sqlite", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [json.loads(each.to_json()) for each in EVENTS]
