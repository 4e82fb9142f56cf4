"""Agents whose programs pause, and whose host is killed after each step: each framework's own answer continues them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.pausing import AGENTS
from tests.integrations.test_pauses import ONE, TWO

pytestmark = pytest.mark.matrix("test_pauses.py restarts a Corral for every framework; this kills its process")

ROOT = Path(__file__).parents[2]


class Host:
    """Processes that each do one step of an agent, and are killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.folder = Path()
        self.kind = ""

    def step(self, step: str, **options: Any) -> str | None:
        command = {"folder": str(self.folder), "kind": self.kind, "step": step, **options}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        child = int(self._process.stdout.readline())
        text = json.loads(self._process.stdout.readline())
        if text != "failed":
            os.kill(child, signal.SIGKILL)
        return text

    @property
    def effects(self) -> list[int]:
        return [int(line) for line in (self.folder / "effects").read_text().splitlines()]

    def expire(self) -> None:
        """Ends the lease of the killed host, as 30 s later."""
        with sqlite3.connect(self.folder / "runs.db") as database:
            database.execute("UPDATE executions SET lease = 0")


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.integrations.killed_agents"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, encoding="utf-8") as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(params=AGENTS)
def host(process: subprocess.Popen[str], tmp_path: Path, request: pytest.FixtureRequest) -> Host:
    host = Host(process)
    host.folder, host.kind = tmp_path, request.param
    return host


def test_an_approval_is_given_after_the_host_was_killed(host: Host) -> None:
    assert host.step("start", source=ONE) is None
    assert host.step("answer", decisions=True) == "Result: [10,20]"
    assert host.effects == [1, 2]


def test_an_approval_is_denied_after_the_host_was_killed(host: Host) -> None:
    assert host.step("start", source=ONE) is None
    assert host.step("answer", decisions="too much") == 'Result: [10,"tools.pay was not approved: too much"]'
    assert host.effects == [1]


def test_two_approvals_at_once_are_given_one_by_one_after_the_host_was_killed(host: Host) -> None:
    assert host.step("start", source=TWO) is None
    assert host.step("answer", decisions={2: "no", 3: True}) == 'Result: ["rejected","fulfilled"]'
    assert host.effects == [1, 3]


def test_a_decision_holds_if_the_host_was_killed_before_it_continued_the_program(host: Host) -> None:
    assert host.step("start", source=ONE) is None
    assert host.step("decide") == "decided"
    assert host.step("answer", decisions="too late") == "Result: [10,20]"
    assert host.effects == [1, 2]


def test_a_call_in_which_the_host_was_killed_is_asked_about_and_not_made_by_itself(host: Host) -> None:
    assert host.step("start", source=ONE) is None
    assert host.step("answer", decisions=True, stop=True) == "stopped"
    assert host.effects == [1, 2]
    host.expire()
    assert host.step("answer", decisions=True) is None, "the effect of the call is unknown, so it waits again"
    assert host.effects == [1, 2]
    assert host.step("answer", decisions=True) == "Result: [10,20]", "approving it makes it again"
    assert host.effects == [1, 2, 2]
