"""Definitions of all tools. Equal ones are shared across documents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count

from corral.model.shapes.shape import Definition
from corral.tools.json_schema.indexed_schema import REFERRING, IndexedSchema, ReferenceTarget
from corral.tools.json_schema.keywords import Pointer, mapping, objects_within
from corral.types import JsonSchema

_LEAST_DEFINITIONS = 8
_MOST_DOCUMENTS = 8
_MAX_NODES = 100_000
_REFERENCE = re.compile(r"#/\$defs/([\w.-]+)", re.ASCII)


class _SharedDocument:
    """Document that collects definitions, and schemas that use them."""

    def __init__(self) -> None:
        self.document = IndexedSchema({"$defs": {}, "$schemas": {}})
        self.definitions: dict[str, object] = {}
        self._numbers = count()

    def has_room_for(self, definitions: dict[str, object]) -> bool:
        """True if none of the names stands for another definition."""
        ours = self.definitions
        return self.document.size < _MAX_NODES and all(
            ours.get(name, each) is each for name, each in definitions.items()
        )

    def take_in(self, schema: dict[str, object], definitions: dict[str, object]) -> Pointer:
        """Adds the schema, and returns its location in the document."""
        number = str(next(self._numbers))
        self.document.adopt("$defs", {name: each for name, each in definitions.items() if name not in self.definitions})
        self.document.adopt("$schemas", {number: schema})
        self.definitions |= definitions
        return "$schemas", number


class _SharedDocuments:
    """Documents of one text. Two schemas share a definition if it is the same Python object."""

    def __init__(self) -> None:
        self._documents: list[_SharedDocument] = []
        self._names: dict[int, tuple[object, frozenset[str] | None]] = {}

    def document(self, schema: JsonSchema) -> tuple[IndexedSchema, Pointer]:
        """Returns a document with the schema, and the schema's location there."""
        definitions = mapping(schema.get("$defs"))
        own = {keyword: each for keyword, each in schema.items() if keyword != "$defs"}
        if len(definitions) < _LEAST_DEFINITIONS or not self._is_plain((own, *definitions.values()), definitions):
            return IndexedSchema(schema), ()
        shared = next((each for each in self._documents if each.has_room_for(definitions)), None)
        if shared is None and len(self._documents) < _MOST_DOCUMENTS:
            self._documents.append(shared := _SharedDocument())
        return (IndexedSchema(schema), ()) if shared is None else (shared.document, shared.take_in(own, definitions))

    def _is_plain(self, schemas: Iterable[object], definitions: dict[str, object]) -> bool:
        """True if the schemas refer only to these definitions, so that their location does not matter."""
        for schema in schemas:
            _, names = self._names.get(id(schema), (None, None))
            if id(schema) not in self._names:
                names = _names_in(schema)
                self._names[id(schema)] = schema, names
            if names is None or not names <= definitions.keys():
                return False
        return True


def _names_in(schema: object) -> frozenset[str] | None:
    """Returns the names of the definitions that a schema refers to; None if it uses other references or ids."""
    names: set[str] = set()
    for members in objects_within(schema):
        for keyword in REFERRING.intersection(members) | ({"$schema"} & members.keys()):
            reference = members[keyword]
            match = _REFERENCE.fullmatch(reference) if keyword == "$ref" and isinstance(reference, str) else None
            if match is None:
                return None
            names.add(match[1])
    return frozenset(names)


class Definitions:
    """Definitions read so far, by document and target."""

    def __init__(self) -> None:
        self.shared_documents = _SharedDocuments()
        self._known: dict[tuple[IndexedSchema, ReferenceTarget], Definition] = {}
        self._namesakes: dict[tuple[str, str], list[tuple[IndexedSchema, ReferenceTarget]]] = {}

    def find(self, document: IndexedSchema, target: ReferenceTarget, base_name: str) -> Definition | None:
        """Returns the definition of the target, or of an equal target with that name in another document."""
        known = self._known.get((document, target))
        if known is not None:
            return known
        for other, place in self._namesakes.get((base_name, document.text_at(target.pointer)), ()):
            for ours, theirs in _equal_targets(document, target, other, place):
                shared = self._known.get((other, theirs))
                if shared is not None:
                    self._known.setdefault((document, ours), shared)
        return self._known.get((document, target))

    def add(self, document: IndexedSchema, target: ReferenceTarget, definition: Definition) -> None:
        self._known[document, target] = definition
        namesakes = self._namesakes.setdefault((definition.base_name, document.text_at(target.pointer)), [])
        namesakes.append((document, target))


def _equal_targets(
    document: IndexedSchema, target: ReferenceTarget, other: IndexedSchema, place: ReferenceTarget
) -> list[tuple[ReferenceTarget, ReferenceTarget]]:
    """Returns the pairs of targets that are equal if the first two are, including these; empty if they differ.

    Schemas are equal if their texts are equal, and so are all targets that they refer to. After too many comparisons in
    a document, all its targets count as different.
    """
    pairs = {(target, place): None}
    waiting = [(target, place)]
    while waiting:
        ours, theirs = waiting.pop()
        document.effort -= 1
        if document.effort < 0 or document.text_at(ours.pointer) != other.text_at(theirs.pointer):
            return []
        for pair in zip(document.targets_within(ours), other.targets_within(theirs), strict=True):
            match pair:
                case (None, None):
                    pass
                case (ReferenceTarget(), ReferenceTarget()) if pair not in pairs:
                    pairs[pair] = None
                    waiting.append(pair)
                case (ReferenceTarget(), ReferenceTarget()):
                    pass
                case _:
                    return []
    return list(pairs)
