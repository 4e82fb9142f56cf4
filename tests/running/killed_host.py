"""Host that is killed: `python -m tests.running.killed_host LEDGER EFFECTS LANGUAGE STOP`.

It runs a program whose changes are lines of a file, and waits for its death in the change with the number STOP.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio

from corral import Corral, Tool, tool
from corral.ledger import SqliteLedger
from corral.types import Language

KEYS = {"one": b"k" * 32}
PROGRAMS: dict[Language, str] = {
    "typescript": """
        const chain = async (c) => {
          const done = [];
          for (let n = 0; n < 4; n++) {
            await tools.look({ n });
            done.push(await tools.put({ n: 10 * c + n }), Math.random() < 1);
            await new Promise((resolve) => setTimeout(resolve, 1));
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
        await tools.look(n=n)
        done += [await tools.put(n=10 * c + n), random.random() < 1]
        await asyncio.sleep(0.001)
    return done
sum(await asyncio.gather(*map(chain, range(3))), [])
""",
}
VALUE = [each for c in range(3) for n in range(4) for each in (10 * c + n, True)]


def tools(effects: Path, stop: int | None = None) -> list[Tool]:
    """Tools whose changes are lines of a file. The one with the number `stop` says so, and does not return."""

    @tool(read_only=True)
    async def look(n: int) -> int:
        return n

    @tool
    async def put(n: int) -> int:
        with effects.open("a") as file:
            file.write(f"{n}\n")
        if n == stop:
            print("stopped", flush=True)  # noqa: T201 - for the test
            await anyio.sleep_forever()
        return n

    return [look, put]


async def main(ledger: str, effects: str, language: Any, stop: str) -> None:
    made = tools(Path(effects), int(stop))
    async with Corral(made, ledger=SqliteLedger(ledger, keys=KEYS), check=False) as corral:
        await corral.execute(PROGRAMS[language], language=language, durable=True)


if __name__ == "__main__":
    ledger, effects, language, stop = sys.argv[1:]
    anyio.run(main, ledger, effects, language, stop)
