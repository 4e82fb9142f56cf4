"""Runs prepared programs in the real engine, many in one process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deno import find_deno_bin

from corral.errors import ProgramRejected
from corral.programs import prepare_typescript
from corral.types import Position, Program

ENGINE = Path(__file__).parent / "engine.js"


@dataclass(frozen=True)
class Outcome:
    """How a source fared: rejected before it ran, failed with `error`, or gave `value`."""

    program: Program | None = None
    rejected: ProgramRejected | None = None
    value: Any = None
    error: str | None = None
    position: Position | None = None
    """Where in the source the error was thrown."""
    ran: tuple[Any, ...] = ()
    """What the source left in `globalThis.ran`."""


Run = Callable[[Sequence[str]], list[Outcome]]
RunByEngine = Callable[[Sequence[str]], list[dict[str, Any]]]
Strip = Callable[[Sequence[str]], list[str | None]]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[dict[str, str]]], list[dict[str, Any]]]:
    cache = tmp_path_factory.mktemp("deno")

    def run(cases: list[dict[str, str]]) -> list[dict[str, Any]]:
        finished = subprocess.run(
            [
                find_deno_bin(),
                "run",
                "--quiet",
                "--no-prompt",
                "--no-config",
                "--v8-flags=--disallow-code-generation-from-strings",
                str(ENGINE),
            ],
            input=json.dumps(cases).encode(),
            capture_output=True,
            check=True,
            env={"DENO_DIR": str(cache), "NO_COLOR": "1"},
            timeout=120,
        )
        outcomes: list[dict[str, Any]] = json.loads(finished.stdout)
        return outcomes

    return run


@pytest.fixture(scope="session")
def run(engine: Callable[[list[dict[str, str]]], list[dict[str, Any]]]) -> Run:
    """Prepares and runs sources."""

    def run(sources: Sequence[str]) -> list[Outcome]:
        prepared = [_prepare(source) for source in sources]
        programs = [each for each in prepared if isinstance(each, Program)]
        finished = iter(engine([{"code": program.code} for program in programs]))
        return [
            _outcome(each, next(finished)) if isinstance(each, Program) else Outcome(rejected=each) for each in prepared
        ]

    return run


@pytest.fixture(scope="session")
def run_by_engine(engine: Callable[[list[dict[str, str]]], list[dict[str, Any]]]) -> RunByEngine:
    """Has the engine compile and run sources itself. Each outcome has a `value` or an `error`."""
    return lambda sources: engine([{"module": source} for source in sources])


@pytest.fixture(scope="session")
def strip_by_engine(engine: Callable[[list[dict[str, str]]], list[dict[str, Any]]]) -> Strip:
    """The engine's own type stripping; None for what it does not strip."""

    def strip(sources: Sequence[str]) -> list[str | None]:
        return [outcome.get("value") for outcome in engine([{"strip": source} for source in sources])]

    return strip


def _prepare(source: str) -> Program | ProgramRejected:
    try:
        return prepare_typescript(source)
    except ProgramRejected as rejected:
        return rejected


def _outcome(program: Program, finished: dict[str, Any]) -> Outcome:
    place = finished.get("place")
    return Outcome(
        program=program,
        value=finished.get("value"),
        error=finished.get("error"),
        position=program.locate(*place) if place else None,
        ran=tuple(finished["ran"]),
    )
