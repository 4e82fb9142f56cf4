"""Directories that the guests of one session see, as sandboxes need to know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Bind", "Space"]


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
    file_bytes: int = 0
    """Maximum size of a file that a guest writes."""
    home: str = "/"
    """Working directory of programs."""

    @property
    def writes(self) -> bool:
        return any(bind.writable for bind in self.binds)
