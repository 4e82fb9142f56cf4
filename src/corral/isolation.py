"""Isolation of a program: its kinds, in order, and the directories that are let in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, TypeAlias, cast, get_args

Tier: TypeAlias = Literal["none", "landlock", "namespaces"]
"""Tier of the jail by the operating system, from none to most; docs/security.md describes each."""

TIERS: tuple[Tier, ...] = ("none", "landlock", "namespaces")
"""In rising order."""

Strength: TypeAlias = Literal["none", "process", "interpreter", "kernel", "vm"]
"""Boundary around a program, in rising order: none; a process of its own with its user's rights; an interpreter that
reaches nothing of the system; the kernel, as by namespaces; a virtual machine."""

_STRENGTHS: tuple[Strength, ...] = get_args(Strength)
_LEAST: Mapping[Tier, Strength] = {"none": "none", "landlock": "interpreter", "namespaces": "kernel"}


class Isolation(str):
    """Isolation of an execution: the name of its kind, such as "namespaces" or "docker", and its strength.

    It is a text, so that results, logs and audit events show and compare the kind.
    """

    strength: Strength

    def __new__(cls, kind: str, strength: Strength) -> Self:
        isolation = super().__new__(cls, kind)
        isolation.strength = strength
        return isolation

    def __reduce__(self) -> tuple[type[Self], tuple[str, Strength]]:
        return type(self), (str(self), self.strength)

    @classmethod
    def of_tier(cls, tier: Tier) -> Self:
        """The isolation of a process in a jail of this tier."""
        return cls(tier, "process" if tier == "none" else "kernel")

    def reaches(self, required: Tier) -> bool:
        """True if it is at least the required tier. Any other kind than a tier counts by its strength: from
        "interpreter" on as `landlock`, from "kernel" on as `namespaces`."""
        if self in TIERS:
            return reaches(cast("Tier", str(self)), required)
        return _STRENGTHS.index(self.strength) >= _STRENGTHS.index(_LEAST[required])


def reaches(tier: Tier, required: Tier) -> bool:
    """True if it is at least the required tier."""
    return TIERS.index(tier) >= TIERS.index(required)


class Bind(NamedTuple):
    """A directory of the host, or of the space's own namespaces, and its path for guests."""

    source: str
    inside: str
    writable: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Space:
    """Directories of one session. It is equal to itself only, so that nothing that serves it serves another."""

    binds: tuple[Bind, ...]
    namespaces: tuple[int, int] | None = None
    """Descriptors of a user and a mount namespace that have the sources; None: the host's."""
    user: int | None = None
    """User that guests run as where the host is root; None: the host's own. It is the namespaces' owner."""
    overlaid: bool = False
    """Its namespaces have the host's programs by overlays of their own."""
    own_user: bool = False
    """Nothing else on this machine runs as that user, or belongs to it."""
    file_bytes: int = 0
    """Maximum size of a file that a guest writes."""
    home: str = "/"
    """Working directory of programs."""
    mapped: bool = False
    """True where guests find the sources at their own paths, and map those that programs use to them."""

    @property
    def mounts(self) -> tuple[tuple[str, bool], ...]:
        """Paths for guests, and if they may change what is there."""
        return tuple((bind.inside, bind.writable) for bind in self.binds)

    @property
    def places(self) -> tuple[tuple[str, bool, str | None], ...]:
        """The same for a guest, with where they are if not at these paths."""
        return tuple((bind.inside, bind.writable, bind.source if self.mapped else None) for bind in self.binds)

    def place(self, path: str) -> str:
        """Path by which a guest's process opens a directory that programs see at `path`."""
        return next((bind.source for bind in self.binds if self.mapped and bind.inside == path), path)

    @property
    def shares_user(self) -> bool:
        """True if a guest that sees the file system of the host could change modes and times of files that are not the
        session's."""
        return self.namespaces is None and not self.own_user

    @property
    def writes(self) -> bool:
        return any(bind.writable for bind in self.binds)


NO_SPACE = Space(binds=())
"""Nothing that guests see besides their engine."""
