"""GraphQL schema of tools: queries for read-only ones, mutations for others, subscriptions for streams."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from graphql import (
    DocumentNode,
    ExecutionResult,
    GraphQLArgument,
    GraphQLField,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLResolveInfo,
    GraphQLSchema,
    GraphQLString,
    execute,  # pyright: ignore[reportUnknownVariableType]
    print_schema,
)

from corral.protocols.graphql.bridge.names import distinct_names, type_name
from corral.protocols.graphql.bridge.scalars import BIG_INT, JSON
from corral.protocols.graphql.bridge.types import InputTypes, OutputTypes, TypeNames
from corral.tools import Tool
from corral.types import ToolName

CALL_FIELD = "callTool"
CALLS_FIELD = "_calls"
Info: TypeAlias = GraphQLResolveInfo[Any]
_RESERVED = frozenset({CALL_FIELD, CALLS_FIELD})


class StreamedCall(NamedTuple):
    """Call that a subscription asks for."""

    tool: str | None
    """None for calls in `input`, in the form of `_calls`."""
    input: object


class Caller(Protocol):
    """Context of an operation: makes the calls of its fields."""

    asked: StreamedCall | None
    """Call that a subscription asks for, when it is executed without a source."""

    async def call(self, tool: str, input: object) -> object:
        """Calls a tool and returns its result as plain JSON data. Raises GraphQLError."""
        ...

    async def query(self, tool: str, input: object) -> object:
        """As `call`, for tools that are read-only. Raises GraphQLError for others."""
        ...

    async def call_many(self, calls: object) -> object:
        """Makes calls at the same time and returns their lines. Raises GraphQLError."""
        ...


class ToolSchema:
    """Schema of one set of tools, with its documents that were validated lately."""

    def __init__(self, schema: GraphQLSchema, namespaces: frozenset[str], tools: int) -> None:
        self.schema = schema
        self.namespaces = namespaces
        """Fields that are no calls, but have fields that are."""
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
    """Makes the schema of these tools. A field has the name of its tool, within one of its namespace."""
    names = TypeNames()
    queries = _Fields("Query", names)
    mutations = _Fields("Mutation", names)
    subscriptions = _Fields("Subscription", names)
    for name, tool in tools.items():
        (queries if tool.read_only else mutations).add(name, _field(name, tool, names))
        if tool.stream:
            subscriptions.add(name, _subscription(name, tool, names))
    queries.add_generic(CALL_FIELD, _generic("Calls a read-only tool by its name.", _query_any))
    mutations.add_generic(CALL_FIELD, _generic("Calls any tool by its name.", _call_any))
    mutations.add_generic(CALLS_FIELD, _calls(_call_many))
    subscriptions.add_generic(CALLS_FIELD, _calls(_streamed_calls))
    schema = GraphQLSchema(
        query=queries.type(),
        mutation=mutations.type(),
        subscription=subscriptions.flat_type(),
        types=[JSON, BIG_INT],
        assume_valid=True,  # validation takes as long as all else
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
        """Makes the type, in which a namespace is an object."""
        fields = dict(self._spaces[None])
        for space, members in self._spaces.items():
            if space is not None:
                name = self._names.free(type_name(space) + self._root)
                kind = GraphQLObjectType(name, _named(members))
                fields[space] = GraphQLField(GraphQLNonNull(kind), resolve=_namespace)
        self.namespaces = frozenset(
            new for old, new in distinct_names(fields, _RESERVED).items() if old in self._spaces
        )
        return GraphQLObjectType(self._root, self._generic | _named(fields))

    def flat_type(self) -> GraphQLObjectType:
        """Makes the type of subscriptions, which have one field: a namespace is the start of its name."""
        fields = {
            name if space is None else f"{space}_{name}": field
            for space, members in self._spaces.items()
            for name, field in members.items()
        }
        return GraphQLObjectType(self._root, self._generic | _named(fields))


def _named(fields: Mapping[str, GraphQLField]) -> dict[str, GraphQLField]:
    return {new: fields[old] for old, new in distinct_names(fields, _RESERVED).items()}


def _field(name: ToolName, tool: Tool, names: TypeNames) -> GraphQLField:
    path = str(name)
    output = _output(name, tool, names)
    arguments, whole = _arguments(name, tool, names)

    def resolve(_source: object, info: Info, **given: object) -> Awaitable[object]:
        return info.context.call(path, given.get("input", {}) if whole else given)

    kind = GraphQLList(output) if tool.stream else output
    return GraphQLField(kind, arguments, resolve, description=tool.description or None)


def _subscription(name: ToolName, tool: Tool, names: TypeNames) -> GraphQLField:
    path = str(name)
    arguments, whole = _arguments(name, tool, names)

    def resolve(source: tuple[object] | None, info: Info, **given: object) -> object:
        return _item(source, info, StreamedCall(path, given.get("input", {}) if whole else given))

    return GraphQLField(_output(name, tool, names), arguments, resolve, description=tool.description or None)


def _output(name: ToolName, tool: Tool, names: TypeNames) -> Any:
    """Returns the type of results. It may be null, so that a call that fails leaves the results of others."""
    return OutputTypes(names, tool.output_schema).root(f"{type_name(name.name)}Result")


def _arguments(name: ToolName, tool: Tool, names: TypeNames) -> tuple[dict[str, GraphQLArgument], bool]:
    """Returns the arguments of a field; True if there is one, `input`, for an input without listed properties."""
    found = InputTypes(names, tool.input_schema).arguments(type_name(name.name))
    return ({"input": GraphQLArgument(JSON)}, True) if found is None else (found, False)


def _generic(description: str, resolve: Callable[..., Awaitable[object]]) -> GraphQLField:
    arguments = {"name": GraphQLArgument(GraphQLNonNull(GraphQLString)), "input": GraphQLArgument(JSON)}
    return GraphQLField(JSON, arguments, resolve, description=description)


def _calls(resolve: Callable[..., object]) -> GraphQLField:
    description = "Calls of corral's own runtimes, whose values have tags where JSON would lose something."
    arguments = {"calls": GraphQLArgument(GraphQLNonNull(GraphQLList(GraphQLNonNull(JSON))))}
    return GraphQLField(JSON, arguments, resolve, description=description)


def _namespace(_source: object, _info: Info) -> object:
    return {}


def _item(source: tuple[object] | None, info: Info, call: StreamedCall) -> object:
    """Resolves the field of a subscription: the source is an item; without one, it asks for the call."""
    if source is not None:
        return source[0]
    info.context.asked = call
    return None


def _query_any(_source: object, info: Info, name: str, input: object = None) -> Awaitable[object]:
    return info.context.query(name, {} if input is None else input)


def _call_any(_source: object, info: Info, name: str, input: object = None) -> Awaitable[object]:
    return info.context.call(name, {} if input is None else input)


def _call_many(_source: object, info: Info, calls: object) -> Awaitable[object]:
    return info.context.call_many(calls)


def _streamed_calls(source: tuple[object] | None, info: Info, calls: object) -> object:
    return _item(source, info, StreamedCall(None, calls))
