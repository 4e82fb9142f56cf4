"""Signatures, from which all declarations are printed: shapes of inputs and outputs, and type names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, count
from typing import NamedTuple, Protocol
from unicodedata import normalize

from corral.model.shapes.definitions import Definitions
from corral.model.shapes.descriptions import examples
from corral.model.shapes.reader import Reader
from corral.model.shapes.shape import ANY_OBJECT, NEVER, UNKNOWN, Definition, Doc, Object, Shape, TypeReference
from corral.model.shapes.traits import parts_of, traits
from corral.model.shapes.type_systems import TypeSystem
from corral.tools.json_schema.keywords import mapping
from corral.tools.rates import RateLimit
from corral.types import JsonSchema, ToolName

RETURNS = "Returns"


class ToolShape(Protocol):
    """Attributes of a tool that a declaration needs. A schema of None means that the type is unknown.

    `needs_approval` is a bool, or any other value if it depends on the input. The output of a `stream` is one item. A
    tool that `returns_bytes` returns bytes where its output schema has `format: binary`; other tools can return strings
    there.
    """

    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> JsonSchema | None: ...
    @property
    def output_schema(self) -> JsonSchema | None: ...
    @property
    def needs_approval(self) -> object: ...
    @property
    def stream(self) -> bool: ...
    @property
    def rate_limit(self) -> RateLimit | None: ...
    @property
    def returns_bytes(self) -> bool: ...
    @property
    def policy(self) -> str: ...


class ToolOutline(NamedTuple):
    """A standalone implementation of `ToolShape`."""

    description: str
    input_schema: JsonSchema | None
    output_schema: JsonSchema | None
    needs_approval: object
    stream: bool
    rate_limit: RateLimit | None = None
    returns_bytes: bool = False
    policy: str = ""

    @classmethod
    def of(cls, tool: ToolShape) -> ToolOutline:
        return cls(*(getattr(tool, name) for name in cls._fields))


class Signature(NamedTuple):
    input: Shape
    output: Shape
    doc: Doc
    """Description of the tool. Its tags get separate lines."""
    omissible: bool | None = None
    """True if a call can omit the input; None if that depends on the shape."""
    is_empty: bool = False
    """True if no members are announced, so calls are written without input."""
    inline_input: bool = False
    """True if objects in the input are always spelt out, even if the language has no types for that."""
    inline_output: bool = False
    is_elided: bool = False
    """True if the input has further members."""
    is_stream: bool = False
    """True if a call returns a stream. The output is then the type of one item."""

    @property
    def needs_input(self) -> bool:
        return not (traits(self.input).accepts_empty if self.omissible is None else self.omissible)


def in_order(names: Iterable[ToolName]) -> list[ToolName]:
    """Sorts tools for declaration: those without a namespace first, then by namespace."""
    return sorted(names, key=lambda name: (name.namespace or "", name.name))


def read_signatures(tools: Mapping[ToolName, ToolShape], language: TypeSystem) -> dict[ToolName, Signature]:
    definitions = Definitions()
    return {name: read_signature(name, tools[name], language, definitions) for name in in_order(tools)}


def read_signature(name: ToolName, tool: ToolShape, language: TypeSystem, definitions: Definitions) -> Signature:
    """Reads the signature of a tool, which can refer to definitions of other tools."""

    def read(schema: JsonSchema | None, root_name: str, *, returns_bytes: bool = False) -> Shape:
        if schema is None:
            return UNKNOWN
        document, root = definitions.shared_documents.document(schema)
        reader = Reader(
            document, root_name=root_name, definitions=definitions, language=language, returns_bytes=returns_bytes
        )
        return reader.read_root(root)

    input = read(tool.input_schema, f"{name.name}-input")
    returned = read(tool.output_schema, f"{name.name}-output", returns_bytes=tool.returns_bytes)
    return Signature(
        input, returned, _doc(tool, returned), is_empty=_is_empty(tool.input_schema, input), is_stream=tool.stream
    )


class TypeNames:
    """Makes distinct names. Names that are equal after NFKC count as the same, as in Python."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: defaultdict[str, Iterator[int]] = defaultdict(partial(count, 2))

    def pick(self, *candidates: str) -> str:
        """Returns the first candidate that is free or, if all are taken, the first one with a number."""
        base = candidates[0]
        numbered = (f"{base}{number}" for number in self._numbers[base])
        name = next(each for each in chain(candidates, numbered) if normalize("NFKC", each) not in self._taken)
        self._taken.add(normalize("NFKC", name))
        return name


def name_definitions(signatures: Iterable[Signature], type_names: TypeNames) -> dict[Definition, str]:
    """Names each definition that is mentioned. Duplicates get the suffix `Output`, or a number."""
    names: dict[Definition, str] = {}
    roots = chain.from_iterable((("Input", each.input), ("Output", each.output)) for each in signatures)
    for role, root in roots:
        waiting = [root]
        while waiting:
            shape = waiting.pop()
            waiting += reversed(parts_of(shape))
            if isinstance(shape, TypeReference) and shape.definition not in names:
                definition = shape.definition
                names[definition] = type_names.pick(definition.base_name, f"{definition.base_name}{role}")
                waiting.append(definition.shape or UNKNOWN)
    return names


def _is_empty(schema: JsonSchema | None, input: Shape) -> bool:
    closed = input == Object(additional=NEVER)
    return closed or (input == ANY_OBJECT and mapping(schema).get("properties") == {})


def _doc(tool: ToolShape, output: Shape) -> Doc:
    returns = mapping(tool.output_schema).get("description")
    tags = [(RETURNS, returns)] if isinstance(returns, str) and not isinstance(output, TypeReference) else []
    samples = examples(tool.input_schema)
    if samples:
        tags.insert(0, ("E.g.", samples))
    if tool.needs_approval is not False:
        tags.append(("Approval", "required; calls wait" if tool.needs_approval is True else "depends on the input"))
    if tool.policy:
        tags.append(("Policy", tool.policy))
    if isinstance(tool.rate_limit, str):
        tags.append(("Rate limit", tool.rate_limit))
    elif tool.rate_limit:
        tags.append(("Rate limit", ", ".join(f"{rate} per {scope}" for scope, rate in tool.rate_limit.items())))
    return Doc(tool.description, tuple(tags))
