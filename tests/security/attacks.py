"""The attacks: those of the shared corpus (`tests/cases/attacks.json`) and ours (`own.py`)."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from tests.security.own import OWN
from tests.security.python_own import BOMBS, HANGS, PROBES, PYTHON_OWN, SCIENCE

__all__ = ["CORPUS", "Attack", "corpus", "own", "python_corpus", "python_own", "science"]

CORPUS = Path(__file__).parents[1] / "cases" / "attacks.json"
_NATIVE = (Path(__file__).parent / "native.js").read_text(encoding="utf-8")
_FILES = 'const fs = await import("node:fs");'  # which takes an engine longer than its start
_USES_FILES = re.compile(r"\b(?:fs\.|read\()")
_NATIVE_PYTHON = (Path(__file__).parent / "native.py.txt").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack: the body of an async function with `tools`; in Python, a program.

    `kind` is the corpus's class. `expect` has the allowed outcomes, see `verdicts.judge`. Placeholders in the code are
    those of `Canaries.fill`.
    """

    id: str
    kind: str
    code: str
    expect: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


@cache
def entries() -> list[dict[str, Any]]:
    """All entries of the corpus, as they stand in the file."""
    return json.loads(CORPUS.read_text(encoding="utf-8"))["attacks"]


@cache
def corpus() -> tuple[Attack, ...]:
    """The corpus's attacks by TypeScript programs, without the class `ssrf`: there is no egress to attack yet."""
    return _of("ts")


@cache
def python_corpus() -> tuple[Attack, ...]:
    """The same by Python programs."""
    return _of("py")


@cache
def own() -> tuple[Attack, ...]:
    """Our attacks on the operating system's side."""
    return tuple(
        Attack(
            id=f"own-{name}",
            kind="own",
            code=f"{_FILES if _USES_FILES.search(code) else ''}{_NATIVE}\n{code}",
            expect="contained",
        )
        for name, code in OWN.items()
    )


@cache
def python_own() -> tuple[Attack, ...]:
    """Our attacks by Python programs."""
    return tuple(_python(name, code) for name, code in PYTHON_OWN.items())


@cache
def science() -> tuple[Attack, ...]:
    """Those that need packages."""
    return tuple(_python(name, code) for name, code in SCIENCE.items())


def _of(language: str) -> tuple[Attack, ...]:
    return tuple(
        Attack(id=each["id"], kind=each["class"], code=each["code"], expect=each["expect"])
        for each in entries()
        if each["language"] == language and each["class"] != "ssrf"
    )


def _python(name: str, code: str) -> Attack:
    kind = "hang" if name in HANGS else "memory" if name in BOMBS or name.startswith("memory-of") else "own"
    expect = "value" if name in PROBES else "contained"
    return Attack(id=f"own-{name}", kind=kind, code=f"{_NATIVE_PYTHON}\n{dedent(code)}", expect=expect)
