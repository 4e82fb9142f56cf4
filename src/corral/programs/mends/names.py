"""Names of tools, and which of them a name that is none can only mean."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from difflib import get_close_matches
from typing import cast

from corral.concurrency.cached_property import cached_property


class ToolNames:
    """The paths of tools, `name` or `namespace.name`; `schema_of` gives the schema of the input of one.

    `has_member` is true if a part of the result of one, given by keys and items on the way to it, is an object with a
    member of that name.
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
        """The tool that a name means: itself, or the only one that differs by case, underscores and dots.

        A name without a namespace may be that of a tool in any.
        """
        if written in self.paths:
            return written
        matches = self._by_spelling.get(_plain(written), [])
        if not matches and "." not in written:
            matches = self._by_last_name.get(_plain(written), [])
        return matches[0] if len(matches) == 1 else None

    def sole_member(self, path: str) -> str | None:
        """The only member that an input must have."""
        schema = self._schema_of(path) or {}
        required = schema.get("required")
        names = cast("list[str]", required) if isinstance(required, list) else []
        return names[0] if len(names) == 1 and schema.get("type") == "object" else None

    def has_input(self, path: str, name: str) -> bool:
        """True if an input has a member of that name."""
        properties = (self._schema_of(path) or {}).get("properties")
        return isinstance(properties, dict) and name in properties

    def resolve_member(self, path: str, written: str, others: Container[str]) -> str | None:
        """The only member of an input that differs from a name, which is none, by case and underscores."""
        near = self._members_of(path).get(_plain(written), [])
        return near[0] if len(near) == 1 and near[0] != written and near[0] not in others else None

    def _members_of(self, path: str) -> Mapping[str, list[str]]:
        """The members of an input that has no others, by their spelling."""
        if path not in self._members:
            schema = self._schema_of(path) or {}
            properties = schema.get("properties")
            names = cast("dict[str, object]", properties) if isinstance(properties, dict) else {}
            is_open = schema.get("additionalProperties") or "patternProperties" in schema
            self._members[path] = {} if is_open else _grouped((_plain(each), each) for each in names)
        return self._members[path]

    def imported(self, space: str, word: str, *, is_home: bool) -> str | None:
        """The tool that an import means: of a namespace of the tools or, if the module can only be they, of any.

        Another module may be a package or a file of the program's.
        """
        tool = self.resolve(f"{space}.{word}") if space in self._namespaces else None
        return tool or (self.resolve(word) if is_home else None)

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
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for key, path in pairs:
        groups[key].append(path)
    return groups


def _plain(name: str) -> str:
    return name.replace("_", "").replace(".", "").replace("-", "").lower()
