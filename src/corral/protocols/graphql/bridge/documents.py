"""Documents of requests: bounded before they are validated, and validated once."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLSyntaxError,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionSetNode,
    parse,
    validate,
)

from corral.bridges.web import MAX_CALLS
from corral.concurrency.threads import run_in_own_thread
from corral.errors import MalformedMessage, MessageTooLarge
from corral.protocols.graphql.bridge.schema import ToolSchema

_MOST_TOKENS = 10_000
_MOST = (5_000, 32, MAX_CALLS)
"""Fields of an operation, where each mention of a fragment counts; levels; calls."""
_MOST_ALIKE = 200
"""Fields of one response name in a document: validation compares them in pairs."""
_MOST_DOCUMENTS = 64
_MOST_CACHED_CHARACTERS = 4_000
"""Of a document that is kept; it takes some 150 times as many bytes."""
_QUICK_CHARACTERS = 2_000
"""Longer documents are validated in a thread."""


class _Size(NamedTuple):
    fields: int
    levels: int
    calls: int


_NOTHING = _Size(0, 0, 0)


async def document_of(text: str, tools: ToolSchema) -> DocumentNode:
    """Returns the parsed document of a request, which fits the schema.

    Raises:
        MalformedMessage: it is not GraphQL, or does not fit the schema.
        MessageTooLarge: it has too many tokens, levels, fields or calls.
    """
    known = tools.documents.get(text)
    if known is not None:
        tools.documents.move_to_end(text)
        return known
    if len(text) < _QUICK_CHARACTERS:
        document = _checked(text, tools)
    else:
        document = await run_in_own_thread(_checked, text, tools, abandon_on_cancel=True)
    if len(text) <= _MOST_CACHED_CHARACTERS:
        tools.documents[text] = document
        if len(tools.documents) > _MOST_DOCUMENTS:
            tools.documents.popitem(last=False)
    return document


def operation_of(document: DocumentNode, name: str | None) -> OperationDefinitionNode:
    """Returns the operation to execute.

    Raises:
        MalformedMessage: there is none of that name, or several and no name.
    """
    found = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
    if name is not None:
        found = [each for each in found if each.name is not None and each.name.value == name]
    if len(found) != 1:
        raise MalformedMessage(
            f"the document has no operation {name!r}" if name else "operationName must name an operation"
        )
    return found[0]


def is_introspection(operation: OperationDefinitionNode) -> bool:
    """True if the operation only asks for the schema, in fields of its own."""
    return all(
        isinstance(field, FieldNode) and field.name.value.startswith("__")
        for field in operation.selection_set.selections
    )


def _checked(text: str, tools: ToolSchema) -> DocumentNode:
    try:
        document = parse(text, no_location=False, max_tokens=_MOST_TOKENS)
    except GraphQLSyntaxError as error:
        if "tokens" in error.message:
            raise MessageTooLarge(f"the document has more than {_MOST_TOKENS} tokens") from None
        raise MalformedMessage(_told(error)) from None
    _Bounds(document, tools.namespaces).enforce()
    problems = validate(tools.schema, document, max_errors=5)
    if problems:
        raise MalformedMessage("; ".join(_told(problem) for problem in problems[:5]))
    return document


def _told(error: GraphQLError) -> str:
    places = error.locations
    return f"{error.message} (line {places[0].line}, column {places[0].column})" if places else error.message


class _Bounds:
    """Sizes of the operations of a document. Each fragment is looked at once."""

    def __init__(self, document: DocumentNode, namespaces: frozenset[str]) -> None:
        self._document = document
        self._namespaces = namespaces
        self._fragments = {
            each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)
        }
        self._known: dict[tuple[str, bool], _Size] = {}
        self._alike: Counter[str] = Counter()

    def enforce(self) -> None:
        """Raises MessageTooLarge for a document over the bounds."""
        for each in self._document.definitions:
            if isinstance(each, OperationDefinitionNode):
                found = self._size(each.selection_set, at_root=True)
                for count, most, noun in zip(found, _MOST, ("fields", "levels", "calls"), strict=True):
                    if count > most:
                        raise MessageTooLarge(f"an operation of the document has {count} {noun}; {most} are allowed")
            elif isinstance(each, FragmentDefinitionNode):
                self._fragment(each.name.value, at_root=False)
        alike = max(self._alike.values(), default=0)
        if alike > _MOST_ALIKE:
            raise MessageTooLarge(f"the document has {alike} fields of one name; {_MOST_ALIKE} are allowed")

    def _size(self, selections: SelectionSetNode | None, *, at_root: bool) -> _Size:
        total = _NOTHING
        for each in () if selections is None else selections.selections:
            match each:
                case FieldNode():
                    found = self._field(each, at_root=at_root)
                case FragmentSpreadNode():
                    found = self._fragment(each.name.value, at_root=at_root)
                case InlineFragmentNode():
                    found = self._size(each.selection_set, at_root=at_root)
                case _:
                    continue
            total = _Size(total.fields + found.fields, max(total.levels, found.levels), total.calls + found.calls)
        return total

    def _field(self, field: FieldNode, *, at_root: bool) -> _Size:
        name = field.name.value
        self._alike[(field.alias or field.name).value] += 1
        is_space = at_root and name in self._namespaces
        inner = self._size(field.selection_set, at_root=False)
        calls = inner.calls if is_space else int(not name.startswith("__"))
        return _Size(inner.fields + 1, inner.levels + 1, calls)

    def _fragment(self, name: str, *, at_root: bool) -> _Size:
        found = self._known.get((name, at_root))
        if found is None:
            self._known[name, at_root] = _NOTHING  # of a cycle, which validation refuses
            if name in self._fragments:
                found = self._size(self._fragments[name].selection_set, at_root=at_root)
                self._known[name, at_root] = found
        return found or _NOTHING
