"""Executions that an earlier state of this tree has recorded replay as they ran, or are refused by their versions."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral import ConfigError, Corral
from corral.errors import Outdated
from corral.ledger import SqliteLedger
from corral.testing import RecordedExecution, replays
from tests.running.record import FAILING, KEYS, LEDGER, tools

pytestmark = pytest.mark.anyio
STATUSES = ("failed", "paused", "succeeded")
NAMES = [*(f"python-{each}" for each in STATUSES), *(f"typescript-{each}" for each in sorted((*STATUSES, "outdated")))]


@pytest.mark.parametrize("recorded", replays(LEDGER, keys=KEYS), ids=str)
async def test_what_was_recorded_replays_or_is_of_another_version(
    recorded: RecordedExecution, warm: Any, record_property: Callable[[str, object], None]
) -> None:
    try:
        result = await recorded.check(sandbox=warm, check=False)
        outcome, name = "replayed", f"{result.language}-{result.status}"
    except Outdated as error:
        outcome, name = "outdated", recorded.execution_id
        versions = re.search(r"was recorded with (.*), and here is (.*); run it with the same", str(error))
        if versions is None or versions[1] == versions[2]:
            raise
    assert name == recorded.execution_id
    record_property("outcome", outcome)
    print(f"{recorded}: {outcome}")  # noqa: T201 - shown by `pytest -rP`
    if recorded.execution_id.startswith("typescript"):  # Deno is pinned; Python is that of whoever runs the tests
        was_expected = (outcome == "outdated") == (recorded.execution_id == "typescript-outdated")
        assert was_expected, "Deno has changed: run `python -m tests.running.record`"


def test_the_kept_ledger_has_all_kinds_and_is_not_written() -> None:
    before = LEDGER.read_bytes()
    assert [each.execution_id for each in replays(LEDGER, keys=KEYS)] == NAMES
    assert (LEDGER.read_bytes(), [each.name for each in LEDGER.parent.iterdir()]) == (before, [LEDGER.name])
    with pytest.raises(ConfigError, match="no ledger has such a path"):
        replays(LEDGER.with_name("*.sqlite"), keys=KEYS)


async def test_the_first_difference_is_shown(warm: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with Corral(tools(), ledger=SqliteLedger(path, keys={}), check=False, sandbox=warm) as corral:
        await corral.execute(FAILING["typescript"], durable=True, execution_id="a")

    def change(column: str, old: bytes, new: bytes) -> RecordedExecution:
        with sqlite3.connect(path) as database:  # its write-ahead log counts too
            [value] = database.execute(f"SELECT {column} FROM executions").fetchone()  # noqa: S608 - own names
            assert old in value
            database.execute(f"UPDATE executions SET {column} = ?", (value.replace(old, new),))  # noqa: S608
        [changed] = replays(path, keys={})
        return changed

    with pytest.raises(AssertionError) as caught:
        await change("result", b"it is 10", b"it was 10").check(sandbox=warm, check=False)
    assert str(caught.value).startswith(
        "runs.db:a: the replay's error differs from the recorded one:\n--- on record\n+++ replayed\n"
    )
    assert '-  "message": "it was 10",\n+  "message": "it is 10",' in str(caught.value)
    with pytest.raises(AssertionError) as caught:
        await change("head", b"n: 1 }", b"n: 2 }").check(sandbox=warm, check=False)
    assert str(caught.value).startswith(
        'runs.db:a diverged: call 1 was look({"n":1}) when it ran first, and is look({"n":2}) now; '
    )
