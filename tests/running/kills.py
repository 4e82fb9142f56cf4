"""Kills hosts at random moments: `python -m tests.running.kills LANGUAGE COUNT SEED nothing|commits|syncs`.

After each kill, another host continues. It must find all that the one before had been told, and in the end each change
has taken effect once, and once more for each time that a person has allowed it again. With `commits` and `syncs`, each
kill is also a loss of power: what had not reached the disk is gone. `syncs` learns that from system calls (synced.c).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

from corral.types import Language
from tests.postgres import execute
from tests.running.killed_host import CHANGES, VALUE, Folder

Keep = Literal["nothing", "commits", "syncs"]
_MOMENTS: dict[str, float] = {"execute": 0.25, "resume": 0.25, "settle": 0.02}
"""Steps of a host, with the longest time in seconds from their beginning to a kill."""


class Kills:
    """Hosts that are killed in one folder, one program after another."""

    def __init__(
        self,
        path: Path,
        language: Language | Literal["wasm"],
        seed: int,
        keep: Keep = "nothing",
        *,
        url: str | None = None,
    ) -> None:
        self._path, self._language, self._keep, self._url = path, language, keep, url
        self._random = random.Random(seed)  # noqa: S311 - repeatable
        self.counts: Counter[str] = Counter()
        self._told: list[Any] = []
        """The last thing that a host was told about its execution."""

    def run(self, count: int) -> None:
        """Runs programs to their ends, killing `count` hosts on the way."""
        while self.counts["kills"] < count:
            folder = self._path / f"{self.counts['programs']}"
            folder.mkdir()
            self._told = []
            for _ in range(min(8, count - self.counts["kills"])):
                if self.host(folder, self._random.choice([*_MOMENTS])):
                    break
            self.finish(folder)
            shutil.rmtree(folder)
            if self._url is not None:
                execute(self._url, "TRUNCATE corral_executions, corral_calls, corral_decisions")

    def finish(self, path: Path) -> None:
        """Runs the program to its end, and compares what it did."""
        folder = Folder(path)
        while not self.host(path, None):
            pass
        once = Counter(CHANGES)
        self.counts["programs"] += 1
        self.counts["effects"] += folder.effects.total()
        self.counts["distinct"] += len(folder.effects)
        self.counts["retried"] += folder.retries.total()
        assert folder.effects == once + folder.retries, (folder.effects, folder.retries)
        changes = {name: keys for name, keys in folder.keys.items() if not name.startswith("look")}
        assert all(len(keys) == 1 for keys in changes.values()), changes

    def host(self, path: Path, moment: str | None, *, stop: int = -1) -> bool:
        """Starts a host, and kills it a random time after it has said `moment`. Returns True if it came to its end."""
        kept = self._url or ("commits" if self._keep == "commits" else "nothing")
        arguments = [str(path), self._language, str(stop), kept]
        environment = dict(os.environ)
        if self._keep == "syncs":
            environment |= {"LD_PRELOAD": str(self._path / "synced.so"), "SYNCED": str(path / "copies")}
        command = [sys.executable, "-m", "tests.running.killed_host", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as host:
            assert host.stdout is not None
            killer: threading.Timer | None = None
            lines: list[list[Any]] = []
            for line in host.stdout:
                lines.append(json.loads(line))
                if lines[-1][0] == "stopped":
                    host.kill()
                elif moment is not None and lines[-1][0] == moment and killer is None:
                    killer = threading.Timer(self._random.random() * _MOMENTS[moment], host.kill)
                    killer.start()
            if killer is not None:
                killer.cancel()
            killed = host.wait() == -9
        self._compare(lines)
        if killed:
            self.counts["kills"] += 1
            step = next((line[0] for line in reversed(lines) if line[0] != "stopped"), "nothing")
            self.counts[f"after {step}"] += 1
            self._restore(path)
        else:
            assert host.returncode == 0, host.returncode
            assert self._told[0] == "succeeded", self._told
        return not killed

    def _compare(self, lines: list[list[Any]]) -> None:
        """Compares what a host found with what the one before it was told."""
        for name, *rest in lines:
            match name:
                case "found":
                    status, value, pending, decided = rest
                    if self._told and self._told[0] == "succeeded":
                        assert rest[:2] == self._told[:2], (rest, self._told)
                    elif self._told:
                        _, settled, waited = self._told
                        assert status in ("running", "paused", "succeeded"), status
                        assert status != "paused" or set(waited) <= {*pending}, (rest, self._told)
                        assert {*settled} & {*pending} <= {*decided}, (rest, self._told)
                        self.counts["compared"] += 1
                    if status == "succeeded":  # its host was killed before it could say so
                        assert value == VALUE, rest
                        self._told = [status, value, []]
                case "executed" | "resumed":
                    status, value, pending = rest
                    assert status in ("paused", "succeeded"), rest
                    assert status == "paused" or value == VALUE, rest
                    self._told = [status, value, []] if status == "succeeded" else [status, [], pending]
                case "settled":
                    self._told = ["paused", *rest, self._told[2]]
                case "resume":
                    self._told = ["running", self._told[1], []] if self._told else []
                case _:
                    pass

    def _restore(self, path: Path) -> None:
        """Leaves what a loss of power would, and ends the lease, as 30 s would."""
        if self._url is not None:
            execute(self._url, "DO $$ BEGIN UPDATE corral_executions SET lease = 0; EXCEPTION WHEN OTHERS THEN END $$")
            return
        ledger = path / "runs.db"
        if self._keep != "nothing":
            before = _rows(ledger)
            for file in path.glob(f"{ledger.name}*"):
                file.unlink()
            for file in (path / "copies" / "last" if self._keep == "commits" else path / "copies").glob("*"):
                shutil.copy(file, path / file.name)
            self.counts["rows lost"] += before - _rows(ledger)
        if ledger.exists():
            with sqlite3.connect(ledger) as database:
                if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'executions'").fetchone():
                    database.execute("UPDATE executions SET lease = 0")
            database.close()
        if self._keep == "syncs":  # this process has written it without the library
            shutil.rmtree(path / "copies", ignore_errors=True)
            (path / "copies").mkdir()
            for file in path.glob(f"{ledger.name}*"):
                shutil.copy(file, path / "copies")


def _rows(ledger: Path) -> int:
    """Number of rows of a copy, so that reading changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        for file in ledger.parent.glob(f"{ledger.name}*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, folder)
        database = sqlite3.connect(Path(folder) / ledger.name)
        try:
            return database.execute("SELECT count(*) FROM calls").fetchone()[0]
        except sqlite3.OperationalError:  # it has no tables yet
            return 0
        finally:
            database.close()


def main(language: Any, count: str, seed: str, keep: Any) -> None:
    with tempfile.TemporaryDirectory() as path:
        if keep == "syncs":
            source = Path(__file__).with_name("synced.c")
            command = ["cc", "-shared", "-fPIC", "-O1", "-o", f"{path}/synced.so", str(source), "-ldl"]
            subprocess.run(command, check=True)
        kills, began = Kills(Path(path), language, int(seed), keep), time.monotonic()
        try:
            kills.run(int(count))
        finally:
            print(language, keep, f"{time.monotonic() - began:.0f} s", dict(kills.counts))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
