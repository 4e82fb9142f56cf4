"""Recorded executions as regression tests."""

from __future__ import annotations

import glob
import json
import math
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from corral import Corral, ExecutionResult
from corral.errors import ConfigError, Diverged, LedgerError, MemoryExceeded, SandboxError, error_class
from corral.ledger import Query, SqliteLedger

_CUT_OFF = (LedgerError, MemoryExceeded, SandboxError)
"""Errors that come from outside of a program, which a replay does not repeat."""
_PARTS = ("status", "error", "value", "console")


class RecordedExecution:
    """Execution in the file of a ledger, as a parameter of a test. `str` returns its name."""

    def __init__(self, path: Path, execution_id: str, keys: Mapping[str, bytes] | None) -> None:
        self.path = path
        self.execution_id = execution_id
        self._keys = keys

    def __str__(self) -> str:
        return f"{self.path.name}:{self.execution_id}"

    async def check(self, *, source: str | None = None, **options: Any) -> ExecutionResult:
        """Replays it offline, by a Corral with these options, and compares the end with the recorded one.

        `source` is another program that is to do the same with the recorded replies.

        Raises:
            AssertionError: it goes another way, or ends otherwise; the message has both.
            Outdated: another version of the engine, the interpreter or a package recorded it.
            LedgerError: it cannot be read.
        """
        with _copied(self.path, self._keys) as ledger:
            async with Corral(ledger=ledger, **options) as corral:
                record = await corral.executions.get(self.execution_id)
                result = await corral.executions.replay(self.execution_id, source=source)
        if result.error is not None and result.error.code == Diverged.code:
            raise AssertionError(f"{self} diverged: {result.error.message}")
        if (recorded := record.result) is None or _was_cut_off(recorded):
            return result
        before, after = recorded.to_dict(), result.to_dict()
        for name in _PARTS:
            was, now = _lines(before[name]), _lines(after[name])
            if was != now:
                diff = "\n".join(unified_diff(was, now, "on record", "replayed", lineterm=""))
                raise AssertionError(f"{self}: the replay's {name} differs from the recorded one:\n{diff}")
        return result


def replays(pattern: str | Path, *, keys: Mapping[str, bytes] | None = None) -> tuple[RecordedExecution, ...]:
    """Returns all executions in the SQLite ledgers whose paths match a pattern, such as `"recorded/*.db"`.

    The files stay as they are. `keys` are those of the ledgers; None: those in CORRAL_LEDGER_KEYS.

    Raises:
        ConfigError: no file matches, or there are no keys.
        LedgerError: a ledger cannot be read.
    """
    found: list[RecordedExecution] = []
    if not (paths := sorted(map(Path, glob.glob(str(pattern), recursive=True)))):  # noqa: PTH207 - absolute ones too
        raise ConfigError(f"replays({str(pattern)!r}): no ledger has such a path")
    for path in paths:
        with _copied(path, keys) as ledger:
            names = sorted(each.execution_id for each in ledger.list(Query(limit=1_000_000)))
            ledger.close()
        found += [RecordedExecution(path, name, keys) for name in names]
    return tuple(found)


@contextmanager
def _copied(path: Path, keys: Mapping[str, bytes] | None) -> Generator[SqliteLedger]:
    """Yields a copy of a ledger that keeps all executions, however old."""
    with TemporaryDirectory() as folder:
        for each in (path, path.with_name(f"{path.name}-wal")):
            if each.exists():  # the log is there if somebody has the ledger open
                shutil.copy(each, folder)
        yield SqliteLedger(Path(folder) / path.name, keys=keys, keep_days=math.inf)


def _was_cut_off(result: ExecutionResult) -> bool:
    ended_outside = result.error is not None and issubclass(error_class(result.error.code), _CUT_OFF)
    return ended_outside or result.status in ("timed_out", "cancelled")


def _lines(value: object) -> list[str]:
    return (value if isinstance(value, str) else json.dumps(value, indent=2)).splitlines()
