"""The ways in which an attack is run, and the jails it is run in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from corral import Limits
from tests.security.attacks import Attack

__all__ = ["ATTACKED", "PYTHON", "TIERS", "Mode", "Tier", "Verdict", "limits_for", "raw_seconds"]

Tier: TypeAlias = Literal["namespaces", "landlock", "none"]
Mode: TypeAlias = Literal["product", "context", "granted", "raw", "python", "science"]
"""product: as a model's program, in a process of its own. context: likewise, in a process that serves all executions of
one user; each attack is a user of its own. granted: as product, but the engine has every permission, eval and wasm are
allowed, and the attack is made from a string, past what rewrites its imports. raw: a bare main program of an engine
that has every permission. python: as a Python program; all attacks are one user's, so they share a server. science: the
same with packages."""

TIERS: tuple[Tier, ...] = ("namespaces", "landlock")
"""The jails that must hold."""
ATTACKED: tuple[tuple[Mode, Tier], ...] = tuple(
    (mode, tier)
    for tier in TIERS
    for mode in ("product", "context", "granted", "raw")
    if (mode, tier) != ("context", "landlock")
)
"""What every attack in TypeScript is run in. What contexts keep apart does not depend on the jail, so one is enough for them."""

PYTHON: frozenset[Mode] = frozenset({"python", "science"})


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
    """What is wrong with the next execution of the same user: how what it finds differs from what one found before."""
    detail: str
    """The result, shortened, for whoever reads a failure."""
    seconds: float


_SPINNING = {"ts-escape-21", "ts-escape-97", "py-escape-43"}
"""Escapes that are endless loops if nothing stops them."""
_LIMITS = {
    "hang": Limits(wall_seconds=1.5, cpu_seconds=0.4),
    "memory": Limits(wall_seconds=4, cpu_seconds=1.5),
    "flood": Limits(wall_seconds=6, cpu_seconds=1.5),
}


def limits_for(attack: Attack) -> Limits:
    return _LIMITS.get("hang" if attack.id in _SPINNING else attack.kind, Limits(wall_seconds=5, cpu_seconds=2))


def raw_seconds(attack: Attack) -> float:
    """The wall deadline of a bare program: what hangs by design need not run long."""
    return 1.0 if attack.kind in {"hang", "memory", "flood"} or attack.id in _SPINNING else 4.0
