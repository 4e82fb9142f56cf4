"""The definitions of all tools: equal ones are shared, whichever documents they stand in."""

from __future__ import annotations

from corral.model.shapes.shape import Definition
from corral.model.shapes.shared_documents import SharedDocuments
from corral.tools.json_schema.indexed_schema import IndexedSchema, ReferenceTarget


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
