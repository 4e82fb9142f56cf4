"""GraphQL schema of tools: queries for read-only ones, mutations for others, subscriptions for streams."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from graphql import (
    DocumentNode,
    ExecutionResult,
    GraphQLArgument,
    GraphQLBoolean,
    GraphQLEnumType,
    GraphQLError,
    GraphQLField,
    GraphQLFloat,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLInt,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLResolveInfo,
    GraphQLScalarType,
    GraphQLSchema,
    GraphQLString,
    IntValueNode,
    StringValueNode,
    ValueNode,
    execute,  # pyright: ignore[reportUnknownVariableType]
    print_schema,
)

from corral.tools import Tool
from corral.tools.json_schema.keywords import is_null, listing, mapping, resolved
from corral.types import JsonSchema, ToolName

# --- names --------------------------------------------------------------------------------------------------

_NAME = re.compile(r"(?!__)[_A-Za-z][_0-9A-Za-z]*")
_OTHER = re.compile(r"[^_0-9A-Za-z]")
_MOST_CHARACTERS = 100


@lru_cache(maxsize=4_096)
def is_name(text: str) -> bool:
    return len(text) <= _MOST_CHARACTERS and _NAME.fullmatch(text) is not None


def _distinct_names(names: Iterable[str], reserved: Collection[str] = ()) -> dict[str, str]:
    """Maps each name to one that GraphQL allows: itself, or a similar one with a hash of the original."""
    originals = list(names)
    distinct = {name: name for name in originals if name not in reserved and is_name(name)}
    for name in originals:
        if name not in distinct:
            digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
            similar = _OTHER.sub("_", name).strip("_")[: _MOST_CHARACTERS - 10]
            distinct[name] = (
                f"{similar}_{digest}" if similar[:1].isalpha() else f"_{similar}_{digest}".replace("__", "_")
            )
    return distinct


@lru_cache(maxsize=4_096)
def type_name(text: str) -> str:
    """Makes a name for a type: `foo-bar` becomes `FooBar`."""
    joined = "".join(word[:1].upper() + word[1:] for word in _OTHER.sub(" ", text).replace("_", " ").split())
    joined = joined[:_MOST_CHARACTERS]
    return joined if joined[:1].isalpha() else f"Type{joined}"


# --- scalars that GraphQL itself does not have --------------------------------------------------------------

_SAFE_INTEGER = 2**53 - 1
_MOST_DIGITS = 4_300


def _integer(value: Any) -> int:
    match value:
        case bool():
            pass
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str() if len(value) <= _MOST_DIGITS and value.removeprefix("-").isdecimal():
            return int(value)
        case _:
            pass
    raise GraphQLError(f"BigInt cannot represent {str(value)[:50]!r}: it is not an integer")


def _integer_literal(node: ValueNode) -> int:
    if isinstance(node, IntValueNode | StringValueNode):
        return _integer(node.value)
    raise GraphQLError("BigInt takes an integer, or a string of its digits", node)


def _integer_output(value: Any) -> int | str:
    number = _integer(value)
    return number if -_SAFE_INTEGER <= number <= _SAFE_INTEGER else str(number)


_BIG_INT = GraphQLScalarType(
    "BigInt",
    description="Integer of any size. In results it is a number up to 2^53 - 1, and a string beyond.",
    coerce_output_value=_integer_output,
    coerce_input_value=_integer,
    coerce_input_literal=_integer_literal,
)
JSON = GraphQLScalarType("JSON", description="Any JSON value.")


# --- types --------------------------------------------------------------------------------------------------

_MOST_LEVELS = 20
_INT = 2**31
_NOT_ENUM = frozenset({"true", "false", "null"})
_MOST_DESCRIPTION = 2_000
_COMBINING = frozenset({"allOf", "not", "if", "dependentSchemas", "patternProperties", "propertyNames"})

_SPECIAL = frozenset({"$ref", "allOf", "anyOf", "enum", "oneOf"})
"""Keywords that refine `type`."""

Wrapped: TypeAlias = Any
"""GraphQL type, possibly within lists and `NonNull`, which graphql-core's generics cannot express."""
_ObjectType = TypeVar("_ObjectType", GraphQLObjectType, GraphQLInputObjectType)


class _FieldType(NamedTuple):
    type: Wrapped
    nullable: bool = False


_SCALARS = {
    "number": _FieldType(GraphQLFloat),
    "string": _FieldType(GraphQLString),
    "boolean": _FieldType(GraphQLBoolean),
}


class _Member(NamedTuple):
    name: str
    original: str
    type: Wrapped
    description: str | None


class TypeNames:
    """Names of all types of one GraphQL schema. Types with the same name and members are the same type."""

    def __init__(self, *taken: str) -> None:
        self._taken = {"Query", "Mutation", "Subscription", "String", "Int", "Float", "Boolean", "ID", "JSON", "BigInt"}
        self._taken.update(taken)
        self._made: dict[object, Wrapped] = {}
        self._numbers: Counter[str] = Counter()

    def shared(self, name: str, key: object, make: Callable[[str], Wrapped]) -> Wrapped:
        """Returns the type for this name and key, or makes it under a free name."""
        shared_type = self._made.get((name, key))
        if shared_type is None:
            shared_type = self._made[name, key] = make(self.free(name))
        return shared_type

    def free(self, base: str) -> str:
        """Takes the name, or the name with a number."""
        name = base
        while name in self._taken:
            self._numbers[base] += 1
            name = f"{base}{self._numbers[base] + 1}"
        self._taken.add(name)
        return name


class _Types(Generic[_ObjectType]):
    """Makes the types of one document, which is a JSON Schema with its own definitions."""

    suffix = ""

    def __init__(self, names: TypeNames, document: JsonSchema | None) -> None:
        self._names = names
        self._document = document or {}
        self._within: set[str] = set()
        """References that are being followed. A circular one becomes `JSON`."""
        self._known: dict[str, _FieldType] = {}

    def root(self, name: str) -> Wrapped:
        """Returns the type of the whole document, which can be null."""
        return self._type(self._document, type_name(name), 0).type

    def _type(self, schema: object, hint: str, level: int) -> _FieldType:
        keywords = mapping(schema)
        if not keywords or level > _MOST_LEVELS:
            return _FieldType(JSON, nullable=True)
        if type(keywords.get("type")) is str and _SPECIAL.isdisjoint(keywords):  # most documents
            return self._typed(keywords, hint, level)
        match keywords:
            case {"$ref": str(reference)}:
                return self._referred(reference, level)
            case {"anyOf": options} | {"oneOf": options} if "properties" not in keywords:
                return self._alternatives(listing(options), hint, level)
            case {"allOf": parts} if len(listing(parts)) == 1 and not keywords.keys() & {"type", "properties"}:
                return self._type(listing(parts)[0], hint, level + 1)
            case {"enum": values}:
                return self._enum(keywords, listing(values), hint)
            case {"type": str()}:
                return self._typed(keywords, hint, level)
            case {"type": kinds}:
                return self._alternatives([{**keywords, "type": kind} for kind in listing(kinds)], hint, level)
            case {"const": value}:
                return self._constant(value)
            case {"properties": _}:
                return _FieldType(self._object(keywords, hint, level))
            case _:
                return _FieldType(JSON, nullable=True)

    def _typed(self, keywords: JsonSchema, hint: str, level: int) -> _FieldType:
        kind = keywords["type"]
        if (scalar := _SCALARS.get(cast("str", kind))) is not None:
            return scalar
        match kind:
            case "array":
                return self._array(keywords, hint, level)
            case "object":
                return _FieldType(self._object(keywords, hint, level))
            case "integer":
                return _FieldType(GraphQLInt if _fits_int(keywords) else _BIG_INT)
            case _:
                return _FieldType(JSON, nullable=True)

    def _referred(self, reference: str, level: int) -> _FieldType:
        if reference in self._within:
            return _FieldType(JSON, nullable=True)
        known = self._known.get(reference)
        if known is not None:
            return known
        self._within.add(reference)
        try:
            name = reference.rsplit("/", 1)[-1]
            typed = self._type(resolved(self._document, reference), type_name(name), level + 1)
        finally:
            self._within.discard(reference)
        self._known[reference] = typed
        return typed

    def _alternatives(self, options: list[object], hint: str, level: int) -> _FieldType:
        others = [option for option in options if not is_null(option)]
        typed = [self._type(option, hint, level + 1) for option in others]
        nullable = len(others) < len(options) or any(each.nullable for each in typed)
        kinds = {each.type for each in typed}
        if len(kinds) == 1:
            return _FieldType(typed[0].type, nullable)
        if kinds and kinds <= {_BIG_INT, GraphQLInt}:
            return _FieldType(_BIG_INT, nullable)
        if kinds and kinds <= {GraphQLFloat, GraphQLInt, _BIG_INT}:
            return _FieldType(GraphQLFloat, nullable)
        return _FieldType(JSON, nullable or not kinds)

    def _enum(self, keywords: JsonSchema, values: list[object], hint: str) -> _FieldType:
        texts = [value for value in values if isinstance(value, str)]
        nullable = None in values
        if len(texts) + nullable < len(values):
            return _FieldType(JSON, nullable)
        if not texts or not all(is_name(text) and text not in _NOT_ENUM for text in texts):
            return _FieldType(GraphQLString, nullable)
        title = keywords.get("title")
        base = type_name(title) if isinstance(title, str) else hint
        enum = self._names.shared(
            base,
            tuple(texts),
            lambda name: GraphQLEnumType(name, {text: text for text in texts}, description=_description(keywords)),
        )
        return _FieldType(enum, nullable)

    def _constant(self, value: object) -> _FieldType:
        match value:
            case str():
                return _FieldType(GraphQLString)
            case bool():
                return _FieldType(GraphQLBoolean)
            case int():
                return _FieldType(GraphQLInt if -_INT <= value < _INT else _BIG_INT)
            case None:
                return _FieldType(JSON, nullable=True)
            case _:
                return _FieldType(JSON)

    def _array(self, keywords: JsonSchema, hint: str, level: int) -> _FieldType:
        items = keywords.get("items")
        if keywords.get("prefixItems") or not isinstance(items, dict):
            return _FieldType(GraphQLList(JSON))
        item = self._type(cast("object", items), f"{hint}Item", level + 1)
        return _FieldType(GraphQLList(item.type if item.nullable else GraphQLNonNull(item.type)))

    def _object(self, keywords: JsonSchema, hint: str, level: int) -> Wrapped:
        title = keywords.get("title")
        base = type_name(title) if isinstance(title, str) else hint
        members = self.members(keywords, base, level)
        if members is None:
            return JSON
        base = base.removesuffix(self.suffix) + self.suffix
        key = tuple((each.name, each.original, str(each.type), each.description) for each in members)
        return self._names.shared(base, key, lambda name: self._make(name, members, _description(keywords)))

    def members(self, keywords: JsonSchema, hint: str, level: int) -> list[_Member] | None:
        """Returns the properties of an object; None if a type with only these would lose others."""
        properties = mapping(keywords.get("properties"))
        if not properties or keywords.get("additionalProperties") or keywords.keys() & _COMBINING:
            return None
        required = keywords.get("required")
        named = _distinct_names(properties)
        members: list[_Member] = []
        for original, schema in properties.items():
            typed = self._type(schema, hint + type_name(original), level + 1)
            needed = isinstance(required, list) and original in required and not typed.nullable
            kind = GraphQLNonNull(typed.type) if needed else typed.type
            members.append(_Member(named[original], original, kind, _description(mapping(schema))))
        return members

    def _make(self, name: str, members: list[_Member], description: str | None) -> _ObjectType:
        raise NotImplementedError


class _OutputTypes(_Types[GraphQLObjectType]):
    """Types of results."""

    def _make(self, name: str, members: list[_Member], description: str | None) -> GraphQLObjectType:
        fields = {
            each.name: GraphQLField(each.type, resolve=_property(each.original), description=each.description)
            for each in members
        }
        return GraphQLObjectType(name, fields, description=description)


class _InputTypes(_Types[GraphQLInputObjectType]):
    """Types of inputs, whose names end with `Input`."""

    suffix = "Input"

    def arguments(self, name: str) -> dict[str, GraphQLArgument] | None:
        """Returns the document's properties as arguments of a field; None if a call takes the input as one value."""
        document = self._document
        reference = document.get("$ref")
        if isinstance(reference, str):
            document = mapping(resolved(document, reference))
        if document.get("type") == "object" and not document.get("properties"):
            return None if document.get("additionalProperties", True) is not False else {}
        members = self.members(document, type_name(name), 0) if document.get("type") == "object" else None
        if members is None:
            return None
        return {
            each.name: GraphQLArgument(each.type, out_name=each.original, description=each.description)
            for each in members
        }

    def _make(self, name: str, members: list[_Member], description: str | None) -> GraphQLInputObjectType:
        fields = {
            each.name: GraphQLInputField(each.type, out_name=each.original, description=each.description)
            for each in members
        }
        return GraphQLInputObjectType(name, fields, description=description)


def _property(name: str) -> Callable[[Mapping[str, object], GraphQLResolveInfo[Any]], object]:
    def resolve(source: Mapping[str, object], _info: GraphQLResolveInfo[Any]) -> object:
        return source.get(name)

    return resolve


def _fits_int(keywords: JsonSchema) -> bool:
    least, most = keywords.get("minimum"), keywords.get("maximum")
    return isinstance(least, int | float) and isinstance(most, int | float) and least >= -_INT and most < _INT


def _description(keywords: Mapping[str, object]) -> str | None:
    text = keywords.get("description")
    return text[:_MOST_DESCRIPTION] if isinstance(text, str) and text else None


# --- the schema ---------------------------------------------------------------------------------------------

_CALL_FIELD = "callTool"
_CALLS_FIELD = "_calls"
Info: TypeAlias = GraphQLResolveInfo[Any]
_RESERVED = frozenset({_CALL_FIELD, _CALLS_FIELD})


class StreamedCall(NamedTuple):
    """Call that a subscription requests."""

    tool: str | None
    """Path of the tool; None if the calls are in `input`, in the form of `_calls`."""
    input: object


class Caller(Protocol):
    """Context of an operation: makes the calls of its fields."""

    requested: StreamedCall | None
    """Call that a subscription requests, when it is executed without a source."""

    async def call(self, tool: str, input: object) -> object:
        """Calls a tool and returns its result as plain JSON data. Raises GraphQLError."""
        ...

    async def query(self, tool: str, input: object) -> object:
        """Does the same as `call`, for read-only tools. Raises GraphQLError for others."""
        ...

    async def call_many(self, calls: object) -> object:
        """Makes calls concurrently and returns their lines. Raises GraphQLError."""
        ...


class ToolSchema:
    """Schema of one set of tools, and recently validated documents."""

    def __init__(self, schema: GraphQLSchema, namespaces: frozenset[str], tools: int) -> None:
        self.schema = schema
        self.namespaces = namespaces
        """Fields that contain calls but are not calls themselves."""
        self.documents: OrderedDict[str, DocumentNode] = OrderedDict()
        self.introspections: OrderedDict[tuple[object, ...], bytes] = OrderedDict()
        self.estimated_bytes = 50_000 + 20_000 * tools
        self.sdl: bytes | None = None

    def execute(
        self,
        document: DocumentNode,
        calls: Caller,
        *,
        variables: dict[str, Any] | None,
        operation: str | None,
        source: object = None,
    ) -> Awaitable[ExecutionResult] | ExecutionResult:
        """Executes an operation of a document. Errors are in the result."""
        return execute(
            self.schema,
            document,
            root_value=source,
            context_value=calls,
            variable_values=variables,
            operation_name=operation,
        )

    def to_sdl(self) -> bytes:
        """Prints the schema in GraphQL's schema definition language."""
        if self.sdl is None:
            self.sdl = (print_schema(self.schema) + "\n").encode()
        return self.sdl


def make_schema(tools: Mapping[ToolName, Tool]) -> ToolSchema:
    """Makes the schema of these tools. A field has the name of its tool, and is in the field of the tool's
    namespace."""
    names = TypeNames()
    queries = _Fields("Query", names)
    mutations = _Fields("Mutation", names)
    subscriptions = _Fields("Subscription", names)
    for name, tool in tools.items():
        (queries if tool.read_only else mutations).add(name, _field(name, tool, names))
        if tool.stream:
            subscriptions.add(name, _subscription(name, tool, names))
    queries.add_generic(_CALL_FIELD, _generic("Calls a read-only tool by its name.", _query_any))
    mutations.add_generic(_CALL_FIELD, _generic("Calls any tool by its name.", _call_any))
    mutations.add_generic(_CALLS_FIELD, _calls(_call_many))
    subscriptions.add_generic(_CALLS_FIELD, _calls(_streamed_calls))
    schema = GraphQLSchema(
        query=queries.type(),
        mutation=mutations.type(),
        subscription=subscriptions.flat_type(),
        types=[JSON, _BIG_INT],
        assume_valid=True,  # validation would take as long as everything else
    )
    return ToolSchema(schema, queries.namespaces | mutations.namespaces, len(tools))


class _Fields:
    """Fields of one kind of operation."""

    def __init__(self, root: str, names: TypeNames) -> None:
        self._root = root
        self._names = names
        self._spaces: defaultdict[str | None, dict[str, GraphQLField]] = defaultdict(dict)
        self._generic: dict[str, GraphQLField] = {}
        self.namespaces: frozenset[str] = frozenset()

    def add(self, name: ToolName, field: GraphQLField) -> None:
        self._spaces[name.namespace][name.name] = field

    def add_generic(self, name: str, field: GraphQLField) -> None:
        self._generic[name] = field

    def type(self) -> GraphQLObjectType:
        """Makes the type. A namespace is an object in it."""
        fields = dict(self._spaces[None])
        for space, members in self._spaces.items():
            if space is not None:
                name = self._names.free(type_name(space) + self._root)
                kind = GraphQLObjectType(name, _named(members))
                fields[space] = GraphQLField(GraphQLNonNull(kind), resolve=_namespace)
        self.namespaces = frozenset(
            new for old, new in _distinct_names(fields, _RESERVED).items() if old in self._spaces
        )
        return GraphQLObjectType(self._root, self._generic | _named(fields))

    def flat_type(self) -> GraphQLObjectType:
        """Makes the type of subscriptions, which can have only one field, so its name begins with the namespace."""
        fields = {
            name if space is None else f"{space}_{name}": field
            for space, members in self._spaces.items()
            for name, field in members.items()
        }
        return GraphQLObjectType(self._root, self._generic | _named(fields))


def _named(fields: Mapping[str, GraphQLField]) -> dict[str, GraphQLField]:
    return {new: fields[old] for old, new in _distinct_names(fields, _RESERVED).items()}


def _field(name: ToolName, tool: Tool, names: TypeNames) -> GraphQLField:
    path = str(name)
    output = _output(name, tool, names)
    arguments, whole = _arguments(name, tool, names)

    def resolve(_source: object, info: Info, **values: object) -> Awaitable[object]:
        return info.context.call(path, values.get("input", {}) if whole else values)

    kind = GraphQLList(output) if tool.stream else output
    return GraphQLField(kind, arguments, resolve, description=tool.description or None)


def _subscription(name: ToolName, tool: Tool, names: TypeNames) -> GraphQLField:
    path = str(name)
    arguments, whole = _arguments(name, tool, names)

    def resolve(source: tuple[object] | None, info: Info, **values: object) -> object:
        return _item(source, info, StreamedCall(path, values.get("input", {}) if whole else values))

    return GraphQLField(_output(name, tool, names), arguments, resolve, description=tool.description or None)


def _output(name: ToolName, tool: Tool, names: TypeNames) -> Any:
    """Returns the type of results. It is nullable, so that a failed call does not remove the results of others."""
    return _OutputTypes(names, tool.output_schema).root(f"{type_name(name.name)}Result")


def _arguments(name: ToolName, tool: Tool, names: TypeNames) -> tuple[dict[str, GraphQLArgument], bool]:
    """Returns the arguments of a field, and True if `input` is the only one because the input has no listed
    properties."""
    arguments = _InputTypes(names, tool.input_schema).arguments(type_name(name.name))
    return ({"input": GraphQLArgument(JSON)}, True) if arguments is None else (arguments, False)


def _generic(description: str, resolve: Callable[..., Awaitable[object]]) -> GraphQLField:
    arguments = {"name": GraphQLArgument(GraphQLNonNull(GraphQLString)), "input": GraphQLArgument(JSON)}
    return GraphQLField(JSON, arguments, resolve, description=description)


def _calls(resolve: Callable[..., object]) -> GraphQLField:
    description = "Calls of corral's own runtimes. Values are tagged if JSON cannot express them."
    arguments = {"calls": GraphQLArgument(GraphQLNonNull(GraphQLList(GraphQLNonNull(JSON))))}
    return GraphQLField(JSON, arguments, resolve, description=description)


def _namespace(_source: object, _info: Info) -> object:
    return {}


def _item(source: tuple[object] | None, info: Info, call: StreamedCall) -> object:
    """Resolves the field of a subscription. The source is an item; without a source, the field requests the call."""
    if source is not None:
        return source[0]
    info.context.requested = call
    return None


def _query_any(_source: object, info: Info, name: str, input: object = None) -> Awaitable[object]:
    return info.context.query(name, {} if input is None else input)


def _call_any(_source: object, info: Info, name: str, input: object = None) -> Awaitable[object]:
    return info.context.call(name, {} if input is None else input)


def _call_many(_source: object, info: Info, calls: object) -> Awaitable[object]:
    return info.context.call_many(calls)


def _streamed_calls(source: tuple[object] | None, info: Info, calls: object) -> object:
    return _item(source, info, StreamedCall(None, calls))
