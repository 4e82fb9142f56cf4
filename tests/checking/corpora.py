"""The corpus in Python, and what becomes of all programs of a corpus: run, or checked."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from corral import Corral
from corral.checking import Case, Checker, Verdict
from corral.errors import ProgramRejected
from corral.programs import read_program
from corral.results import ExecutionError
from corral.tools import ToolRegistry
from corral.types import ExecutionContext, Language

__all__ = ["EACH_OR_SOME", "LANGUAGES", "checked", "unsuccessful", "valid_python_programs", "verdicts", "wait_for"]

LANGUAGES: tuple[Language, ...] = ("typescript", "python")
EACH_OR_SOME = pytest.mark.parametrize(
    "step",
    [pytest.param(1, marks=pytest.mark.matrix("the gate has every second case of the corpus, and here are all")), 2],
)
_AT_ONCE = 2
"""More of them share the same processors."""
_MARKER = re.compile(r"^=== (\w+)\n", re.MULTILINE)


def valid_python_programs() -> dict[str, str]:
    """Name to source: a file holds several programs, each behind a line `=== name`."""
    found: dict[str, str] = {}
    for file in sorted((Path(__file__).parent / "valid" / "python").glob("*.txt")):
        _, *parts = _MARKER.split(file.read_text(encoding="utf-8"))
        for name, source in zip(parts[::2], parts[1::2], strict=True):
            assert f"{file.stem}/{name}" not in found, f"two programs are called {file.stem}/{name}"
            found[f"{file.stem}/{name}"] = source
    return found


async def unsuccessful(
    corral: Corral, programs: dict[str, str], language: Language
) -> dict[str, ExecutionError | None]:
    """Runs the programs; returns those that do not succeed, and why."""
    found: dict[str, ExecutionError | None] = {}
    limiter = anyio.CapacityLimiter(_AT_ONCE)

    async def run(name: str, source: str) -> None:
        async with limiter:
            result = await corral.execute(source, language=language)
        if result.status != "succeeded":
            found[name] = result.error

    async with anyio.create_task_group() as tasks:
        for name, source in programs.items():
            tasks.start_soon(run, name, source)
    return found


async def verdicts(
    checker: Checker, programs: dict[str, str], language: Language, tools: ToolRegistry
) -> dict[str, Verdict]:
    """Checks the programs. What cannot be a program is rejected too."""

    async def check(source: str) -> Verdict:
        try:
            return await checker.verdict(Case(read_program(source, language), tools, env=False, must=True))
        except ProgramRejected as error:
            return Verdict(rejection=error)

    return {name: await check(source) for name, source in programs.items()}


def wait_for(checker: Checker, language: Language, seconds: float) -> bool:
    """True if the language's server starts in time."""
    server = checker.server(language)
    return server is not None and server.wait(seconds)


def checked(
    checker: Checker,
    source: str,
    language: Language,
    tools: ToolRegistry,
    *,
    env: bool,
    must: bool = False,
    context: ExecutionContext | None = None,
) -> Verdict:
    """Checks a program, and blocks until the verdict."""
    case = Case(read_program(source, language), tools, env=env, must=must, context=context)
    with ThreadPoolExecutor(1) as pool:  # in a thread without an event loop
        return pool.submit(anyio.run, checker.verdict, case).result()
