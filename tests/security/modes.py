"""The ways in which an attack is run, and the jails it is run in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from corral import Limits
from tests.security.attacks import Attack

__all__ = [
    "ATTACKED",
    "ATTACKED_PYTHON",
    "CELLS",
    "LOOKS",
    "PYTHON",
    "SESSIONS",
    "SHARING",
    "TIERS",
    "Attacked",
    "Mode",
    "Tier",
    "Verdict",
    "limits_for",
    "raw_seconds",
]

Tier: TypeAlias = Literal["namespaces", "landlock", "none"]
Mode: TypeAlias = Literal[
    "product",
    "wasm",
    "session",
    "cells",
    "granted",
    "native",
    "raw",
    "python",
    "science",
    "python-session",
    "python-cells",
]
"""product: as a model's program, in a process of its own, which a server of its user's forked. wasm: as product, in an
instance of WebAssembly instead of a process. granted: as product, but the process is
an engine of its own, which has every permission, eval and wasm are
allowed, and the attack is made from a string, past what rewrites its imports. native: as granted, but in a process that was forked,
by a server that has kept the permission for native calls and hands the engine's own interface on. raw: a bare main program of an engine
that has every permission. python: as a Python program; all attacks are one user's, so they share a server. science: the
same with packages. session and python-session: as product and python, in a session with a directory to write to, and
modules of node. cells and python-cells: as those, in the second cell of a notebook, and a program of its own looks around."""
CELLS: frozenset[Mode] = frozenset({"cells", "python-cells"})
SESSIONS: frozenset[Mode] = frozenset({"session", "python-session", *CELLS})
SHARING: frozenset[Mode] = frozenset({"python", "science", "python-session", "python-cells"})
"""Where an execution has a process in common with the one before, so that each may leave something for the next."""
LOOKS: Mapping[Mode, int] = dict.fromkeys(("granted", "native", "product", "python", "science", "wasm"), 4)
"""Attacks of a user before a program looks around, where it is not one. What an attack leaves in a server is there until
the server ends, which no attack may bring about; sessions and notebooks, whose state changes, are looked at each time."""

TIERS: tuple[Tier, ...] = ("namespaces", "landlock")
"""The jails that must hold."""


@dataclass(frozen=True, slots=True)
class Attacked:
    """A mode and tier, and the kinds of attacks that mean something there."""

    mode: Mode
    tier: Tier
    kinds: frozenset[str]
    matrix: str | None = None
    """Why these attacks are of the matrix only."""


_ALL = frozenset({"escape", "module", "forge", "result", "hang", "memory", "flood"})
_FILES = frozenset({"escape", "module"})
_OWN = frozenset({"own"})
# Each attack is made once as a program, in the best tier, and once where only the kernel stops it.
ATTACKED = (
    Attacked("product", "namespaces", _ALL),
    # Beside the language's own limits, what this engine's platform answers.
    Attacked("wasm", "namespaces", frozenset({"escape"})),
    Attacked(
        "wasm",
        "namespaces",
        _ALL - {"escape"},
        "the gate tries to escape; these meet the host's limits, as in `product`",
    ),
    # No guest and no host, hence no frames, results or limits to attack; but native code.
    Attacked("raw", "landlock", _FILES),
    Attacked("raw", "namespaces", _OWN),
    # What native code does in a forked process, beside its server and its siblings, which have names in this tier.
    Attacked("native", "landlock", _OWN),
    Attacked("raw", "landlock", _OWN, "`native` makes them in this jail, `raw` in the other"),
    Attacked("raw", "namespaces", _FILES, "`raw` makes them in the other jail"),
    # Frames and values go through the same code of guest and host whatever the jail: namespaces have them.
    Attacked(
        "product", "landlock", _ALL - {"forge", "result"}, "the guest refuses them in `namespaces`; the other jail"
    ),
    # Frames and limits are the same code; files and modules are what a session adds.
    Attacked("session", "namespaces", _FILES, "`product` makes them without files; tests/sessions attacks those"),
    Attacked(
        "cells", "namespaces", _ALL, "`product` makes them in processes of their own, tests/sessions has notebooks"
    ),
    # A value goes through the same code of the guest whatever the engine may do: `product` has them.
    Attacked("granted", "namespaces", _ALL - {"result"}, "`raw` has every permission too, and no guest in the way"),
    # Frames and limits are the host's, and `granted` has them in namespaces; what a jail bounds itself, `product` has.
    Attacked("granted", "landlock", _FILES, "`raw` has every permission too, and no guest in the way"),
    Attacked("native", "namespaces", frozenset({"escape", "own"}), "`native` in `landlock`, where more has a name"),
)
"""What attacks in TypeScript are run in."""
ATTACKED_PYTHON = (
    Attacked("python", "namespaces", _ALL | _OWN),
    # Ours are native calls, which the kernel alone stops.
    Attacked("python", "landlock", _OWN),
    Attacked("science", "namespaces", _ALL | _OWN),
    Attacked("python", "landlock", _ALL, "frames and limits are the host's, in `namespaces`; our own are made in both"),
    Attacked("science", "landlock", _ALL | _OWN, "`python` makes ours in this jail, `science` these in the other"),
    Attacked(
        "python-session", "namespaces", _FILES | _OWN, "`python` makes them without files; tests/sessions attacks those"
    ),
    Attacked(
        "python-cells",
        "namespaces",
        _ALL | _OWN,
        "`python` makes them in processes of their own, tests/sessions has notebooks",
    ),
)
"""What attacks in Python are run in."""

PYTHON: frozenset[Mode] = frozenset({"python", "science", "python-session", "python-cells"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one attack went, as the worker reports it."""

    id: str
    outcomes: list[str]
    """What the result counts as, in the corpus's terms; several, where it draws no line between them. Raw: none."""
    damage: list[str]
    """What it got at."""
    began: bool
    """Whether the attack's own code ran, where that can be seen."""
    following: list[str]
    """What is wrong with the next look around of the same user: how what it finds differs from what one found before."""
    detail: str
    """The result, shortened, for whoever reads a failure."""
    seconds: float


_AS: Mapping[str, str] = {
    **dict.fromkeys(("ts-escape-21", "ts-escape-97", "py-escape-43", "own-a-flood-of-output"), "hang"),
    "own-a-flood-of-empty-lines": "flood",
}
"""Attacks that end as those of another kind do: endless loops if nothing stops them, and much output."""
_LITTLE_MB = 16
"""With so little memory bombs in TypeScript end soon; in Python, threads would not start."""
_ENOUGH_SECONDS = 20.0
"""Of wall time, for what comes to its own end, or to a limit of processor time or memory, however busy the machine is."""
_LIMITS = {
    "hang": Limits(wall_seconds=1.5, cpu_seconds=0.1),
    "memory": Limits(wall_seconds=_ENOUGH_SECONDS, cpu_seconds=0.6),
    "flood": Limits(wall_seconds=_ENOUGH_SECONDS, cpu_seconds=0.3, log_bytes=8_000),
}
_USUAL = Limits(wall_seconds=_ENOUGH_SECONDS, cpu_seconds=2)
_BENIGN = Limits(wall_seconds=_ENOUGH_SECONDS, cpu_seconds=4)
"""Limits of programs that attack nothing, and so end by themselves."""
_OTHERS: Mapping[tuple[Mode, str], Limits] = {
    # Takes more time and memory than others where all is well: it must come to its own end on a slow machine too.
    ("product", "ts-flood-07"): Limits(wall_seconds=_ENOUGH_SECONDS, cpu_seconds=8),
    ("cells", "ts-flood-07"): Limits(wall_seconds=_ENOUGH_SECONDS, cpu_seconds=8),
    # Waits for threads that do not come.
    ("native", "own-workers"): Limits(wall_seconds=1.5, cpu_seconds=0.1, memory_mb=_LITTLE_MB),
}


def limits_for(mode: Mode, attack: Attack | None = None) -> Limits:
    """Limits of an attack; without one, of all other programs."""
    if attack is not None and (others := _OTHERS.get((mode, attack.id))):
        return others
    limits = _BENIGN if attack is None else _LIMITS.get(_kind(attack), _USUAL)
    return limits if mode in PYTHON else limits.model_copy(update={"memory_mb": _LITTLE_MB})


def raw_seconds(attack: Attack) -> float:
    """The wall deadline of a bare program from its first line on: what hangs by design need not run long."""
    return 0.5 if _kind(attack) in _LIMITS else _ENOUGH_SECONDS


def _kind(attack: Attack) -> str:
    return _AS.get(attack.id, attack.kind)
