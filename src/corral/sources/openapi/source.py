"""`OpenApi`: the operations of an OpenAPI document as a source of tools."""

from __future__ import annotations

import logging
import re
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import httpx
from typing_extensions import override

from corral.arguments import checked
from corral.egress import EgressPolicy, SafeClient
from corral.egress.client import unanswered
from corral.egress.policy import ANY_NETWORK
from corral.errors import ConfigError, ToolError
from corral.logs import get_logger
from corral.rendering.masking import Mask
from corral.sources.openapi.bodies import Body, Headers, Responses, read_body, read_responses
from corral.sources.openapi.documents import DocumentNode, Unusable, converted, is_swagger, read_document
from corral.sources.openapi.parameters import BODY, Line, Parameter, PathTemplate, Unwritable, read_parameters
from corral.sources.openapi.schemas import Schemas, SchemaUse
from corral.sources.openapi.security import Credential, Identity, Security
from corral.sources.opening import RemoteSource, bind_context, closed
from corral.tools import Approval, Offer, Tool
from corral.tools.tool import OutputValidation
from corral.types import ExecutionContext, JsonSchema

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""RFC 9110, 9.2.1: safe methods."""
_IDEMPOTENT = _READING | {"PUT", "DELETE"}
_MAX_OPERATIONS = 10_000
_MAX_NAME = 100
_MAX_DESCRIPTION = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of a document."""

    method: str
    """HTTP method, in upper case."""
    path: str
    operation_id: str | None
    tags: tuple[str, ...]
    description: str
    deprecated: bool

    def __str__(self) -> str:
        return f"{self.method} {self.path[:200]}"

    @property
    def read_only(self) -> bool:
        return self.method in _READING

    @property
    def idempotent(self) -> bool:
        return self.method in _IDEMPOTENT


class Skipped(NamedTuple):
    """Operation that is not offered as a tool."""

    operation: str
    """Method and path of the operation."""
    reason: str


Select: TypeAlias = str | Iterable[str] | Callable[[Operation], bool]
"""Selection of operations: patterns, of which one must match, or a function.

A pattern is a method ("GET"), a path ("/repos/*"), both ("GET /repos/*"), a tag ("tag:issues") or an operationId
("issues/*"). In paths, tags and ids `*` stands for any text, and `?` for one character.
"""


class _Listed(NamedTuple):
    operation: Operation
    name: str
    """Name of its tool."""
    item: DocumentNode
    """Path item that contains the operation."""
    part: DocumentNode


def _list_operations(document: DocumentNode, skipped: list[Skipped]) -> list[_Listed]:
    """Lists all readable operations, and adds the others to `skipped`.

    Raises:
        ConfigError: there are too many, or `paths` is not an object.
    """
    try:
        paths = document.own("paths")
        members = list(paths.members()) if paths else []
    except Unusable as problem:
        raise ConfigError(f"the OpenAPI document cannot be used. {problem}") from None
    operations: list[tuple[Operation, DocumentNode, DocumentNode]] = []
    for path, item in members:
        if path.startswith("x-"):
            continue
        try:
            item = item.resolved()
            declared = dict(item.members())
        except Unusable as problem:
            skipped.append(Skipped(path[:200], str(problem)))
            continue
        for method in (method for method in _METHODS if method in declared):
            if len(operations) >= _MAX_OPERATIONS:
                raise ConfigError(f"the OpenAPI document has more than {_MAX_OPERATIONS} operations; split it")
            try:
                operations.append((_operation(method.upper(), path, declared[method]), item, declared[method]))
            except Unusable as problem:
                skipped.append(Skipped(f"{method.upper()} {path[:200]}", str(problem)))
        if "trace" in declared:
            skipped.append(Skipped(f"TRACE {path[:200]}", "it would echo credentials"))
    names = _names([operation for operation, _, _ in operations])
    return [_Listed(operation, name, *parts) for (operation, *parts), name in zip(operations, names, strict=True)]


def _operation(method: str, path: str, part: DocumentNode) -> Operation:
    tags = part.own("tags")
    deprecated = part.flag("deprecated")
    texts = (part.text("summary").strip(), part.text("description").strip(), "Deprecated." if deprecated else "")
    description = "\n\n".join(dict.fromkeys(filter(None, texts))) or f"{method} {path}"
    return Operation(
        method=method,
        path=path,
        operation_id=part.text("operationId") or None,
        tags=tuple(str(each.value)[:_MAX_NAME] for each in tags.items()) if tags else (),
        description=description if len(description) <= _MAX_DESCRIPTION else f"{description[:_MAX_DESCRIPTION]}…",
        deprecated=deprecated,
    )


# --- names


def _names(operations: list[Operation]) -> list[str]:
    """Returns a name for each operation. It does not depend on their order in the document.

    The name is the operationId or, without one, the method and path. Equal names get their method and path appended
    and, if they are still equal or too long, the start of a digest.
    """
    first = [_usable(each.operation_id or "") or _by_path(each) for each in operations]
    shared = {name for name, times in Counter(first).items() if times > 1}
    second = [
        name if name not in shared else _by_path(each) if not each.operation_id else f"{name}_{_by_path(each)}"
        for name, each in zip(first, operations, strict=True)
    ]
    counted = Counter(second)
    return [
        name if counted[name] == 1 and len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 9]}_{_digest(each)}"
        for name, each in zip(second, operations, strict=True)
    ]


def _usable(name: str) -> str:
    """Converts a text to an identifier; returns "" if that is impossible."""
    return name if any(character.isalnum() for character in name) else ""


def _by_path(operation: Operation) -> str:
    """Names an operation: `GET /users/{id}.json` becomes `get_users_id_json`."""
    words = [word for word in re.split(r"[\W_]+", operation.path) if word]
    return "_".join([operation.method.lower(), *words])


def _digest(operation: Operation) -> str:
    return sha256(f"{operation.method} {operation.path}".encode()).hexdigest()[:8]


# --- selection


def selected(operations: Iterable[Operation], select: Select, option: str) -> set[Operation]:
    """Returns the selected operations. Raises ConfigError if a pattern matches no operation."""
    known = list(operations)
    if callable(select):
        return {each for each in known if select(each)}
    chosen: set[Operation] = set()
    for pattern in [select] if isinstance(select, str) else select:
        matching = set(_matching(known, pattern))
        if not matching:
            raise ConfigError(
                f"{option}={pattern!r} matches no operation; patterns are an operationId, 'GET', '/path/*', "
                "'GET /path/*' or 'tag:name'"
            )
        chosen |= matching
    return chosen


def _matching(operations: list[Operation], pattern: str) -> Iterator[Operation]:
    method, space, path = pattern.partition(" ")
    for each in operations:
        if pattern.startswith("tag:"):
            matches = any(fnmatchcase(tag, pattern[4:]) for tag in each.tags)
        elif pattern.startswith("/"):
            matches = fnmatchcase(each.path, pattern)
        elif method.lower() in _METHODS and method.isupper():
            matches = each.method == method and (not space or fnmatchcase(each.path, path))
        else:
            matches = fnmatchcase(each.operation_id or "", pattern)
        if matches:
            yield each


def _origin_of(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}[url.scheme]


class Servers:
    """Base URL of a document, and allowed origins of its operations.

    Raises:
        ConfigError: there is no base URL, or a URL is invalid.
    """

    def __init__(self, document: DocumentNode, base_url: str | None, origins: Iterable[str]) -> None:
        self.is_given = base_url is not None
        """True if the base URL comes from the host instead of the document."""
        try:
            self._stated = _first(document)
        except Unusable as problem:
            if base_url is None:
                raise ConfigError(f"the document's server cannot be used; give base_url. {problem}") from None
            self._stated = ""
        url = base_url if base_url is not None else self._stated
        if not url or "://" not in url:
            where = f"the document's server is {url[:100]!r}" if url else "the document names no server"
            if base_url is not None:
                raise ConfigError(f"base_url={url[:100]!r} needs http:// or https:// and a host")
            raise ConfigError(f"{where}: give base_url, such as 'https://api.example.com/v1'")
        self.base = _url(url)
        self.origins = {_origin_of(self.base), *(_origin_of(_url(each)) for each in origins)}

    def require_reachable(self) -> None:
        """Raises ConfigError if the document, rather than the host, names an internal address."""
        scheme, _, port = _origin_of(self.base)
        policy = EgressPolicy(schemes={scheme}, ports={port})
        objection = policy.objection(scheme, self.base.raw_host.decode("ascii"), port)
        if objection and not self.is_given:
            raise ConfigError(
                f"the document's server is {self._stated[:100]!r}, and {objection}; to allow that, pass it as base_url"
            )

    def of(self, item: DocumentNode, operation: DocumentNode) -> httpx.URL:
        """Returns the base URL of one operation, which can have its own server. Raises Unusable."""
        server = _first(operation) or _first(item)
        if not server:
            return self.base
        try:
            url = self._here(server) or _url(str(self.base.join(server)))
        except (ConfigError, httpx.InvalidURL):
            raise operation.refused(f"its server {server[:100]!r} is not a URL") from None
        if _origin_of(url) not in self.origins:
            raise operation.refused(f"it is at {server[:100]!r}; pass origins=[...] to allow that")
        return url

    def _here(self, server: str) -> httpx.URL | None:
        """Returns the URL of another server, relocated in the way that `base_url` relocates the document's server."""
        stated, url = httpx.URL(self._stated), httpx.URL(server)
        if not url.host or (url.host, url.port) != (stated.host, stated.port):
            return None
        return self.base if url.path.rstrip("/") == stated.path.rstrip("/") else self.base.copy_with(path=url.path)


def _first(part: DocumentNode) -> str:
    """Returns the URL of the first server, with its variables' defaults; "" without a server. Raises Unusable."""
    servers = part.member("servers")
    items = servers.items() if servers else []
    if not items:
        return ""
    [server, *_] = items
    variables = server.member("variables")
    values = {name: each.text("default") for name, each in variables.members()} if variables else {}

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise server.refused(f"its variable {match[1][:50]!r} has no default")
        return values[match[1]]

    return re.sub(r"\{([^{}]*)\}", value, server.text("url"))


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError):
        raise ConfigError(f"{text[:100]!r} is not a URL, such as 'https://api.example.com/v1'") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ConfigError(f"a base URL is http or https and has a host, but no user, query or fragment: {text[:100]!r}")
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Everything needed to call one operation."""

    label: str
    method: str
    base: httpx.URL
    path: PathTemplate
    parameters: Sequence[Parameter]
    body: Body | None
    responses: Responses
    security: Security
    schemes: Sequence[str]
    follow: bool
    """True if redirects are followed."""

    @property
    def input(self) -> SchemaUse:
        """Schema of a tool's input: an object with the parameters and the body, under their names."""
        members = {each.key: (each.schema, each.required) for each in self.parameters}
        if self.body is not None:
            members[BODY] = (self.body.schema, self.body.required)
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {key: use.schema for key, (use, _) in members.items()},
            "additionalProperties": False,
        }
        if required_keys := [key for key, (_, required) in members.items() if required]:
            schema["required"] = required_keys
        return SchemaUse(schema, set[str]().union(*(use.names for use, _ in members.values())))

    async def call(self, client: SafeClient, input: dict[str, Any] | None, context: ExecutionContext) -> object:
        """Sends the request and reads the response.

        Raises:
            ToolError: the request could not be sent, was not answered, or failed. EgressBlocked: the response is too
            large or too late, or redirects to a forbidden address.
        """
        values = input or {}
        line = self._line(values)
        identity = await self.security.identify(self.schemes, context)
        identity.write(line)
        request = self._request(client, line, values)
        try:
            response = await client.send(request, follow_redirects=self.follow)
            return self.responses.read(response, self.label)
        except httpx.HTTPError as error:
            raise _without(identity, unanswered(self.label, error)) from None
        except ToolError as error:
            raise _without(identity, error) from None

    def _line(self, values: dict[str, Any]) -> Line:
        line = Line()
        try:
            line.path = self.path.fill(values)
        except Unwritable as problem:
            raise ToolError(f"{self.label}: {problem}") from None
        for each in self.parameters:
            value = values.get(each.key)
            if each.place == "path" or (value is None and not (each.required and each.key in values)):
                continue
            try:
                each.write(value, line)
            except Unwritable as problem:
                raise ToolError(f"{self.label}: {each.key}: {problem}") from None
        return line

    def _request(self, client: SafeClient, line: Line, values: dict[str, Any]) -> httpx.Request:
        headers = [("Accept", self.responses.accept), *line.headers]
        if line.cookies:
            headers.append(("Cookie", "; ".join(f"{name}={text}" for name, text in line.cookies)))
        options: dict[str, Any] = {}
        if self.body is not None and (BODY in values and (values[BODY] is not None or self.body.required)):
            try:
                content = self.body.write(values[BODY])
            except Unwritable as problem:
                raise ToolError(f"{self.label}: {problem}") from None
            media = content.media
            if content.parts is None:
                options["content"] = content.data
            else:
                media = f"{media}; boundary={secrets.token_hex(16)}"
                options["files"] = content.parts
            headers.append(("Content-Type", media))
        query = "&".join(f"{name}={text}" for name, text in line.query)
        target = self.base.raw_path.decode("ascii").rstrip("/") + line.path + (f"?{query}" if query else "")
        url = self.base.copy_with(raw_path=target.encode("ascii"))
        return client.build_request(self.method, url, headers=headers, **options)


def _without(identity: Identity, error: ToolError) -> ToolError:
    """Returns the error without secrets, which servers can echo."""
    return ToolError(Mask(identity.secrets).text(str(error)), outcome_known=error.outcome_known)


logger = get_logger("corral.sources.openapi")

_REASONS = 3
_GRACE_SECONDS = 5.0
"""Seconds by which the client's timeout exceeds the tool's, so that the tool's clearer error comes first."""


@checked
class OpenApi(RemoteSource):
    """Operations of an OpenAPI 3.0 or 3.1, or Swagger 2.0, document as tools. Their calls are HTTP requests.

    `document` is an object, a path, or a text in JSON or YAML. Creating a source reads it; no request is sent.

    `base_url` replaces the first of the document's servers, and can be an internal address. Operations with their own
    server are included if it has the same origin, or one of `origins`. The source's client cannot reach other
    addresses. A `client` that you pass is used under its own policy, and stays open.

    `credentials` are keyed by the document's security schemes; a single credential applies to every operation.
    Operations whose credentials are missing are skipped, unless `without_credentials` is True.

    `include` and `exclude` select operations. `sequential` selects those whose calls run while no other calls of the
    execution run. `needs_approval` applies to operations that are not read-only. `headers` selects results of the form
    `{data, headers}`: for declared useful headers, always, or never. `validate_output` is the treatment of results that
    do not match the document.

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
        super().__init__(
            namespace,
            scopes=scopes,
            timeout_seconds=timeout_seconds,
            validate_output=validate_output,
            needs_approval=needs_approval,
        )
        self.skipped: list[Skipped] = []
        """Selected operations that are not offered as tools."""
        root = read_document(document)
        root = converted(root) if is_swagger(root) else root
        part = DocumentNode(root, root)
        self._client = client
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
        chosen = self._choose(part, include, exclude)
        self._sequential = selected([each.operation for each in chosen], sequential, "sequential")
        self._made = self._read(chosen)
        if self.skipped:
            self._report()

    @property
    @override
    def tools(self) -> Sequence[Tool]:
        """All tools; calls fail until the source is open."""
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
        """Reason why there are no tools at all; None if there are any."""
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

    def _choose(self, document: DocumentNode, include: Select | None, exclude: Select) -> list[_Listed]:
        listed = _list_operations(document, self.skipped)
        operations = [each.operation for each in listed]
        selection = set(operations) if include is None else selected(operations, include, "include")
        selection -= selected(operations, exclude, "exclude")
        return [each for each in listed if each.operation in selection]

    def _read(self, chosen: Iterable[_Listed]) -> list[tuple[Tool, Endpoint]]:
        """Makes the tools of these operations. Skips operations that cannot be used."""
        endpoints: list[tuple[_Listed, Endpoint, SchemaUse, SchemaUse]] = []
        for listed in chosen:
            try:
                endpoint = self._endpoint(listed)
                if endpoint is not None:
                    endpoints.append((listed, endpoint, endpoint.input, endpoint.responses.schema))
            except Unusable as problem:
                self._skip(listed.operation, str(problem))
        self._sent.settle()
        self._received.settle()
        made: list[tuple[Tool, Endpoint]] = []
        for listed, endpoint, input, output in endpoints:
            if objection := self._sent.objection(input) or self._received.objection(output):
                self._skip(listed.operation, objection)
            else:
                made.append((self._tool(listed, input, output), endpoint))
        return made

    def _endpoint(self, listed: _Listed) -> Endpoint | None:
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

    def _tool(self, listed: _Listed, input: SchemaUse, output: SchemaUse) -> Tool:
        operation = listed.operation
        return self._make_tool(
            listed.name,
            partial(_document, self._sent, input),
            partial(_document, self._received, output),
            description=operation.description,
            read_only=operation.read_only,
            idempotent=operation.idempotent,
            function=closed,
            bind=bind_context,
            sequential=operation in self._sequential,
        )

    def _report(self) -> None:
        """Logs the most common reasons for skipped operations, as a warning if no tools are left. `skipped` has all."""
        reasons = Counter(reason for _, reason in self.skipped).most_common(_REASONS)
        logger.log(
            logging.INFO if self._made else logging.WARNING,
            "OpenApi %r: %d operations became tools, %d did not: %s",
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
