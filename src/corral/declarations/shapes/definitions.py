"""The definitions of all tools: equal ones are shared, whichever documents they stand in."""

from __future__ import annotations

from corral.declarations.shapes.libraries import Libraries
from corral.declarations.shapes.shape import Definition
from corral.json_schema.documents import Document, Target

__all__ = ["Definitions"]


class Definitions:
    """What is defined so far, by where it is defined."""

    def __init__(self) -> None:
        self.libraries = Libraries()
        self._known: dict[tuple[Document, Target], Definition] = {}
        self._namesakes: dict[tuple[str, str], list[tuple[Document, Target]]] = {}

    def find(self, document: Document, target: Target, base_name: str) -> Definition | None:
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

    def add(self, document: Document, target: Target, definition: Definition) -> None:
        self._known[document, target] = definition
        namesakes = self._namesakes.setdefault((definition.base_name, document.text_at(target.pointer)), [])
        namesakes.append((document, target))


def _equal_targets(document: Document, target: Target, other: Document, place: Target) -> list[tuple[Target, Target]]:
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
                case (Target(), Target()) if pair not in pairs:
                    pairs[pair] = None
                    waiting.append(pair)
                case (Target(), Target()):
                    pass
                case _:
                    return []
    return list(pairs)
