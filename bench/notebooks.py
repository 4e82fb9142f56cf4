"""`python -m bench.notebooks`: a cell beside an execution that is forked, in both languages, in one run."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from bench.options import positive
from corral import Corral, ExecutionContext, Session, tool
from corral.sandboxes import CPythonSandbox, DenoSandbox
from corral.sandboxes.selection import Sandboxes
from corral.types import Language

_ANN = ExecutionContext(user_id="ann")
_PROGRAMS: dict[str, dict[Language, str]] = {
    "a value": {"typescript": "return 1", "python": "1"},
    "a variable and a call": {
        "typescript": "const reply = await tools.add({ a: 1, b: 2 });\nreturn reply.sum",
        "python": "reply = await tools.add(a=1, b=2)\nreply['sum']",
    },
}

_COMMENTS: dict[Language, str] = {"typescript": "//", "python": "#"}


@tool
async def add(a: int, b: int) -> dict[str, int]:
    """Adds two numbers."""
    return {"sum": a + b}


async def _times(sessions: list[Session], source: str, language: Language, rounds: int) -> list[float]:
    """Medians in milliseconds of programs of each session, which alternate."""
    times: list[list[float]] = [[] for _ in sessions]
    for number in range(rounds + 5):
        for session, own in zip(sessions, times, strict=True):
            began = time.perf_counter()
            new = f"{source}\n{_COMMENTS[language]} {number}"  # so that no check is remembered
            (await session.execute(new, language=language)).raise_for_error()
            own += [(time.perf_counter() - began) * 1000] if number >= 5 else []
            await asyncio.sleep(0.01)  # the next process is forked ahead
    return [statistics.median(own) for own in times]


async def _measure(rounds: int) -> None:
    sandbox: Sandboxes = {"typescript": DenoSandbox(isolation="fork"), "python": CPythonSandbox()}
    for check in (False, True):
        async with (
            Corral([add], sandbox=sandbox, check=check) as corral,
            corral.session(context=_ANN) as forked,
            corral.session(context=_ANN, keep="variables") as cells,
        ):
            for name, sources in _PROGRAMS.items():
                for language, source in sources.items():
                    fork, cell = await _times([forked, cells], source, language, rounds)
                    shown = f"{language:10}  {name:22}  {'checked' if check else 'not checked':11}"
                    print(f"{shown}  a fork {fork:5.1f} ms, a cell {cell:5.1f} ms, ratio {cell / fork:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=60)
    asyncio.run(_measure(parser.parse_args().rounds))
