"""The definitions of all tools: equal ones are shared, whichever documents they stand in."""

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
    """A document that takes in definitions, and schemas beside them."""

    def __init__(self) -> None:
        self.document = IndexedSchema({"$defs": {}, "$schemas": {}})
        self.definitions: dict[str, object] = {}
        self._numbers = count()

    def has_room_for(self, definitions: dict[str, object]) -> bool:
        """True if it has none of the names for something else."""
        ours = self.definitions
        return self.document.size < _MAX_NODES and all(
            ours.get(name, each) is each for name, each in definitions.items()
        )

    def take_in(self, schema: dict[str, object], definitions: dict[str, object]) -> Pointer:
        """New place of the schema."""
        number = str(next(self._numbers))
        self.document.adopt("$defs", {name: each for name, each in definitions.items() if name not in self.definitions})
        self.document.adopt("$schemas", {number: schema})
        self.definitions |= definitions
        return "$schemas", number


class SharedDocuments:
    """The documents of one text. A definition is shared by two schemas if it is the very same object."""

    def __init__(self) -> None:
        self._documents: list[_SharedDocument] = []
        self._names: dict[int, tuple[object, frozenset[str] | None]] = {}

    def document(self, schema: JsonSchema) -> tuple[IndexedSchema, Pointer]:
        """A document with the schema, and where in it that is."""
        definitions = mapping(schema.get("$defs"))
        own = {keyword: each for keyword, each in schema.items() if keyword != "$defs"}
        if len(definitions) < _LEAST_DEFINITIONS or not self._is_plain((own, *definitions.values()), definitions):
            return IndexedSchema(schema), ()
        found = next((each for each in self._documents if each.has_room_for(definitions)), None)
        if found is None and len(self._documents) < _MOST_DOCUMENTS:
            self._documents.append(found := _SharedDocument())
        return (IndexedSchema(schema), ()) if found is None else (found.document, found.take_in(own, definitions))

    def _is_plain(self, schemas: Iterable[object], definitions: dict[str, object]) -> bool:
        """True if they refer to nothing but these definitions, so that it does not matter where they stand."""
        for schema in schemas:
            _, names = self._names.get(id(schema), (None, None))
            if id(schema) not in self._names:
                names = _names_in(schema)
                self._names[id(schema)] = schema, names
            if names is None or not names <= definitions.keys():
                return False
        return True


def _names_in(schema: object) -> frozenset[str] | None:
    """The names of the definitions that a schema refers to; None if it says more about where it or others are."""
    names: set[str] = set()
    for members in objects_within(schema):
        for keyword in REFERRING.intersection(members) | ({"$schema"} & members.keys()):
            reference = members[keyword]
            found = _REFERENCE.fullmatch(reference) if keyword == "$ref" and isinstance(reference, str) else None
            if found is None:
                return None
            names.add(found[1])
    return frozenset(names)


class Definitions:
    """Definitions read so far, by document and target."""

    def __init__(self) -> None:
        self.shared_documents = SharedDocuments()
        self._known: dict[tuple[IndexedSchema, ReferenceTarget], Definition] = {}
        self._namesakes: dict[tuple[str, str], list[tuple[IndexedSchema, ReferenceTarget]]] = {}

    def find(self, document: IndexedSchema, target: ReferenceTarget, base_name: str) -> Definition | None:
        """The definition of the target, or of a target of that name elsewhere that means just the same."""
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
    """The pairs of targets that mean the same if the first two do, these included; empty if they do not.

    Schemas mean the same if they are equal, and so are all that they refer to. Of a document in which too much has been
    compared, none do.
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
