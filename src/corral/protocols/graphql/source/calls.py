"""A callable query or mutation: the schema of its input, its request, and the result of its response."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import httpx
from pydantic_core import from_json, to_json

from corral.concurrency.cached_property import cached_property
from corral.concurrency.threads import run_in_own_thread
from corral.egress import SafeClient
from corral.errors import ToolError
from corral.protocols.graphql.source.json_types import InputSchemas, leaf_schema, wrapped
from corral.protocols.graphql.source.schema import Field, Schema
from corral.protocols.graphql.source.selections import Budget, InvalidSelection, Selection, further_fields, select
from corral.tools import ToolCall
from corral.tools.json_schema.keywords import listing, mapping
from corral.types import ExecutionContext, JsonSchema

Credentials: TypeAlias = Callable[[ExecutionContext], Mapping[str, str] | Awaitable[Mapping[str, str] | None] | None]
"""Finds the headers that identify a caller; None: the caller has none, and the call fails."""

_MAX_ERRORS = 3
_MAX_MESSAGE = 500
_PARSED_HERE = 200_000
"""Bytes of larger responses are parsed in a thread."""
_SHORTEST_SECRET = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Address and credentials of a service."""

    url: httpx.URL
    headers: Mapping[str, str]
    credentials: Credentials | None

    async def identify(self, context: ExecutionContext) -> dict[str, str]:
        """Returns the headers that identify a caller.

        Raises:
            ToolError: the caller has no credentials.
        """
        found: Any = {}
        if self.credentials is not None:
            found = self.credentials(context)
            found = await found if inspect.isawaitable(found) else found
            if found is None:
                raise ToolError("there is no credential for this caller")
        return {**self.headers, **cast("Mapping[str, str]", found)}

    def hidden(self, text: str) -> str:
        """Removes the headers of all callers from a text."""
        return _hidden(text, self.headers)

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
    """A field of the query or the mutation type."""

    kind: str
    """"query" or "mutation"."""
    field: Field

    def __str__(self) -> str:
        return f"{self.kind} {self.field.name}"


class Endpoint:
    """Everything that calls of one operation need. Its texts are made on first use."""

    def __init__(
        self,
        operation: Operation,
        schema: Schema,
        service: Service,
        *,
        budget: Budget,
        further: str,
        selectable: bool,
        scalars: Mapping[str, JsonSchema],
        partial_data: bool,
    ) -> None:
        self.operation = operation
        self._schema = schema
        self._service = service
        self._budget = budget
        self._further = further
        self._selectable = selectable
        self._scalars = scalars
        self._partial_data = partial_data

    @cached_property
    def _selection(self) -> Selection | None:
        return select(self._schema, self.operation.field.type, self._budget)

    @property
    def _select_name(self) -> str:
        """Name of the argument with further fields."""
        names = {each.name for each in self.operation.field.arguments}
        return "select" if "select" not in names else "select_"

    def input_schema(self) -> JsonSchema:
        more: dict[str, JsonSchema] = {}
        if self._selectable and self._selection is not None:
            told = 'Further fields of the result, in GraphQL: "a b(first: 3) { nodes { c } }".'
            more[self._select_name] = {"type": "string", "description": told}
        return InputSchemas(self._schema, self._scalars).of(self.operation.field.arguments, more)

    def output_schema(self) -> JsonSchema:
        kind, selection = self.operation.field.type, self._selection
        if selection is None:
            return wrapped(kind, leaf_schema(self._schema, kind.name, self._scalars))
        return wrapped(kind, selection.schema(self._schema, self._scalars))

    async def call(self, client: SafeClient, input: dict[str, Any] | None, call: ToolCall) -> object:
        """Sends the operation and reads the response.

        Raises:
            ToolError: the operation cannot be sent, was not answered, or has errors.
            EgressBlocked: the response is too large or too late, or leads where the client must not go.
        """
        variables = dict(input or {})
        further = self._given_fields(variables)
        headers = await self._service.identify(call.context)
        content = to_json({"query": self._text(variables, further), "variables": variables})
        try:
            response = await self._service.post(client, content, headers)
            return await self._read(response, call, headers)
        except httpx.HTTPError as error:
            said = f"{self.operation} was not answered: {type(error).__name__} {error}".rstrip()
            unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            said = said if unsent or self.operation.kind == "query" else f"{said}; it may have taken effect"
            raise ToolError(_hidden(said, headers), outcome_known=unsent) from None

    def _given_fields(self, variables: dict[str, Any]) -> str:
        given = variables.pop(self._select_name, None) if self._selectable and self._selection is not None else None
        if not given:
            return self._further
        try:
            return f"{self._further} {further_fields(given)}"
        except InvalidSelection as error:
            raise ToolError(f"{self._select_name}: {error}") from None

    def _text(self, variables: Mapping[str, Any], further: str) -> str:
        field, selection = self.operation.field, self._selection
        given = [each for each in field.arguments if each.name in variables]
        declared = f"({', '.join(f'${each.name}: {each.type}' for each in given)})" if given else ""
        passed = f"({', '.join(f'{each.name}: ${each.name}' for each in given)})" if given else ""
        selected = "" if selection is None else selection.text().removesuffix("}") + f"{further} }}"
        return f"{self.operation.kind}{declared} {{ {field.name}{passed} {selected} }}"

    async def _read(self, response: httpx.Response, call: ToolCall, headers: Mapping[str, str]) -> object:
        content = response.content
        try:
            if len(content) > _PARSED_HERE:
                found = await run_in_own_thread(from_json, content, abandon_on_cancel=True)
            else:
                found = from_json(content)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not ("data" in found or "errors" in found):
            known = response.status_code < 500
            text = f"{self.operation} has no GraphQL response; its status is {response.status_code}"
            raise ToolError(text, outcome_known=known)
        result = cast("dict[str, Any]", found)
        value = mapping(result.get("data")).get(self.operation.field.name)
        problems = _problems(result.get("errors"))
        if not problems:
            return value
        text = _hidden("; ".join(problems), headers)
        if value is None:
            raise ToolError(f"{self.operation} failed: {text}")
        if not self._partial_data:
            raise ToolError(f"{self.operation} has only a part of its result, which was withheld: {text}")
        call.logger.warning("%s has only a part of its result: %s", self.operation, text)
        return value


def _problems(errors: object) -> list[str]:
    """Returns texts of the errors of a response, each with its place and its code."""
    listed = listing(errors)
    found = [_problem(each) for each in listed[:_MAX_ERRORS]]
    return [*found, f"{len(listed) - _MAX_ERRORS} more errors"] if len(listed) > _MAX_ERRORS else found


def _problem(error: object) -> str:
    part = mapping(error)
    text = str(part.get("message", "an error without a message"))[:_MAX_MESSAGE]
    place = ".".join(str(each)[:100] for each in listing(part.get("path"))[:20])
    code = mapping(part.get("extensions")).get("code") or part.get("type")
    notes = ", ".join(filter(None, (f"at {place}" if place else "", str(code)[:100] if code else "")))
    return f"{text} ({notes})" if notes else text


def _hidden(text: str, headers: Mapping[str, str]) -> str:
    """Removes credentials: services may send back what they were sent."""
    secrets = {word for value in headers.values() for word in (value, *value.split())}
    for secret in sorted((each for each in secrets if len(each) >= _SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, "[redacted]")
    return text
