"""`GraphqlApi`: queries and mutations of a GraphQL service as a source of tools. Needs the extra `graphql`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from pydantic_core import from_json, to_json
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.cached_property import cached_property
from corral.concurrency.threads import run_in_own_thread
from corral.errors import ConfigError, EgressBlocked, ToolError, requires_extra
from corral.logs import get_logger
from corral.protocols.graphql.service_schema import (
    INTROSPECTION,
    SCALARS,
    Field,
    InputSchemas,
    Schema,
    TypeDef,
    TypeRef,
    leaf_schema,
    read_schema,
    wrapped,
)
from corral.rendering.masking import Mask
from corral.sources.opening import RemoteSource, asked, credential_of
from corral.tools import Approval, Offer, Tool, ToolCall
from corral.tools.json_schema.keywords import listing, mapping
from corral.tools.names import RESERVED_ROOT_NAMES
from corral.tools.tool import OutputValidation
from corral.types import ExecutionContext, JsonSchema

with requires_extra("corral.protocols.graphql.source", "graphql"):
    import httpx
    from graphql import GraphQLError, OperationDefinitionNode, OperationType, VariableNode, parse, print_ast, visit
    from graphql.language import FragmentSpreadNode, Visitor

    from corral.egress import SafeClient
    from corral.egress.client import unanswered
    from corral.egress.policy import service_policy

__all__ = ["GraphqlApi"]

_MAX_TOKENS = 2_000
_MAX_FRAGMENTS = 8
"""Maximum number of possible types of a union or interface that are distinguished."""
_LEAST_NESTED = 3
_TELLING = (
    "id", "name", "title", "login", "slug", "key", "code", "number", "state", "status", "type", "url", "email", "value",
)  # fmt: skip
"""Names of the most informative leaves of a nested object, best first."""
_PAGES = frozenset({"nodes", "edges", "node", "pageInfo", "items"})
"""Members of a page, which do not count as levels."""
_PAGE_ARGUMENTS = frozenset({"first", "last", "limit", "after", "before", "offset"})


class _InvalidSelection(ValueError):
    """The text is not a selection set."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of the selection set that is chosen for a tool."""

    levels: int
    fields: int


@dataclass(slots=True)
class Selection:
    """Selected fields of one type."""

    type: TypeDef
    leaves: dict[str, tuple[str, Field]] = field(default_factory=dict[str, "tuple[str, Field]"])
    """Fields without subfields, with their texts, by the key in the result."""
    parts: dict[str, tuple[Field, Selection]] = field(default_factory=dict[str, "tuple[Field, Selection]"])
    fragments: dict[str, Selection] = field(default_factory=dict[str, "Selection"])
    """Selections for each of its possible types."""

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
    """Chooses the selection set of a result, level by level; returns None for a scalar, or a type without such
    fields."""
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
        _InvalidSelection: the text contains anything but fields and inline fragments.
    """
    text = text.strip()
    try:
        document = parse(text if text.startswith("{") else f"{{ {text} }}", no_location=True, max_tokens=_MAX_TOKENS)
    except GraphQLError as error:
        raise _InvalidSelection(error.message) from None
    [operation, *others] = document.definitions
    if (
        others
        or not isinstance(operation, OperationDefinitionNode)
        or operation.operation is not OperationType.QUERY
        or operation.name is not None
        or operation.variable_definitions
        or operation.directives
    ):
        raise _InvalidSelection("only fields and inline fragments can be selected")

    class Refuse(Visitor):
        def enter_variable(self, _node: VariableNode, *_: Any) -> None:
            raise _InvalidSelection("variables cannot be used; write literal values")

        def enter_fragment_spread(self, _node: FragmentSpreadNode, *_: Any) -> None:
            raise _InvalidSelection("named fragments cannot be used; write `... on Type { }`")

    visit(operation, Refuse())
    return print_ast(operation.selection_set).removeprefix("{").removesuffix("}").strip()


def _take_leaves(schema: Schema, selection: Selection, most: int) -> int:
    """Selects leaves of a type, starting with the best if there are too many. Returns their number."""
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
            key = each.name if alike else f"{each.name}_{kind.name}"  # fields with the same key must have the same type
            inner.leaves[key] = each.name if alike else f"{key}: {each.name}", each
        taken += len(inner.leaves)
    return taken


def _leaves(schema: Schema, kind: TypeDef, most: int) -> list[Field]:
    """Returns fields without subfields that need no arguments and are not deprecated, in the order of the schema."""
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
    """Yields fields with subfields. Omits pages within an object, because each costs the service a query."""
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


# --- calls --------------------------------------------------------------------------------------------------

Credentials: TypeAlias = Callable[[ExecutionContext], Mapping[str, str] | Awaitable[Mapping[str, str] | None] | None]
"""Function that returns the headers that identify a caller. If it returns None, the call fails."""

_MAX_ERRORS = 3
_MAX_MESSAGE = 500
_PARSED_HERE = 200_000
"""Minimum bytes of responses that are parsed in a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Address of a service, and credentials for it."""

    url: httpx.URL
    headers: Mapping[str, str] = field(repr=False)
    credentials: Credentials | None

    async def identify(self, context: ExecutionContext) -> dict[str, str]:
        """Returns the headers that identify a caller. Raises ToolError if the caller has no credentials."""
        own: Any = {}
        if self.credentials is not None:
            own = await credential_of(self.credentials, context)
        return {**self.headers, **cast("Mapping[str, str]", own)}

    async def post(self, client: SafeClient, content: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Sends an operation."""
        sent = {
            **headers,
            "content-type": "application/json",
            "accept": "application/graphql-response+json, application/json",
        }
        return await client.send(client.build_request("POST", self.url, content=content, headers=sent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Field of the query or mutation type."""

    kind: str
    """Kind of the operation: "query" or "mutation"."""
    field: Field

    def __str__(self) -> str:
        return f"{self.kind} {self.field.name}"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Endpoint:
    """Everything needed to call one operation. Its texts are made on first use."""

    operation: Operation
    schema: Schema
    service: Service
    budget: Budget
    further: str
    selectable: bool
    scalars: Mapping[str, JsonSchema]
    partial_data: bool

    @cached_property
    def _selection(self) -> Selection | None:
        return select(self.schema, self.operation.field.type, self.budget)

    @property
    def _select_name(self) -> str:
        """Name of the argument that adds fields."""
        names = {each.name for each in self.operation.field.arguments}
        return "select" if "select" not in names else "select_"

    def input_schema(self) -> JsonSchema:
        more: dict[str, JsonSchema] = {}
        if self.selectable and self._selection is not None:
            description = 'Further fields of the result, in GraphQL: "a b(first: 3) { nodes { c } }".'
            more[self._select_name] = {"type": "string", "description": description}
        return InputSchemas(self.schema, self.scalars).of(self.operation.field.arguments, more)

    def output_schema(self) -> JsonSchema:
        kind, selection = self.operation.field.type, self._selection
        if selection is None:
            return wrapped(kind, leaf_schema(self.schema, kind.name, self.scalars))
        return wrapped(kind, selection.schema(self.schema, self.scalars))

    async def call(self, client: SafeClient, input: dict[str, Any] | None, call: ToolCall) -> object:
        """Sends the operation and reads the response.

        Raises:
            ToolError: the operation could not be sent, was not answered, or has errors.
            EgressBlocked: the response is too large or too late, or redirects to a forbidden address.
        """
        variables = dict(input or {})
        further = self._further_fields(variables)
        headers = await self.service.identify(call.context)
        content = to_json({"query": self._text(variables, further), "variables": variables})
        try:
            response = await self.service.post(client, content, headers)
            return await self._read(response, call, headers)
        except httpx.HTTPError as error:
            failure = unanswered(str(self.operation), error, reads=self.operation.kind == "query")
            raise ToolError(Mask(headers.values()).text(str(failure)), outcome_known=failure.outcome_known) from None

    def _further_fields(self, variables: dict[str, Any]) -> str:
        selection = variables.pop(self._select_name, None) if self.selectable and self._selection is not None else None
        if not selection:
            return self.further
        try:
            return f"{self.further} {further_fields(selection)}"
        except _InvalidSelection as error:
            raise ToolError(f"{self._select_name}: {error}") from None

    def _text(self, variables: Mapping[str, Any], further: str) -> str:
        field, selection = self.operation.field, self._selection
        arguments = [each for each in field.arguments if each.name in variables]
        declared = f"({', '.join(f'${each.name}: {each.type}' for each in arguments)})" if arguments else ""
        passed = f"({', '.join(f'{each.name}: ${each.name}' for each in arguments)})" if arguments else ""
        selected = "" if selection is None else selection.text().removesuffix("}") + f"{further} }}"
        return f"{self.operation.kind}{declared} {{ {field.name}{passed} {selected} }}"

    async def _read(self, response: httpx.Response, call: ToolCall, headers: Mapping[str, str]) -> object:
        content = response.content
        try:
            if len(content) > _PARSED_HERE:
                document = await run_in_own_thread(from_json, content, abandon_on_cancel=True)
            else:
                document = from_json(content)
        except ValueError:
            document = None
        if not isinstance(document, dict) or not ("data" in document or "errors" in document):
            known = response.status_code < 500
            text = f"{self.operation} has no GraphQL response; its status is {response.status_code}"
            raise ToolError(text, outcome_known=known)
        result = cast("dict[str, Any]", document)
        value = mapping(result.get("data")).get(self.operation.field.name)
        problems = _problems(result.get("errors"))
        if not problems:
            return value
        text = Mask(headers.values()).text("; ".join(problems))
        if value is None:
            raise ToolError(f"{self.operation} failed: {text}")
        if not self.partial_data:
            raise ToolError(f"{self.operation} returned only a partial result, which was withheld: {text}")
        call.logger.warning("%s returned only a partial result: %s", self.operation, text)
        return value


def _problems(errors: object) -> list[str]:
    """Returns the texts of a response's errors, each with its path and code."""
    listed = listing(errors)
    texts = [_problem(each) for each in listed[:_MAX_ERRORS]]
    return [*texts, f"{len(listed) - _MAX_ERRORS} more errors"] if len(listed) > _MAX_ERRORS else texts


def _problem(error: object) -> str:
    part = mapping(error)
    text = str(part.get("message", "an error without a message"))[:_MAX_MESSAGE]
    place = ".".join(str(each)[:100] for each in listing(part.get("path"))[:20])
    code = mapping(part.get("extensions")).get("code") or part.get("type")
    notes = ", ".join(filter(None, (f"at {place}" if place else "", str(code)[:100] if code else "")))
    return f"{text} ({notes})" if notes else text


logger = get_logger("corral.protocols.graphql.source")

_GRACE_SECONDS = 5.0
_MAX_DESCRIPTION = 2_000
_MAX_RESPONSE_BYTES = 10_000_000


@checked
class GraphqlApi(RemoteSource):
    """Queries and mutations of the GraphQL service at `url` as tools. Queries are read-only.

    The schema is requested by introspection when the source is opened, and again with back-off if that fails.
    Alternatively, `schema` is the result of an introspection query, as an object or a JSON file. The source's client
    can only reach the origin of `url`, which can be an internal address. A `client` that you pass is used instead, and
    stays open.

    `headers` are sent with each request; `credentials` returns further headers for a caller. `include` and `exclude`
    are patterns of fields, such as `"issue*"` or `"mutation:*"`. `needs_approval` applies to mutations.

    A tool selects up to `fields` fields of its result, at most `levels` objects deep; `select` adds fields, keyed by
    the name of a tool's field. Unless `selectable` is False, programs can add fields with the argument `select`.
    `scalars` are JSON Schemas of scalars. With `partial_data` a result with errors is delivered without its failed
    parts, and logged; otherwise the call fails.

    Raises:
        ConfigError: the URL, the schema or another option cannot be used.
    """

    def __init__(
        self,
        namespace: str | None,
        url: str,
        *,
        schema: Mapping[str, Any] | Path | None = None,
        client: SafeClient | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        credentials: Credentials | None = None,
        include: str | Iterable[str] = "*",
        exclude: str | Iterable[str] = (),
        levels: int = 2,
        fields: int = 50,
        select: Mapping[str, str] = MappingProxyType({}),
        selectable: bool = True,
        scalars: Mapping[str, JsonSchema] = MappingProxyType({}),
        partial_data: bool = False,
        validate_output: OutputValidation | bool = "warn",
        needs_approval: Approval = False,
        scopes: Iterable[str] = (),
        required: bool = False,
        timeout_seconds: float = 30.0,
        max_schema_bytes: int = 20_000_000,
    ) -> None:
        super().__init__(
            namespace,
            scopes=scopes,
            timeout_seconds=timeout_seconds,
            validate_output=validate_output,
            needs_approval=needs_approval,
        )
        if levels < 0 or fields < 1:
            raise ConfigError(f"levels={levels} or fields={fields} is too small; set at least 0 levels and 1 field")
        self._service = Service(url=_address(url), headers=dict(headers), credentials=credentials)
        self._static_schema = schema
        self._client = client
        self._include = (include,) if isinstance(include, str) else tuple(include)
        self._exclude = (exclude,) if isinstance(exclude, str) else tuple(exclude)
        self._budget = Budget(levels, fields)
        self._select = {name: _further(name, text) for name, text in select.items()}
        self._selectable = selectable
        self._scalars = {**SCALARS, **scalars}
        self._partial_data = partial_data
        self._required = required
        self._max_schema_bytes = max_schema_bytes

    @override
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        """Reads the schema and offers the tools; see `ToolSource.open`.

        Raises:
            StartFailed: the source is `required`, and its schema cannot be read.
            ConfigError: `schema` cannot be used, or a pattern matches no field.
        """
        async with (
            self._own_client(_MAX_RESPONSE_BYTES) if self._client is None else nullcontext(self._client) as client
        ):
            if self._static_schema is not None:
                offer(await self._tools(self._static_schema, client))
                yield
                return
            async with asked(partial(self._ask, offer, client), required=self._required):
                yield

    async def _ask(self, offer: Offer, client: SafeClient) -> str | None:
        """Requests the schema and offers its tools. If that fails, returns the reason."""
        try:
            offer(await self._tools(await self._introspect(client), client))
        except (ConfigError, EgressBlocked, httpx.HTTPError) as error:
            reason = Mask(self._service.headers.values()).text(_message(error))
            problem = f"the GraphQL service has no usable schema: {reason}"
            logger.log(logging.WARNING, "GraphqlApi %r: %s", self.namespace, problem)
            offer([], problem=problem)
            return problem
        return None

    async def _introspect(self, client: SafeClient) -> bytes:
        content = to_json({"query": INTROSPECTION})
        if self._client is not None:
            response = await self._service.post(client, content, self._service.headers)
        else:
            async with self._own_client(self._max_schema_bytes) as larger:
                response = await self._service.post(larger, content, self._service.headers)
        if response.status_code != 200:
            raise ConfigError(f"the introspection query has status {response.status_code}")
        return response.content

    def _own_client(self, max_response_bytes: int) -> SafeClient:
        policy = service_policy(
            str(self._service.url),
            max_response_bytes=max_response_bytes,
            total_seconds=self._timeout_seconds + _GRACE_SECONDS,
        )
        return SafeClient(policy, timeout=self._timeout_seconds)

    async def _tools(self, schema: bytes | Mapping[str, Any] | Path, client: SafeClient) -> list[Tool]:
        return await run_in_own_thread(self._make_tools, schema, client, abandon_on_cancel=True)

    def _make_tools(self, source: bytes | Mapping[str, Any] | Path, client: SafeClient) -> list[Tool]:
        if isinstance(source, Path):
            try:
                source = source.read_bytes()
            except OSError as error:
                raise ConfigError(f"the GraphQL schema {source} cannot be read: {error.strerror}") from error
        schema = read_schema(source)
        queries = _operations(schema, schema.query, "query")
        mutations = _operations(schema, schema.mutation, "mutation")
        everything = [*queries, *mutations]
        for option, patterns in (("include", self._include), ("exclude", self._exclude)):
            for pattern in patterns:
                if pattern != "*" and not any(_matches(each, pattern) for each in everything):
                    raise ConfigError(
                        f"{option}={pattern!r} matches no field; patterns are 'name*' or 'mutation:name*'"
                    )
        if unknown := self._select.keys() - {each.field.name for each in everything}:
            raise ConfigError(
                f"select has {sorted(unknown)[0]!r}, which is not a field of the schema; name a query or mutation"
            )
        chosen = [
            each
            for each in everything
            if any(_matches(each, pattern) for pattern in self._include)
            and not any(_matches(each, pattern) for pattern in self._exclude)
        ]
        asked = {each.field.name for each in chosen if each.kind == "query"}
        return [self._tool(each, schema, client, taken=asked) for each in chosen]

    def _tool(self, operation: Operation, schema: Schema, client: SafeClient, *, taken: set[str]) -> Tool:
        field = operation.field
        endpoint = Endpoint(
            operation=operation,
            schema=schema,
            service=self._service,
            budget=self._budget,
            further=self._select.get(field.name, ""),
            selectable=self._selectable,
            scalars=self._scalars,
            partial_data=self._partial_data,
        )
        is_query = operation.kind == "query"
        clashes = field.name in (() if is_query else taken)
        reserved = self.namespace is None and field.name in RESERVED_ROOT_NAMES
        name = f"{field.name}_{operation.kind}" if clashes or reserved else field.name
        deprecated = f"Deprecated: {field.deprecated}" if field.deprecated else ""
        text = "\n\n".join(filter(None, (field.description, deprecated))) or str(operation)
        return self._make_tool(
            name,
            endpoint.input_schema,
            endpoint.output_schema,
            description=text[:_MAX_DESCRIPTION],
            read_only=is_query,
            idempotent=is_query,
            function=partial(endpoint.call, client),
            bind=_bind,
        )


def _operations(schema: Schema, name: str | None, kind: str) -> list[Operation]:
    root = schema.types.get(name or "")
    return [] if root is None else [Operation(kind=kind, field=each) for each in root.fields.values()]


def _matches(operation: Operation, pattern: str) -> bool:
    kind, colon, name = pattern.rpartition(":")
    return (not colon or kind == operation.kind) and fnmatchcase(operation.field.name, name)


def _bind(value: Any, call: ToolCall) -> tuple[list[Any], dict[str, Any]]:
    return [value, call], {}


def _address(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.fragment:
        raise ConfigError(f"url={text[:100]!r} is not an http or https URL without a user name")
    return url


def _further(name: str, text: str) -> str:
    try:
        return further_fields(text)
    except _InvalidSelection as error:
        raise ConfigError(f"select[{name!r}] is not a selection of fields: {error}") from None


def _message(error: Exception) -> str:
    return f"{type(error).__name__} {error}".rstrip() if isinstance(error, httpx.HTTPError) else str(error)
