"""Host that is killed: `python -m tests.running.killed_host FOLDER LANGUAGE STOP KEEP`.

It runs a program whose changes are lines of a file, or continues with the one that another such host began; decides on
all that waits; and writes a line before and after each step. In the change with the number STOP it waits for its death.
LANGUAGE is that of the program, or `wasm` for TypeScript in WebAssembly.
KEEP keeps what has reached the disk: `nothing`, or `commits` for copies of the database after each durable transaction;
or it is the URL of a database in PostgreSQL. Programs run on the worker whose address is in WORKERS, if that is set.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from typing_extensions import override

from corral import Approved, Corral, ExecutionResult, Tool, tool
from corral.cluster import WorkerSandbox
from corral.ledger import Ledger, PostgresLedger, SqliteLedger
from corral.tools import ToolCall
from corral.types import Language, Retry, Settled

KEYS = {"one": b"k" * 32}
PROGRAMS: dict[Language, str] = {
    "typescript": """
        const chain = async (c) => {
          const done = [];
          for (let n = 0; n < 4; n++) {
            await tools.look({ n: 10 * c + n });
            done.push(await tools.put({ n: 10 * c + n }), Math.random() < 1);
            await new Promise((resolve) => setTimeout(resolve, 1));
            if (n == 1) await tools.pay({ n: 100 + c });
          }
          return done;
        };
        return (await Promise.all([0, 1, 2].map(chain))).flat();
    """,
    "python": """
import asyncio, random
async def chain(c):
    done = []
    for n in range(4):
        await tools.look(n=10 * c + n)
        done += [await tools.put(n=10 * c + n), random.random() < 1]
        await asyncio.sleep(0.001)
        if n == 1:
            await tools.pay(n=100 + c)
    return done
sum(await asyncio.gather(*map(chain, range(3))), [])
""",
}
VALUE = [each for c in range(3) for n in range(4) for each in (10 * c + n, True)]
CHANGES = [*VALUE[::2], 100, 101, 102]


class Folder:
    """Ledger of a host, and what its tools did."""

    def __init__(self, path: Path) -> None:
        self.ledger, self.copies = path / "runs.db", path / "copies"
        self._effects, self._retries, self._keys = path / "effects", path / "retries", path / "keys"

    @property
    def effects(self) -> Counter[int]:
        """Number of times that each change took effect."""
        return Counter(map(int, _lines(self._effects)))

    @property
    def retries(self) -> Counter[int]:
        """Number of times that a person has allowed a change again that had taken effect."""
        return Counter(int(line.split()[0]) for line in set(_lines(self._retries)))

    @property
    def keys(self) -> dict[str, set[str]]:
        """Idempotency keys of each tool's calls."""
        keys: dict[str, set[str]] = {}
        for line in _lines(self._keys):
            name, key = line.split()
            keys.setdefault(name, set()).add(key)
        return keys

    def tools(self, stop: int | None = None) -> list[Tool]:
        """Tools whose changes are lines of a file. The one with the number `stop` says so, and does not return."""

        async def change(n: int, call: ToolCall) -> int:
            _append(self._keys, f"{call.tool}{n} {call.idempotency_key}")
            _append(self._effects, f"{n}")
            if n == stop:
                say("stopped")
                await anyio.sleep_forever()
            await anyio.sleep(0.01)  # so that many kills find it running
            return n

        @tool(read_only=True)
        async def look(n: int, call: ToolCall) -> int:
            _append(self._keys, f"{call.tool}{n} {call.idempotency_key}")
            return n

        put = tool(name="put")(change)
        return [look, put, tool(name="pay", needs_approval=True)(change)]

    def decide(self, result: ExecutionResult) -> dict[int, Any]:
        """Decides on what waits: changes with odd numbers are made again, even if they have taken effect."""
        decisions: dict[int, Any] = {}
        for call in result.pending:
            n, done = call.input["n"], self.effects[call.input["n"]]
            if call.reason is None:
                decisions[call.sequence] = Approved()
            elif done and n % 2 == 0:
                decisions[call.sequence] = Settled(n)
            else:
                decisions[call.sequence] = Retry()
                if done:
                    _append(self._retries, f"{n} {done}")
        return decisions


class Copied(SqliteLedger):
    """Ledger that keeps a copy of its files from after each durable transaction: what a loss of power would leave."""

    copies = Path()
    _number = 0

    @override
    @contextmanager
    def _transaction(self, *, durably: bool) -> Generator[Any]:
        with super()._transaction(durably=durably) as database:
            yield database
        if durably:
            self._number += 1
            copy = self.copies / f"{os.getpid()}-{self._number}"
            copy.mkdir(parents=True)
            for file in self.path.parent.glob(f"{self.path.name}*"):
                if not file.name.endswith("-shm"):
                    shutil.copy(file, copy / file.name)
            link = copy.with_name(f"{copy.name}-link")  # a host can be killed before it is `last`
            link.symlink_to(copy)
            link.replace(self.copies / "last")


def ledger_at(place: str) -> Ledger:
    return PostgresLedger(place, keys=KEYS) if "://" in place else SqliteLedger(place, keys=KEYS)


def say(*line: object) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201 - for the parent


def _append(file: Path, line: str) -> None:
    with file.open("a") as opened:
        opened.write(f"{line}\n")


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def main(path: str, language: Any, stop: str, keep: str) -> None:
    folder = Folder(Path(path))
    ledger = ledger_at(keep if "://" in keep else str(folder.ledger))
    if keep == "commits":
        ledger = Copied(folder.ledger, keys=KEYS)
        ledger.copies = folder.copies
    workers = os.environ.get("WORKERS")
    sandbox = "auto" if workers is None else WorkerSandbox([workers], containment="landlock")
    if language == "wasm":
        sandbox = "wasm"
    async with Corral(folder.tools(int(stop)), sandbox=sandbox, ledger=ledger, check=False) as corral:
        await finish(corral, folder, "typescript" if language == "wasm" else language)


async def finish(corral: Corral, folder: Folder, language: Language) -> None:
    """Begins the program, or continues it, to its end."""
    executions = corral.executions
    if found := await executions.list():
        name = found[0].execution_id
        record = await executions.get(name)
        say("found", record.status, record.value, [each.sequence for each in record.pending], [*record.decided])
        if record.status not in ("running", "paused"):
            return
        say("resume")
        result = await executions.resume(name)
        say("resumed", result.status, result.value, [each.sequence for each in result.pending])
    else:
        say("execute")
        result = await corral.execute(PROGRAMS[language], language=language, durable=True)
        say("executed", result.status, result.value, [each.sequence for each in result.pending])
        name = result.execution_id
    while result.status == "paused":
        decisions = folder.decide(result)
        say("settle")
        say("settled", [*await executions.settle(name, decisions)])
        say("resume")
        result = await executions.resume(name)
        say("resumed", result.status, result.value, [each.sequence for each in result.pending])


if __name__ == "__main__":
    path, language, stop, keep = sys.argv[1:]
    anyio.run(main, path, language, stop, keep)
