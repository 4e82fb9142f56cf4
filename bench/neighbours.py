"""`python -m bench.neighbours`: what one tenant waits for while another does its worst, in one Corral.

Bob runs a trivial program, which is checked, and another whose call needs an approval that is given at once. Eve does
the same hostile thing again and again meanwhile. Each row is a case of hers: the median of Bob's times in ms, how many
times as long that is as without her in the same run, and how many of his programs ran unchecked or failed: none should.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import json
import statistics
import tarfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx

from bench.host import describe_host
from corral import Approved, Corral, ExecutionContext, Later, Limits, tool
from corral.errors import CorralError
from corral.protocols.trpc import TrpcBridge
from corral.sessions import Mount, Scratch
from corral.types import Language

__all__ = ["CASES", "Eve", "Neighbour"]

_BOB = ExecutionContext(user_id="bob", organization_id="good")
_EVE = ExecutionContext(user_id="eve", organization_id="evil")
_LIMITS = Limits(wall_seconds=8, cpu_seconds=8, calls=256, calls_in_flight=128)
_PAUSE_SECONDS = 0.001
_NUMBERS = itertools.count()
_EMPTIES = b'{"json":{"value":[' + b",".join([b"{}"] * 300_000) + b"]}}"
_PROGRAMS: dict[Language, str] = {"python": "x = {0}\nx", "typescript": "const x: number = {0}; return x"}
"""With a number, so that nobody has checked it before."""


@tool
async def take(value: Any) -> int:
    """Takes anything."""
    return int(value is not None)


@tool(needs_approval=True)
async def pay(euros: int) -> int:
    """Pays."""
    return euros


class Neighbour:
    """Bob, and what he has seen."""

    def __init__(self, corral: Corral) -> None:
        self._corral = corral
        self.programs: list[float] = []
        self.approvals: list[float] = []
        self.wrong = 0

    async def run(self, rounds: int) -> None:
        """Runs a checked program in each language and one approval, `rounds` times."""
        for _ in range(rounds):
            for language, source in _PROGRAMS.items():
                started = time.perf_counter()
                program = source.format(next(_NUMBERS))
                result = await self._corral.execute(program, language=language, context=_BOB)
                self.programs.append(time.perf_counter() - started)
                self.wrong += result.status != "succeeded" or not result.checked
            started = time.perf_counter()
            program = f"return await tools.pay({{euros: {next(_NUMBERS)}}})"
            execution = asyncio.create_task(self._corral.execute(program, context=_BOB))
            while not execution.done():
                for each in await self._corral.executions.waiting(user_id=_BOB.user_id):
                    decisions = {call.sequence: Approved() for call in each.calls}
                    await self._corral.executions.settle(each.execution_id, decisions)
                await asyncio.sleep(_PAUSE_SECONDS)
            self.approvals.append(time.perf_counter() - started)
            self.wrong += execution.result().status != "succeeded"


class Eve:
    """What hostile cases act on: the Corral, and a session of Eve's."""

    def __init__(self, corral: Corral, session: Any, client: httpx.AsyncClient) -> None:
        self.corral = corral
        self.session = session
        self.client = client

    async def execute(self, source: str, language: Any = "typescript") -> None:
        """Runs a program of hers, which nobody has checked before, whatever becomes of it."""
        program = f"{source}\n{next(_NUMBERS)}"
        await self.corral.execute(program, language=language, context=_EVE, limits=_LIMITS)


Case = Callable[[Eve], Awaitable[object]]


def _program(source: str, language: str = "typescript") -> Case:
    return lambda eve: eve.execute(source, language)


def _soup(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


def _archive(digits: int) -> bytes:
    """A tar archive whose PAX header is one long number."""
    body = b"1" * digits
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(body)
    file = tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT)
    with io.BytesIO() as out:
        out.write(header.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512) + file + bytes(1024))
        return out.getvalue()


async def _unpack(eve: Eve) -> None:
    try:
        await eve.session.files.import_tar(_archive(60_000))
    except CorralError:
        await asyncio.sleep(0)


async def _typed_arrays(eve: Eve) -> None:
    body = {"json": {"value": 200_000_000}, "meta": {"values": {"value": [["typed-array", "Uint8Array"]]}}}
    await eve.client.post("/take", json=body)


async def _empties(eve: Eve) -> None:
    await eve.client.post("/take", content=_EMPTIES, headers={"content-type": "application/json"})


async def _lines(eve: Eve) -> None:
    if await eve.session.files.stat("lines") is None:
        await eve.session.files.write_bytes("lines", b"\n" * 12_000_000)
    try:
        await eve.session.files.read_text("lines", lines=(1, 1))
    except CorralError:
        await asyncio.sleep(0)


CASES: dict[str, tuple[int, Case]] = {
    "32 programs that wait for an approval": (32, _program("await tools.pay({euros: 1})")),
    "endless loops, 4 at once": (4, _program("for (;;);")),
    "memory bombs, 4 at once": (4, _program("const a: string[] = []; for (;;) a.push('x'.repeat(1e6) + a.length)")),
    "Python of 3,000 unknown names, 4 at once": (4, _program("a;" * 3_000, "python")),
    "Python with 6,000 mistakes, 4 at once": (4, _program("await tools.ad()\n" * 6_000, "python")),
    "TypeScript with 6,000 mistakes, 4 at once": (4, _program("tools.ad({});\n" * 6_000)),
    "TypeScript, short and slow to parse": (4, _program("```ts\na=" + _soup("/[", 7_700) + "\n```\n```\n```\n")),
    "inputs of 240,000 lists": (4, _program("for (;;) await tools.take({value: Array(240000).fill([])})")),
    "tRPC inputs of 300,000 objects": (4, _empties),
    "tRPC typed arrays of 200 MB": (4, _typed_arrays),
    "archives with a long PAX header": (4, _unpack),
    "files of 12 million lines": (4, _lines),
}
"""How many of Eve's tasks do a case at once, and the case."""


async def _again(case: Case, eve: Eve) -> None:
    while True:
        await case(eve)
        await asyncio.sleep(0)  # as between two requests: in this process one may be refused without a pause


async def _measure(name: str, rounds: int) -> tuple[Neighbour, Neighbour]:
    """Bob alone, and beside Eve."""
    at_once, case = CASES[name]
    corral = Corral([take, pay], approve=lambda _: Later(), approval_seconds=60)
    app = corral.remote.asgi_app(TrpcBridge(transformer="superjson"))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    mounts = [Mount("/w", Scratch())]
    async with corral, corral.session(context=_EVE, files=mounts) as session:
        with corral.remote.grant(_EVE) as grant:
            headers = {"authorization": f"Bearer {grant.token()}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
                await Neighbour(corral).run(4)  # engines, language servers
                alone, beside = Neighbour(corral), Neighbour(corral)
                await alone.run(rounds)
                tasks = [asyncio.create_task(_again(case, Eve(corral, session, client))) for _ in range(at_once)]
                await asyncio.sleep(1)
                await beside.run(rounds)
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
                if failures := [each for each in outcomes if isinstance(each, Exception)]:
                    raise ExceptionGroup(f"{name}: Eve failed", failures)
    return alone, beside


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose names hold TEXT")
    parser.add_argument("--rounds", type=int, default=15, metavar="N")
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    host = describe_host(uvloop=False)
    print(f"{host['cpu']}, {host['cores']} cores, load {host['load']}; {host['python']}\n")
    print(f"{'':44}{'program, ms':>12}{'times':>7}{'approval, ms':>14}{'times':>7}{'wrong':>7}")
    rows: dict[str, Any] = {}
    for name in CASES:
        if options.only in name:
            alone, beside = asyncio.run(_measure(name, options.rounds))
            program, approval = statistics.median(beside.programs), statistics.median(beside.approvals)
            rows[name] = row = {
                "program_ms": program * 1000,
                "program_times": program / statistics.median(alone.programs),
                "approval_ms": approval * 1000,
                "approval_times": approval / statistics.median(alone.approvals),
                "wrong": beside.wrong,
            }
            print(
                f"{name:44}{row['program_ms']:>12.1f}{row['program_times']:>7.1f}"
                f"{row['approval_ms']:>14.1f}{row['approval_times']:>7.1f}{row['wrong']:>7}",
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(json.dumps({"host": host, "rows": rows}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
