"""Containment of programs: its kinds, in order of strength, and the directories that are mounted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, TypeAlias, cast, get_args

Tier: TypeAlias = Literal["none", "landlock", "namespaces"]
"""Tier of the jail, a containment by the operating system; weakest first. docs/security.md describes each."""

TIERS: tuple[Tier, ...] = ("none", "landlock", "namespaces")
"""Weakest first."""

_Strength: TypeAlias = Literal["none", "process", "interpreter", "kernel", "vm"]
"""Boundary around a program, weakest first: none; a separate process with its user's rights; an interpreter without
access to the system; the kernel, as by namespaces; a virtual machine."""

_STRENGTHS: tuple[_Strength, ...] = get_args(_Strength)
_LEAST: Mapping[Tier, _Strength] = {"none": "none", "landlock": "interpreter", "namespaces": "kernel"}


class ContainmentKind(str):
    """Containment of an execution: the name of its kind, such as "namespaces" or "docker", and its strength.

    It is a string, so that results, logs and audit events show and compare the kind.
    """

    strength: _Strength

    def __new__(cls, kind: str, strength: _Strength) -> Self:
        containment = super().__new__(cls, kind)
        containment.strength = strength
        return containment

    def __reduce__(self) -> tuple[type[Self], tuple[str, _Strength]]:
        return type(self), (str(self), self.strength)

    @classmethod
    def of_tier(cls, tier: Tier) -> Self:
        """Returns the containment of a process in a jail of this tier."""
        return cls(tier, "process" if tier == "none" else "kernel")

    def reaches(self, required: Tier) -> bool:
        """True if it is at least the required tier. A kind that is not a tier is compared by its strength:
        "interpreter" counts as `landlock`, "kernel" and above as `namespaces`."""
        if self in TIERS:
            return reaches(cast("Tier", str(self)), required)
        return _STRENGTHS.index(self.strength) >= _STRENGTHS.index(_LEAST[required])


def reaches(tier: Tier, required: Tier) -> bool:
    """True if it is at least the required tier."""
    return TIERS.index(tier) >= TIERS.index(required)


class Bind(NamedTuple):
    """Directory of the host, or of the space's own namespaces, and its path for guests."""

    source: str
    inside: str
    writable: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Space:
    """Directories of one session. Compared by identity, so a sandbox never serves two sessions."""

    binds: tuple[Bind, ...]
    namespaces: tuple[int, int] | None = None
    """Descriptors of the user and mount namespaces that contain the sources. None means the host's."""
    user: int | None = None
    """User of guests where the host is root, and owner of the namespaces. None means the host's own user."""
    overlaid: bool = False
    """True if its namespaces have overlays over the host's programs."""
    own_user: bool = False
    """True if nothing else on this machine runs as that user or belongs to it."""
    file_bytes: int = 0
    """Maximum size of a file that a guest writes, in bytes."""
    home: str = "/"
    """Working directory of programs."""
    mapped: bool = False
    """True if guests see the sources at the host's paths, and translate programs' paths to them."""
    served: bool = False
    """True if it was made for engines that see no directories and ask the host for each file."""

    @property
    def mounts(self) -> tuple[tuple[str, bool], ...]:
        """Paths for guests, each with whether it is writable."""
        return tuple((bind.inside, bind.writable) for bind in self.binds)

    @property
    def places(self) -> tuple[tuple[str, bool, str | None], ...]:
        """Like `mounts`, with the source of each path that the guest has to translate."""
        return tuple((bind.inside, bind.writable, bind.source if self.mapped else None) for bind in self.binds)

    def place(self, path: str) -> str:
        """Returns the path by which a guest's process opens the directory that programs see at `path`."""
        return next((bind.source for bind in self.binds if self.mapped and bind.inside == path), path)

    @property
    def shares_user(self) -> bool:
        """True if a guest that sees the host's files could change modes and times of files outside the session."""
        return self.namespaces is None and not self.own_user

    @property
    def writes(self) -> bool:
        return any(bind.writable for bind in self.binds)


NO_SPACE = Space(binds=())
"""No directories: guests see only their engine."""
