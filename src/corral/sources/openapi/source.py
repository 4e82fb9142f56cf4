"""`OpenApi`: the operations of an OpenAPI document as a source of tools."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from typing_extensions import override

from corral.arguments import checked
from corral.egress import EgressPolicy, SafeClient
from corral.egress.policy import ANY_NETWORK
from corral.errors import ConfigError
from corral.logs import get_logger
from corral.sources.lazy_schema import DeferredSchema
from corral.sources.openapi.bodies import read_body
from corral.sources.openapi.calls import Endpoint
from corral.sources.openapi.documents import DocumentNode, Unusable, is_swagger, read_document
from corral.sources.openapi.operations import Listed, Operation, Select, Skipped, list_operations, selected
from corral.sources.openapi.parameters import PathTemplate, read_parameters
from corral.sources.openapi.responses import Headers, read_responses
from corral.sources.openapi.schemas import Schemas, SchemaUse
from corral.sources.openapi.security import Credential, Security
from corral.sources.openapi.servers import Servers
from corral.sources.openapi.swagger import converted
from corral.sources.opening import bind_context, closed
from corral.tools import Approval, Offer, Tool, ToolSource
from corral.tools.tool import OutputValidation, check_settings
from corral.types import JsonSchema

logger = get_logger("corral.sources.openapi")

_REASONS = 3
_GRACE_SECONDS = 5.0
"""Seconds that the client has beyond the tool's own time: the tool's error is the clearer one."""


@checked
class OpenApi(ToolSource):
    """The operations of an OpenAPI 3.0 or 3.1, or Swagger 2.0, document as tools, whose calls are HTTP requests.

    `document` is an object, a path, or a text in JSON or YAML. Making a source reads it, and does nothing else.

    `base_url` replaces the first of the document's servers, and may be an internal address. Operations with a server of
    their own are taken if it is at the same origin, or at one of `origins`. The source's client reaches nothing else.
    `client` is used instead, if given, under its own policy; it stays open.

    `credentials` are keyed by the document's security schemes; a single one is for every operation. Operations without
    their credentials are skipped, unless `without_credentials`.

    `include` and `exclude` choose operations, and `sequential` those that run alone within an execution.
    `needs_approval` is for those that are not read-only. `headers` selects results of the form `{data, headers}`: where
    the document declares useful headers, always, or never. `validate_output` is the treatment of results that do not
    fit the document.

    Raises:
        ConfigError: the document, or an option, cannot be used.
    """

    def __init__(
        self,
        namespace: str | None,
        document: Mapping[str, Any] | str | Path,
        *,
        base_url: str | None = None,
        origins: Iterable[str] = (),
        client: SafeClient | None = None,
        credentials: Credential | Mapping[str, Credential] = MappingProxyType({}),
        without_credentials: bool = False,
        include: Select | None = None,
        exclude: Select = (),
        headers: Headers = "declared",
        validate_output: OutputValidation | bool = "warn",
        needs_approval: Approval = False,
        scopes: Iterable[str] = (),
        sequential: Select = (),
        timeout_seconds: float = 30.0,
    ) -> None:
        self.namespace = namespace
        self.scopes = frozenset(scopes)
        self._settings: dict[str, Any] = {
            "namespace": namespace,
            "scopes": self.scopes,
            "timeout_seconds": timeout_seconds,
            "validate_output": validate_output,
        }
        check_settings("OpenApi", **self._settings)
        self.skipped: list[Skipped] = []
        """Operations of the document that were selected, and are no tools."""
        root = read_document(document)
        root = converted(root) if is_swagger(root) else root
        part = DocumentNode(root, root)
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._headers: Headers = headers
        self._takes_all = without_credentials
        try:
            self._security = Security(part, credentials)
        except Unusable as problem:
            raise ConfigError(f"the security schemes cannot be used. {problem}") from None
        self._servers = Servers(part, base_url, origins)
        if client is None:
            self._servers.require_reachable()
        self._sent = Schemas(part.root, in_requests=True)
        self._received = Schemas(part.root, in_requests=False)
        self._needs_approval = needs_approval
        chosen = self._chosen(part, include, exclude)
        self._sequential = selected([each.operation for each in chosen], sequential, "sequential")
        self._made = self._read(chosen)
        if self.skipped:
            self._report()

    @property
    @override
    def tools(self) -> Sequence[Tool]:
        """All of them; calls fail until the source is open."""
        return [tool for tool, _ in self._made]

    @override
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        if self._client is not None:
            offer(self._bound(self._client), problem=self._problem)
            yield
            return
        policy = self._policy()
        async with SafeClient(policy, timeout=self._timeout_seconds) as client:
            offer(self._bound(client), problem=self._problem)
            yield

    @property
    def _problem(self) -> str | None:
        """Reason for having no tools at all; None if there are any."""
        if self._made:
            return None
        reasons = Counter(reason for _, reason in self.skipped).most_common(1)
        return f"no operation of the document can be called: {reasons[0][0] if reasons else 'none was chosen'}"

    def _bound(self, client: SafeClient) -> list[Tool]:
        return [replace(tool, function=partial(endpoint.call, client)) for tool, endpoint in self._made]

    def _policy(self) -> EgressPolicy:
        origins = self._servers.origins
        return EgressPolicy(
            hosts={host for _, host, _ in origins},
            ports={port for *_, port in origins},
            schemes={scheme for scheme, *_ in origins},
            exempt_networks=ANY_NETWORK if self._servers.is_given else (),
            total_seconds=self._timeout_seconds + _GRACE_SECONDS,
        )

    # --- reading the document

    def _chosen(self, document: DocumentNode, include: Select | None, exclude: Select) -> list[Listed]:
        listed = list_operations(document, self.skipped)
        operations = [each.operation for each in listed]
        wanted = set(operations) if include is None else selected(operations, include, "include")
        wanted -= selected(operations, exclude, "exclude")
        return [each for each in listed if each.operation in wanted]

    def _read(self, chosen: Iterable[Listed]) -> list[tuple[Tool, Endpoint]]:
        """The tools of these operations. Those that cannot be used are skipped."""
        found: list[tuple[Listed, Endpoint, SchemaUse, SchemaUse]] = []
        for listed in chosen:
            try:
                endpoint = self._endpoint(listed)
                if endpoint is not None:
                    found.append((listed, endpoint, endpoint.input, endpoint.responses.schema))
            except Unusable as problem:
                self._skip(listed.operation, str(problem))
        self._sent.settle()
        self._received.settle()
        made: list[tuple[Tool, Endpoint]] = []
        for listed, endpoint, input, output in found:
            if objection := self._sent.objection(input) or self._received.objection(output):
                self._skip(listed.operation, objection)
            else:
                made.append((self._tool(listed, input, output), endpoint))
        return made

    def _endpoint(self, listed: Listed) -> Endpoint | None:
        operation, _, item, part = listed
        schemes = self._security.needed(part)
        if isinstance(schemes, str):
            if not self._takes_all:
                self._skip(operation, schemes)
                return None
            schemes = ()
        parameters = read_parameters(item, part, self._sent, self._security.is_credential)
        responses = read_responses(part, self._received, self._headers, is_head=operation.method == "HEAD")
        return Endpoint(
            label=str(operation),
            method=operation.method,
            base=self._servers.of(item, part),
            path=PathTemplate(part, operation.path, parameters),
            parameters=parameters,
            body=read_body(part, self._sent),
            responses=responses,
            security=self._security,
            schemes=schemes,
            follow=operation.read_only and not responses.redirects,
        )

    def _tool(self, listed: Listed, input: SchemaUse, output: SchemaUse) -> Tool:
        operation = listed.operation
        owner = f"tool {listed.name!r}: "
        return Tool(
            name=listed.name,
            description=operation.description,
            read_only=operation.read_only,
            idempotent=operation.idempotent,
            input=DeferredSchema(partial(_document, self._sent, input), owner=f"{owner}input_schema"),
            output=DeferredSchema(partial(_document, self._received, output), owner=f"{owner}output_schema"),
            function=closed,
            bind=bind_context,
            needs_approval=not operation.read_only and self._needs_approval,
            sequential=operation in self._sequential,
            **self._settings,
        )

    def _report(self) -> None:
        """Tells the host what is missing, by the commonest reasons; `skipped` has the rest. It is a warning if that is
        everything."""
        reasons = Counter(reason for _, reason in self.skipped).most_common(_REASONS)
        logger.log(
            logging.INFO if self._made else logging.WARNING,
            "OpenApi %r: %d of its operations became tools, %d did not: %s",
            self.namespace,
            len(self._made),
            len(self.skipped),
            "; ".join(f"{count} × {reason}" for reason, count in reasons),
        )

    def _skip(self, operation: Operation, reason: str) -> None:
        self.skipped.append(Skipped(str(operation), reason))


def _document(schemas: Schemas, use: SchemaUse) -> JsonSchema:
    schema: JsonSchema = {} if use.schema is True else {"not": {}} if use.schema is False else use.schema
    return {**schema, **schemas.definitions(use.names)}
