"""Names of tools, and which of them a name that is none can only mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from corral.concurrency.cached_property import cached_property

__all__ = ["Mended", "ToolNames"]


class Mended(NamedTuple):
    """One mend, as it is told."""

    message: str


class ToolNames:
    """The paths of tools, `name` or `namespace.name`."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = frozenset((*paths, "search", "describe"))

    def meant(self, written: str) -> str | None:
        """The tool that a name means: itself, or the only one that differs by case, underscores and dots.

        A name without a namespace may be that of a tool in any.
        """
        if written in self.paths:
            return written
        found = self._by_spelling.get(_plain(written), [])
        if not found and "." not in written:
            found = self._by_last_name.get(_plain(written), [])
        return found[0] if len(found) == 1 else None

    def may_be_bare(self, word: str) -> bool:
        """True if a name may be that of a tool or a namespace."""
        return _plain(word) in self._by_last_name or word in self._namespaces

    def is_last_name(self, word: str) -> bool:
        """True if a name is that of a tool in some namespace, or in none."""
        return word in {path.rpartition(".")[2] for path in self._by_last_name.get(_plain(word), ())}

    def nearest(self, written: str) -> str:
        """A tool to name in an example."""
        near = get_close_matches(written, sorted(self.paths), 1, 0.5) if len(self.paths) < 1_000 else []
        return near[0] if near else "name"

    @cached_property
    def _by_spelling(self) -> dict[str, list[str]]:
        return _grouped((_plain(path), path) for path in self.paths)

    @cached_property
    def _by_last_name(self) -> dict[str, list[str]]:
        return _grouped((_plain(path.rpartition(".")[2]), path) for path in self.paths)

    @cached_property
    def _namespaces(self) -> frozenset[str]:
        return frozenset(path.partition(".")[0] for path in self.paths if "." in path)


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for key, path in pairs:
        found[key].append(path)
    return found


def _plain(name: str) -> str:
    return name.replace("_", "").replace(".", "").replace("-", "").lower()
