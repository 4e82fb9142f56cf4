"""Deno's own language server checks programs where no other does, and comes to the same verdicts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral.checking import Checker
from corral.checking.servers.specs import SERVERS
from corral.tools import ToolRegistry
from tests.checking.corpora import checked, wait_for
from tests.checking.tools import TOOLS
from tests.checking.typescript import mistakes, valid_programs

PROGRAMS = 40
LEAST = 0.95
SECONDS = 60
REGISTRY = ToolRegistry(*TOOLS)


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    checker = Checker([kind for kind in SERVERS if kind.name == "deno"])
    checker.start("typescript", REGISTRY)
    assert wait_for(checker, "typescript", SECONDS)
    yield checker
    checker.close()


def every(programs: dict[str, str]) -> dict[str, str]:
    """So many of them, from all parts of the corpus."""
    listed = list(programs.items())
    return dict(listed[number * len(listed) // PROGRAMS] for number in range(PROGRAMS))


def rejections(checker: Checker, programs: dict[str, str]) -> dict[str, str]:
    verdicts = {
        id: checked(checker, program, "typescript", REGISTRY, env=False, must=True) for id, program in programs.items()
    }
    assert [id for id, verdict in verdicts.items() if verdict.unchecked] == []
    return {id: str(verdict.rejection) for id, verdict in verdicts.items() if verdict.rejection}


def test_it_is_denos_server_that_checks(checker: Checker) -> None:
    server = checker.server("typescript")
    assert server is not None
    assert (server.kind.name, server.ready) == ("deno", True)


@pytest.mark.matrix("test_corpora says it of the usual server, in the gate; here of Deno's")
def test_no_valid_program_is_rejected(checker: Checker) -> None:
    programs = every(valid_programs())
    assert len(programs) == PROGRAMS
    assert rejections(checker, programs) == {}


@pytest.mark.matrix("test_corpora says it of the usual server; of another one")
def test_nearly_every_mistake_is_found(checker: Checker) -> None:
    programs = every({each["id"]: each["program"] for each in mistakes()})
    assert len(programs) == PROGRAMS
    missed = programs.keys() - rejections(checker, programs)
    assert len(missed) <= (1 - LEAST) * PROGRAMS, sorted(missed)
