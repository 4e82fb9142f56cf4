"""One JSON Schema document: its subschemas and the targets of its references."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import cast
from urllib.parse import unquote, urldefrag, urljoin

from corral.tools.json_schema.keywords import Pointer, listing, mapping, pointer_tokens, subschemas
from corral.types import JsonSchema

_MAX_LEVELS = 200
_MAX_NODES = 200_000
_MAX_DYNAMIC = 2
_MIN_EFFORT = 10_000
_EFFORT_PER_NODE = 20
_TARGET_EFFORT = 4

REFERRING = frozenset(("$ref", "$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor"))


def integer(value: object) -> int | None:
    """Returns a number without a fraction as an int; None for other values."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


@dataclass(frozen=True, slots=True)
class ReferenceScope:
    """Base URI for relative references and, outermost first, the enclosing resources with dynamic anchors."""

    base: str = ""
    dynamic: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReferenceTarget:
    """Target of a reference. `scope` belongs to the schema that contains the target."""

    pointer: Pointer
    scope: ReferenceScope


class IndexedSchema:
    """Copy of a schema that resolves references. Never raises, whatever the schema is.

    Parts nested over 200 levels deep, or beyond 200,000 nodes, are replaced by `true`; numbers out of the range of
    doubles become infinite. Only references within the document are resolved.
    """

    def __init__(self, schema: JsonSchema) -> None:
        self.root, self.size, self.has_references = _bounded_copy(schema)
        self.references_stand_alone = "draft-0" in str(mapping(self.root).get("$schema"))
        """True if siblings of a `$ref` are ignored, as up to draft 7."""
        self._resources: dict[str, Pointer] = {"": ()}
        self._anchors: dict[tuple[str, str], Pointer] = {}
        self._dynamic_anchors: dict[tuple[str, str], Pointer] = {}
        self._texts: dict[Pointer, str] = {}
        self._targets: dict[ReferenceTarget, list[ReferenceTarget | None]] = {}
        self._resolved: dict[tuple[str, ReferenceScope, bool], ReferenceTarget | None] = {}
        self.effort = _MIN_EFFORT + _EFFORT_PER_NODE * self.size
        """Number of schemas that can still be compared in search of equal ones."""
        if self.has_references:
            self._index()
        self._dynamic_resources: dict[str, set[str]] = {}
        for base, anchor in self._dynamic_anchors:
            self._dynamic_resources.setdefault(base, set()).add(anchor)

    def adopt(self, keyword: str, members: dict[str, object]) -> None:
        """Adds members to one of the root's members. They refer only to definitions there."""
        copied, size, has_references = _bounded_copy(members)
        mapping(mapping(self.root)[keyword]).update(mapping(copied))
        self.size += size
        self.effort += _EFFORT_PER_NODE * size
        self.has_references |= has_references

    def enter(self, schema: object, scope: ReferenceScope) -> ReferenceScope:
        """Returns the scope within a schema in `scope`."""
        if not self.has_references:
            return scope
        base = _base_within(schema, scope.base)
        dynamic = scope.dynamic
        if base in self._dynamic_resources and len(dynamic) < _MAX_DYNAMIC:
            known = set[str]().union(*(self._dynamic_resources[each] for each in dynamic))
            if not self._dynamic_resources[base] <= known:
                dynamic = (*dynamic, base)
        return ReferenceScope(base, dynamic)

    def at(self, pointer: Pointer) -> object:
        """Returns the schema at a target; `true` if there is none."""
        node = self._find(pointer)
        return True if node is None else node[0]

    def references(self, schema: object, scope: ReferenceScope) -> Iterator[ReferenceTarget | None]:
        """Yields the targets of this schema's own references; None for each dangling one."""
        if not self.has_references:
            return
        keywords = mapping(schema)
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = keywords.get(keyword)
            if isinstance(reference, str):
                known = reference, scope, keyword == "$dynamicRef"
                if known not in self._resolved:
                    self._resolved[known] = self._resolve(*known)
                yield self._resolved[known]

    def text_at(self, pointer: Pointer) -> str:
        """Returns the schema at a target as text. Equal texts are equal schemas."""
        if pointer not in self._texts:
            self._texts[pointer] = json.dumps(self.at(pointer), sort_keys=True, default=repr)
        return self._texts[pointer]

    def targets_within(self, target: ReferenceTarget) -> list[ReferenceTarget | None]:
        """Returns the targets of all references at or below a target, in an order that depends only on `text_at`."""
        if target not in self._targets:
            self.effort -= _TARGET_EFFORT
            targets: list[ReferenceTarget | None] = []
            waiting = [(self.at(target.pointer), target.scope)]
            while waiting:
                schema, outer = waiting.pop()
                self.effort -= 1
                scope = self.enter(schema, outer)
                targets += self.references(schema, scope)
                members = sorted(subschemas(schema), key=itemgetter(0))
                waiting += [(member, scope) for _, member in members]
            self._targets[target] = targets
        return self._targets[target]

    def _resolve(self, reference: str, scope: ReferenceScope, dynamic: bool) -> ReferenceTarget | None:
        uri, fragment = _split(reference, scope.base)
        pointer = self._locate(uri, fragment)
        if pointer is None:
            return None
        if dynamic and pointer == self._dynamic_anchors.get((uri, fragment)):
            anchors = (self._dynamic_anchors.get((base, fragment)) for base in scope.dynamic)
            pointer = next((anchor for anchor in anchors if anchor is not None), pointer)
        node = self._find(pointer)
        return (
            None if node is None else ReferenceTarget(pointer, self.enter(None, ReferenceScope(node[1], scope.dynamic)))
        )

    def _locate(self, uri: str, fragment: str) -> Pointer | None:
        """Returns the location in the document. A pointer that its resource lacks can start at the root."""
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((uri, fragment))
        start = self._resources.get(uri)
        if start is None:
            return None
        tokens = pointer_tokens(fragment)
        candidates = (start + tokens, tokens)
        return next((pointer for pointer in candidates if self._find(pointer) is not None), None)

    def _find(self, pointer: Pointer) -> tuple[object, str] | None:
        """Returns the node at a location, and its base URI."""
        node, base = self.root, ""
        for token in pointer:
            base = _base_within(node, base)
            items = listing(node)
            if token in mapping(node):
                node = mapping(node)[token]
            elif token.isascii() and token.isdecimal() and len(token) < 10 and int(token) < len(items):
                node = items[int(token)]
            else:
                return None
        return node, base

    def _index(self) -> None:
        waiting: list[tuple[object, Pointer, str]] = [(self.root, (), "")]
        while waiting:
            schema, pointer, outer = waiting.pop()
            base = _base_within(schema, outer)
            keywords = mapping(schema)
            if base != outer:
                self._resources.setdefault(base, pointer)
            identifier = keywords.get("$id")
            if isinstance(identifier, str) and identifier.startswith("#"):
                self._anchors.setdefault((base, identifier[1:]), pointer)
            for keyword in ("$anchor", "$dynamicAnchor"):
                anchor = keywords.get(keyword)
                if isinstance(anchor, str):
                    self._anchors.setdefault((base, anchor), pointer)
                    if keyword == "$dynamicAnchor":
                        self._dynamic_anchors.setdefault((base, anchor), pointer)
            waiting += [(member, pointer + path, base) for path, member in subschemas(schema)]


def _base_within(schema: object, base: str) -> str:
    identifier = mapping(schema).get("$id")
    if not isinstance(identifier, str) or identifier.startswith("#"):
        return base
    return _split(identifier, base)[0]


def _split(reference: str, base: str) -> tuple[str, str]:
    """Returns the absolute URI of a reference, and its fragment, decoded."""
    if reference.startswith("#"):
        return base, unquote(reference[1:])
    try:
        uri, fragment = urldefrag(urljoin(base, reference))
    except ValueError:
        return reference, ""
    return uri, unquote(fragment)


def _bounded_copy(schema: object) -> tuple[object, int, bool]:
    """Returns a bounded copy, its number of nodes, and whether it has references, ids or anchors.

    It is iterative, so any depth is safe.
    """
    has_references = False
    top: list[object] = [schema]
    waiting: list[tuple[list[object] | dict[str, object], int]] = [(top, 0)]
    nodes = 0
    while waiting:
        container, level = waiting.pop()
        has_references = has_references or not REFERRING.isdisjoint(container if isinstance(container, dict) else ())
        entries = list(container.items()) if isinstance(container, dict) else list(enumerate(container))
        for key, value in entries:
            nodes += 1
            copied = _shallow_copy(value) if level < _MAX_LEVELS and nodes < _MAX_NODES else True
            container[key] = copied  # pyright: ignore[reportArgumentType, reportCallIssue] - the key is its own
            if isinstance(copied, dict | list) and copied:
                waiting.append((cast("dict[str, object] | list[object]", copied), level + 1))
    return top[0], nodes, has_references


def _shallow_copy(value: object) -> object:
    match value:
        case dict():
            items = cast("dict[object, object]", value).items()
            return {key: each for key, each in items if isinstance(key, str)}
        case list() | tuple():
            return list(cast("list[object]", value))
        case int() if not isinstance(value, bool) and abs(value) > 1e308:
            return math.inf if value > 0 else -math.inf
        case _:
            return value
