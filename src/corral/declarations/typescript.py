"""Tools as TypeScript declarations: what a model reads, and what its program is checked against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, count, groupby
from typing import NamedTuple, Protocol

from corral.declarations.definitions import Definitions
from corral.declarations.documents import Document, mapping
from corral.declarations.jsdoc import comment
from corral.declarations.names import property_key
from corral.declarations.printing import indented, type_expression
from corral.declarations.reader import Reader
from corral.declarations.shapes import (
    UNKNOWN,
    Array,
    Definition,
    Doc,
    Intersection,
    Object,
    Reference,
    Shape,
    Union,
)
from corral.declarations.traits import traits
from corral.types import JsonSchema, ToolName

__all__ = ["ToolShape", "declare_typescript"]


class ToolShape(Protocol):
    """What a declaration needs of a tool. A schema of None says nothing: the type is `unknown`. `needs_approval` is a
    bool, or something else if it depends on the input."""

    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> JsonSchema | None: ...
    @property
    def output_schema(self) -> JsonSchema | None: ...
    @property
    def needs_approval(self) -> object: ...


def declare_typescript(tools: Mapping[ToolName, ToolShape]) -> str:
    """Declares `tools`, its alias `codemode`, and a type for each definition that the schemas refer to.

    The text is the same whatever the order of the tools. It never throws: what a type cannot express is widened, up
    to `unknown`, and whatever the texts and names in the schemas contain stays a text or a name.
    """
    definitions = Definitions()
    order = sorted(tools, key=lambda name: (name.namespace or "", name.name))
    shapes = {name: _Shapes.of(name, tools[name], definitions) for name in order}
    names = _name_all(shapes.values())
    types = [
        f"{comment(definition.doc)}type {name} = {type_expression(definition.shape or UNKNOWN, names)};\n"
        for definition, name in sorted(names.items(), key=lambda item: item[1])
    ]
    methods = {name: _method(name.name, tools[name], shapes[name], names) for name in order}
    return "".join((*types, f"declare const tools: {_tree(methods)};\n", "declare const codemode: typeof tools;\n"))


class _Shapes(NamedTuple):
    input: Shape
    output: Shape

    @classmethod
    def of(cls, name: ToolName, tool: ToolShape, definitions: Definitions) -> _Shapes:
        def read(schema: JsonSchema | None, role: str) -> Shape:
            if schema is None:
                return UNKNOWN
            return Reader(Document(schema), root_name=f"{name.name}-{role}", definitions=definitions).read_root()

        return cls(read(tool.input_schema, "input"), read(tool.output_schema, "output"))


def _name_all(shapes: Iterable[_Shapes]) -> dict[Definition, str]:
    """A distinct type name for each definition that is mentioned. Namesakes are told apart by `Output`, or a number."""
    names: dict[Definition, str] = {}
    taken: set[str] = set()
    for pair in shapes:
        for role, root in (("Input", pair.input), ("Output", pair.output)):
            waiting = [root]
            while waiting:
                shape = waiting.pop()
                waiting += reversed(_parts(shape))
                if isinstance(shape, Reference) and shape.definition not in names:
                    definition = shape.definition
                    base = definition.base_name
                    candidates = chain((base, f"{base}{role}"), (f"{base}{number}" for number in count(2)))
                    names[definition] = next(name for name in candidates if name not in taken)
                    taken.add(names[definition])
                    waiting.append(definition.shape or UNKNOWN)
    return names


def _parts(shape: Shape) -> list[Shape]:
    match shape:
        case Union(members=members) | Intersection(members=members):
            return list(members)
        case Array(prefix=prefix, rest=rest):
            return [*prefix, *(() if rest is None else (rest,))]
        case Object(properties=properties, patterns=patterns, additional=additional):
            others = [value for _, value in patterns]
            return [*(each.shape for each in properties), *others, *(() if additional is None else (additional,))]
        case _:
            return []


def _method(name: str, tool: ToolShape, shapes: _Shapes, names: Mapping[Definition, str]) -> str:
    returns = mapping(tool.output_schema).get("description")
    tags = [("returns", returns)] if isinstance(returns, str) and not isinstance(shapes.output, Reference) else []
    if tool.needs_approval is not False:
        tags.append(("approval", "required" if tool.needs_approval is True else "depends on the input"))
    optional = "?" if traits(shapes.input).accepts_empty else ""
    types = [type_expression(shape, names) for shape in shapes]
    described = comment(Doc(tool.description, tuple(tags)))
    return f"{described}{property_key(name)}(input{optional}: {types[0]}): Promise<{types[1]}>;"


def _tree(methods: Mapping[ToolName, str]) -> str:
    """The type of `tools`: methods without a namespace first, then an object for each namespace."""
    entries: list[str] = []
    for namespace, group in groupby(methods.items(), key=lambda item: item[0].namespace):
        members = [method for _, method in group]
        entries += members if namespace is None else [f"{property_key(namespace)}: {_block(members)};"]
    return _block(entries)


def _block(entries: list[str]) -> str:
    return "\n".join(("{", *map(indented, entries), "}")) if entries else "{}"
