"""`GraphqlSource`: queries and mutations of a GraphQL service as a source of tools."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
from pydantic_core import to_json
from typing_extensions import override

from corral.arguments import checked
from corral.concurrency.threads import run_in_own_thread
from corral.egress import SafeClient
from corral.egress.policy import service_policy
from corral.errors import ConfigError, EgressBlocked
from corral.logs import get_logger
from corral.protocols.graphql.source.calls import Credentials, Endpoint, Operation, Service
from corral.protocols.graphql.source.json_types import SCALARS
from corral.protocols.graphql.source.schema import INTROSPECTION, Schema, read_schema
from corral.protocols.graphql.source.selections import Budget, InvalidSelection, further_fields
from corral.sources.lazy_schema import DeferredSchema
from corral.sources.opening import asked
from corral.tools import Approval, Offer, Tool, ToolCall, ToolSource
from corral.tools.names import RESERVED_ROOT_NAMES
from corral.tools.tool import OutputValidation, check_settings
from corral.types import JsonSchema

logger = get_logger("corral.protocols.graphql.source")

_GRACE_SECONDS = 5.0
_MAX_DESCRIPTION = 2_000


@checked
class GraphqlSource(ToolSource):
    """Queries and mutations of the GraphQL service at `url` as tools. Queries are read-only.

    The schema is asked for by introspection when the source is opened, and again with back-off if that fails; `schema`
    is the result of an introspection query instead, as an object or a JSON file. The source's client reaches only the
    origin of `url`, which may be an internal address. `client` is used instead, if given; it stays open.

    `headers` are sent with each request, `credentials` finds those of a caller. `include` and `exclude` are patterns of
    fields, such as `"issue*"` or `"mutation:*"`. `needs_approval` is for mutations.

    A tool selects up to `fields` fields of its result, at most `levels` objects deep; `select` adds fields by the name
    of a tool's field. Unless `selectable` is False, programs add fields by the argument `select`. `scalars` are JSON
    Schemas of scalars. With `partial_data` a result with errors is delivered without its failed parts, and logged;
    else the call fails.

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
        self.namespace = namespace
        self.scopes = frozenset(scopes)
        self._settings: dict[str, Any] = {
            "namespace": namespace,
            "scopes": self.scopes,
            "timeout_seconds": timeout_seconds,
            "validate_output": validate_output,
        }
        check_settings("GraphqlSource", **self._settings)
        if levels < 0 or fields < 1:
            raise ConfigError(f"levels={levels} or fields={fields} is too little; at least 0 levels and 1 field")
        self._service = Service(url=_address(url), headers=dict(headers), credentials=credentials)
        self._given = schema
        self._client = client
        self._include = (include,) if isinstance(include, str) else tuple(include)
        self._exclude = (exclude,) if isinstance(exclude, str) else tuple(exclude)
        self._budget = Budget(levels, fields)
        self._select = {name: _further(name, text) for name, text in select.items()}
        self._selectable = selectable
        self._scalars = {**SCALARS, **scalars}
        self._partial_data = partial_data
        self._needs_approval = needs_approval
        self._required = required
        self._timeout_seconds = timeout_seconds
        self._max_schema_bytes = max_schema_bytes

    @override
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        """As `ToolSource.open`.

        Raises:
            StartFailed: it is `required`, and its schema cannot be read.
            ConfigError: a given schema cannot be used, or a pattern matches nothing.
        """
        if self._client is not None:
            async with self._offered(offer, self._client):
                yield
            return
        async with self._own_client(10_000_000) as client, self._offered(offer, client):
            yield

    @asynccontextmanager
    async def _offered(self, offer: Offer, client: SafeClient) -> AsyncGenerator[None]:
        if self._given is not None:
            offer(await self._tools(self._given, client))
            yield
            return
        async with asked(partial(self._ask, offer, client), required=self._required):
            yield

    async def _ask(self, offer: Offer, client: SafeClient) -> str | None:
        """Asks for the schema and offers its tools; returns the reason if that failed."""
        try:
            offer(await self._tools(await self._introspected(client), client))
        except (ConfigError, EgressBlocked, httpx.HTTPError) as error:
            problem = f"the GraphQL service has no usable schema: {self._service.hidden(_told(error))}"
            logger.log(logging.WARNING, "GraphqlSource %r: %s", self.namespace, problem)
            offer([], problem=problem)
            return problem
        return None

    async def _introspected(self, client: SafeClient) -> bytes:
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

    async def _tools(self, given: bytes | Mapping[str, Any] | Path, client: SafeClient) -> list[Tool]:
        return await run_in_own_thread(self._made, given, client, abandon_on_cancel=True)

    def _made(self, given: bytes | Mapping[str, Any] | Path, client: SafeClient) -> list[Tool]:
        if isinstance(given, Path):
            try:
                given = given.read_bytes()
            except OSError as error:
                raise ConfigError(f"the GraphQL schema {given} cannot be read: {error.strerror}") from error
        schema = read_schema(given)
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
            raise ConfigError(f"select has {sorted(unknown)[0]!r}, which is no field of the schema")
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
            operation,
            schema,
            self._service,
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
        owner = f"tool {name!r}: "
        return Tool(
            name=name,
            description=text[:_MAX_DESCRIPTION],
            read_only=is_query,
            idempotent=is_query,
            input=DeferredSchema(endpoint.input_schema, owner=f"{owner}input_schema"),
            output=DeferredSchema(endpoint.output_schema, owner=f"{owner}output_schema"),
            function=partial(endpoint.call, client),
            bind=_bind,
            needs_approval=not is_query and self._needs_approval,
            **self._settings,
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
    except InvalidSelection as error:
        raise ConfigError(f"select[{name!r}] is no selection of fields: {error}") from None


def _told(error: Exception) -> str:
    return f"{type(error).__name__} {error}".rstrip() if isinstance(error, httpx.HTTPError) else str(error)
