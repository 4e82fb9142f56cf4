"""Names of tools, and the resolution of misspelt ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from difflib import get_close_matches
from typing import cast

from corral.concurrency.cached_property import cached_property


class ToolNames:
    """Paths of tools, `name` or `namespace.name`. `schema_of` returns a tool's input schema.

    `has_member(path, steps, name)` is true if the part of a tool's result at `steps`, keys or None for an item, is an
    object with a member `name`.
    """

    def __init__(
        self,
        paths: Iterable[str],
        schema_of: Callable[[str], Mapping[str, object] | None] = lambda _: None,
        has_member: Callable[[str, tuple[str | None, ...], str], bool] = lambda _, __, ___: False,
    ) -> None:
        self._schema_of = schema_of
        self.has_member = has_member
        self._members: dict[str, Mapping[str, list[str]]] = {}
        self.paths = frozenset((*paths, "search", "describe"))

    def resolve(self, written: str) -> str | None:
        """Returns the tool of this name, or the only one that differs just in case, underscores and dots.

        A name without a namespace matches tools in every namespace.
        """
        if written in self.paths:
            return written
        matches = self._by_spelling.get(_plain(written), [])
        if not matches and "." not in written:
            matches = self._by_last_name.get(_plain(written), [])
        return matches[0] if len(matches) == 1 else None

    def sole_member(self, path: str) -> str | None:
        """Returns the only required member of an input."""
        schema = self._schema_of(path) or {}
        required = schema.get("required")
        names = cast("list[str]", required) if isinstance(required, list) else []
        return names[0] if len(names) == 1 and schema.get("type") == "object" else None

    def has_input(self, path: str, name: str) -> bool:
        """True if an input has a member of that name."""
        properties = (self._schema_of(path) or {}).get("properties")
        return isinstance(properties, dict) and name in properties

    def resolve_member(self, path: str, written: str, others: Container[str]) -> str | None:
        """Returns the only member of an input that differs from an unknown name just in case and underscores."""
        near = self._members_of(path).get(_plain(written), [])
        return near[0] if len(near) == 1 and near[0] != written and near[0] not in others else None

    def _members_of(self, path: str) -> Mapping[str, list[str]]:
        """Returns the members of a closed input, by normalized spelling."""
        if path not in self._members:
            schema = self._schema_of(path) or {}
            properties = schema.get("properties")
            names = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
            is_open = schema.get("additionalProperties") or "patternProperties" in schema
            self._members[path] = {} if is_open else _grouped((_plain(each), each) for each in names)
        return self._members[path]

    def imported(self, space: str, word: str, *, is_home: bool) -> str | None:
        """Returns the tool that an import refers to.

        The module must be a namespace or, with `is_home`, stand for all tools. Any other module could be a package.
        """
        tool = self.resolve(f"{space}.{word}") if space in self._namespaces else None
        return tool or (self.resolve(word) if is_home else None)

    def may_be_bare(self, word: str) -> bool:
        """True if a name may refer to a tool or a namespace."""
        return _plain(word) in self._by_last_name or word in self._namespaces

    def is_last_name(self, word: str) -> bool:
        """True if a tool has this name, in any namespace or in none."""
        return word in {path.rpartition(".")[2] for path in self._by_last_name.get(_plain(word), ())}

    def nearest(self, written: str) -> str:
        """Returns a similar tool for use in an example."""
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
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for key, path in pairs:
        groups[key].append(path)
    return groups


def _plain(name: str) -> str:
    return name.replace("_", "").replace(".", "").replace("-", "").lower()
