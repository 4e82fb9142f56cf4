"""The ways in which an attack is run, and the jails it is run in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from corral import Limits
from tests.security.attacks import Attack

__all__ = [
    "ATTACKED",
    "LOOKS",
    "PYTHON",
    "SESSIONS",
    "SHARING",
    "TIERS",
    "Mode",
    "Tier",
    "Verdict",
    "limits_for",
    "raw_seconds",
]

Tier: TypeAlias = Literal["namespaces", "landlock", "none"]
Mode: TypeAlias = Literal["product", "session", "granted", "native", "raw", "python", "science", "python-session"]
"""product: as a model's program, in a process of its own, which a server of its user's forked. granted: as product, but the process is
an engine of its own, which has every permission, eval and wasm are
allowed, and the attack is made from a string, past what rewrites its imports. native: as granted, but in a process that was forked,
by a server that has kept the permission for native calls and hands the engine's own interface on. raw: a bare main program of an engine
that has every permission. python: as a Python program; all attacks are one user's, so they share a server. science: the
same with packages. session and python-session: as product and python, in a session with a directory to write to, and
modules of node."""
SESSIONS: frozenset[Mode] = frozenset({"session", "python-session"})
SHARING: frozenset[Mode] = frozenset({"python", "science", "python-session"})
"""Where an execution has a process in common with the one before, so that each may leave something for the next."""
LOOKS: Mapping[Mode, int] = {"granted": 4}
"""Attacks of a user before a program looks around, where it is not one: each execution starts an engine of its own there."""

TIERS: tuple[Tier, ...] = ("namespaces", "landlock")
"""The jails that must hold."""
_ALL = frozenset({"escape", "module", "forge", "result", "hang", "memory", "flood"})
ATTACKED: Mapping[tuple[Mode, Tier], frozenset[str]] = {
    ("product", "namespaces"): _ALL,
    # Frames and values go through the same code of guest and host whatever the jail: namespaces have them.
    ("product", "landlock"): _ALL - {"forge", "result"},
    # Frames and limits are the same code; files and modules are what a session adds.
    ("session", "namespaces"): frozenset({"escape", "module"}),
    # A value goes through the same code of the guest whatever the engine may do: `product` has them.
    ("granted", "namespaces"): _ALL - {"result"},
    # Frames and limits are the host's, and `granted` has them in namespaces; what a jail bounds itself, `product` has.
    ("granted", "landlock"): frozenset({"escape", "module"}),
    # What native code does in a forked process, beside its server and its siblings.
    ("native", "namespaces"): frozenset({"escape", "own"}),
    ("native", "landlock"): frozenset({"own"}),
    # No guest and no host, hence no frames, results or limits to attack; but native code.
    ("raw", "namespaces"): frozenset({"escape", "module", "own"}),
    ("raw", "landlock"): frozenset({"escape", "module", "own"}),
}
"""What attacks in TypeScript are run in, and the kinds that mean something there."""

PYTHON: frozenset[Mode] = frozenset({"python", "science", "python-session"})


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
_LIMITS = {
    "hang": Limits(wall_seconds=1.5, cpu_seconds=0.1),
    "memory": Limits(wall_seconds=4, cpu_seconds=0.6),
    "flood": Limits(wall_seconds=6, cpu_seconds=0.3, log_bytes=8_000),
}
_USUAL = Limits(wall_seconds=5, cpu_seconds=2)
_BENIGN = Limits(wall_seconds=20, cpu_seconds=4)
"""Limits of programs that attack nothing, and so end by themselves."""
_LONG: Mapping[tuple[Mode, str], Limits] = {("product", "ts-flood-07"): Limits(wall_seconds=20, cpu_seconds=8)}
"""What takes more time and memory than others where all is well: it must come to its own end on a slow machine too."""


def limits_for(mode: Mode, attack: Attack | None = None) -> Limits:
    """Limits of an attack; without one, of all other programs."""
    if attack is not None and (long := _LONG.get((mode, attack.id))):
        return long
    limits = _BENIGN if attack is None else _LIMITS.get(_kind(attack), _USUAL)
    return limits if mode in PYTHON else limits.model_copy(update={"memory_mb": _LITTLE_MB})


def raw_seconds(attack: Attack) -> float:
    """The wall deadline of a bare program from its first line on: what hangs by design need not run long."""
    return 0.5 if _kind(attack) in _LIMITS else 4.0


def _kind(attack: Attack) -> str:
    return _AS.get(attack.id, attack.kind)
