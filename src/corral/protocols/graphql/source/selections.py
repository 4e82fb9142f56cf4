"""Selection sets of results: chosen within a budget, and extended by fields of the host or a program."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphql import GraphQLError, OperationDefinitionNode, OperationType, VariableNode, parse, print_ast, visit
from graphql.language import FragmentSpreadNode, Visitor

from corral.protocols.graphql.source.json_types import leaf_schema, wrapped
from corral.protocols.graphql.source.schema import Field, Schema, TypeDef, TypeRef
from corral.types import JsonSchema

_MAX_TOKENS = 2_000
_MAX_FRAGMENTS = 8
"""Maximum number of a union's or an interface's types that are distinguished."""
_LEAST_NESTED = 3
_TELLING = (
    "id", "name", "title", "login", "slug", "key", "code", "number", "state", "status", "type", "url", "email", "value",
)  # fmt: skip
"""The most informative leaves of a nested object, best first."""
_PAGES = frozenset({"nodes", "edges", "node", "pageInfo", "items"})
"""Parts of a page, which do not count as levels."""
_PAGE_ARGUMENTS = frozenset({"first", "last", "limit", "after", "before", "offset"})


class InvalidSelection(ValueError):
    """A text is not a selection set."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of a selection set that is chosen for a tool."""

    levels: int
    fields: int


@dataclass(slots=True)
class Selection:
    """Selected fields of one type."""

    type: TypeDef
    leaves: dict[str, tuple[str, Field]] = field(default_factory=dict[str, "tuple[str, Field]"])
    """Fields without parts, with their texts, by the key in the result."""
    parts: dict[str, tuple[Field, Selection]] = field(default_factory=dict[str, "tuple[Field, Selection]"])
    fragments: dict[str, Selection] = field(default_factory=dict[str, "Selection"])
    """Selections of its possible types."""

    @property
    def is_abstract(self) -> bool:
        return self.type.kind in ("INTERFACE", "UNION")

    @property
    def is_empty(self) -> bool:
        return not (self.leaves or self.parts or any(inner.leaves for inner in self.fragments.values()))

    def text(self) -> str:
        """Writes the selection set, with its braces."""
        written = ["__typename"] if self.is_abstract else []
        written += [text for text, _ in self.leaves.values()]
        written += [f"{key} {inner.text()}" for key, (_, inner) in self.parts.items()]
        written += [f"... on {name} {inner.text()}" for name, inner in self.fragments.items() if inner.leaves]
        return f"{{ {' '.join(written)} }}"

    def schema(self, schema: Schema, scalars: Mapping[str, JsonSchema]) -> JsonSchema:
        """Returns the JSON Schema of a value."""
        own = self.properties(schema, scalars)
        if not self.is_abstract:
            return _object(self.type.name, own)
        base = _object(self.type.name, {"__typename": {"type": "string"}, **own})
        kinds = [
            _object(name, {"__typename": {"const": name}, **own, **inner.properties(schema, scalars)})
            for name, inner in self.fragments.items()
        ]
        complete = set(self.type.possible) <= self.fragments.keys()
        options = kinds if kinds and complete else [*kinds, base]
        return options[0] if len(options) == 1 else {"anyOf": options}

    def properties(self, schema: Schema, scalars: Mapping[str, JsonSchema]) -> dict[str, JsonSchema]:
        members = {
            key: _described(each, wrapped(each.type, leaf_schema(schema, each.type.name, scalars)))
            for key, (_, each) in self.leaves.items()
        }
        for key, (each, inner) in self.parts.items():
            members[key] = _described(each, wrapped(each.type, inner.schema(schema, scalars)))
        return members


def select(schema: Schema, reference: TypeRef, budget: Budget) -> Selection | None:
    """Chooses the selection set of a result, level by level; None for a scalar, or a type without such fields."""
    root = schema.named(reference)
    if root is None or root.is_leaf or root.kind == "INPUT_OBJECT":
        return None
    chosen = Selection(root)
    left = budget.fields
    waiting = deque([(chosen, 0, frozenset({root.name}))])
    while waiting and left > 0:
        selection, depth, above = waiting.popleft()
        parts = list(_parts(schema, selection.type))
        most = max(_LEAST_NESTED, left // (len(waiting) + 1)) if depth else left
        if parts and budget.levels and depth == 0:
            most = max(1, most * 4 // 5)
        left -= _take_leaves(schema, selection, most)
        for each, inner in parts:
            deeper = depth + (each.name not in _PAGES)
            if deeper <= budget.levels and inner.name not in above:
                part = Selection(inner)
                selection.parts[each.name] = each, part
                waiting.append((part, deeper, above | {inner.name}))
    _drop_empty(chosen)
    if chosen.is_empty and not chosen.is_abstract:
        chosen.leaves["__typename"] = ("__typename", Field("__typename", TypeRef("String", "!"), "", None, ()))
    return chosen


def further_fields(text: str) -> str:
    """Returns fields to add to a selection set, without the surrounding braces.

    Raises:
        InvalidSelection: the text contains anything but fields and inline fragments.
    """
    text = text.strip()
    try:
        document = parse(text if text.startswith("{") else f"{{ {text} }}", no_location=True, max_tokens=_MAX_TOKENS)
    except GraphQLError as error:
        raise InvalidSelection(error.message) from None
    [operation, *others] = document.definitions
    if (
        others
        or not isinstance(operation, OperationDefinitionNode)
        or operation.operation is not OperationType.QUERY
        or operation.name is not None
        or operation.variable_definitions
        or operation.directives
    ):
        raise InvalidSelection("only fields and inline fragments can be selected")

    class Refuse(Visitor):
        def enter_variable(self, _node: VariableNode, *_: Any) -> None:
            raise InvalidSelection("variables cannot be used; write literal values")

        def enter_fragment_spread(self, _node: FragmentSpreadNode, *_: Any) -> None:
            raise InvalidSelection("named fragments cannot be used; write `... on Type { }`")

    visit(operation, Refuse())
    return print_ast(operation.selection_set).removeprefix("{").removesuffix("}").strip()


def _take_leaves(schema: Schema, selection: Selection, most: int) -> int:
    """Selects leaves of a type, the best first if there are too many; returns their number."""
    own = _leaves(schema, selection.type, most)
    for each in own:
        selection.leaves[each.name] = each.name, each
    taken = len(own)
    if not selection.is_abstract:
        return taken
    kinds = [schema.types[name] for name in selection.type.possible if name in schema.types]
    if len(kinds) > _MAX_FRAGMENTS:
        return taken
    seen = {each.name: str(each.type) for each in own}
    for kind in kinds:
        inner = selection.fragments[kind.name] = Selection(kind)
        for each in _leaves(schema, kind, max(_LEAST_NESTED, (most - len(own)) // len(kinds))):
            if each.name in selection.leaves:
                continue
            alike = seen.setdefault(each.name, str(each.type)) == str(each.type)
            key = each.name if alike else f"{each.name}_{kind.name}"  # fields with one key must have one type
            inner.leaves[key] = each.name if alike else f"{key}: {each.name}", each
        taken += len(inner.leaves)
    return taken


def _leaves(schema: Schema, kind: TypeDef, most: int) -> list[Field]:
    """Returns fields without parts that need no arguments and are not deprecated, in the order of the schema."""
    leaves = [
        each
        for each in kind.fields.values()
        if each.deprecated is None
        and not each.needs_arguments
        and (named := schema.named(each.type)) is not None
        and named.is_leaf
    ]
    if len(leaves) <= most:
        return leaves
    best = sorted(leaves, key=lambda each: _TELLING.index(each.name) if each.name in _TELLING else len(_TELLING))[:most]
    return [each for each in leaves if each in best]


def _parts(schema: Schema, kind: TypeDef) -> Iterator[tuple[Field, TypeDef]]:
    """Yields fields with parts. Pages within an object are omitted: each costs the service a query."""
    if kind.kind == "UNION":
        return
    fields = kind.fields
    for each in fields.values():
        named = schema.named(each.type)
        if each.deprecated is not None or each.needs_arguments or named is None or named.is_leaf:
            continue
        if named.kind == "INPUT_OBJECT" or any(argument.name in _PAGE_ARGUMENTS for argument in each.arguments):
            continue
        if each.name == "edges" and "nodes" in fields:
            continue
        yield each, named


def _drop_empty(selection: Selection) -> None:
    for key, (_, inner) in list(selection.parts.items()):
        _drop_empty(inner)
        if inner.is_empty:
            del selection.parts[key]


def _object(title: str, properties: Mapping[str, JsonSchema]) -> JsonSchema:
    return {"type": "object", "title": title, "properties": dict(properties), "required": list(properties)}


def _described(each: Field, schema: JsonSchema) -> JsonSchema:
    return {**schema, "description": each.description} if each.description else schema
