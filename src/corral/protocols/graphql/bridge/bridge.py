"""`GraphqlBridge`: tools as queries, mutations and subscriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, NotRequired
from urllib.parse import parse_qsl

from graphql import (
    DocumentNode,
    ExecutionResult,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLSyntaxError,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
    parse,
    validate,
)
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json, to_json
from starlette.responses import Response
from typing_extensions import TypedDict, override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document, Receive, Scope, Send
from corral.bridges.web import (
    MAX_CALLS,
    NOT_JSON,
    Body,
    PlainLineStream,
    RequestHead,
    WebBridge,
    ended,
    grant_of,
    late,
    most_body_bytes,
    parse_json,
    read_body,
    watch_request,
)
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.runtimes import RUNTIMES
from corral.bridges.web.server_events import EventStream
from corral.calls.grants import Grant
from corral.concurrency.threads import run_in_own_thread
from corral.errors import AccessDenied, BridgeError, CallBudgetExceeded, MalformedMessage, MessageTooLarge
from corral.guest import Transport
from corral.protocols.graphql.bridge.calls import OperationCalls, error_of
from corral.protocols.graphql.bridge.graphiql import Graphiql
from corral.protocols.graphql.bridge.responses import (
    COMPLETE,
    EVENTS,
    accepted,
    event,
    failed,
    failed_json,
    respond,
    result_json,
)
from corral.protocols.graphql.bridge.schema import ToolSchema, make_schema
from corral.protocols.transports import transport
from corral.types import CallError, Language


class OperationStream(EventStream):
    """Streamed body of the response to one operation."""

    _calling = False

    @property
    @override
    def begins(self) -> bool:
        return self.started or self._calling

    async def end(self, error: CallError) -> None:
        """Sends an error, and ends the response."""
        await self.write(event(failed_json(error)) + COMPLETE, last=True)

    async def send_one(self, content: bytes) -> None:
        """Sends an operation's only result, and ends the response."""
        await self.write(event(content) + COMPLETE, last=True)

    async def subscribe(
        self,
        tools: ToolSchema,
        document: DocumentNode,
        variables: dict[str, Any] | None,
        name: str | None,
        calls: OperationCalls,
    ) -> None:
        """Executes a subscription: a result for each item."""

        def result(source: object) -> ExecutionResult:
            executed = tools.execute(document, calls, variables=variables, operation=name, source=source)
            assert isinstance(executed, ExecutionResult)
            return executed

        first = result(None)
        requested = calls.requested
        if requested is None or first.errors or not first.data:
            return await self.send_one(result_json(first))
        [key] = first.data
        if requested.tool is None:
            return await self.call_many(to_json(key), requested.input, calls)

        async def write_items(items: Sequence[bytes], /, *, tagged: bool) -> None:  # noqa: ARG001 - none are
            data = b""
            for item in items:
                data += event(result_json(result((from_json(item),))))
            await self.write(data)

        await self.write(b":\n\n")
        items = PlainLineStream(write_items)
        async with items.written():
            reply = await calls.stream(requested.tool, requested.input, items.open)
        if reply.error is not None:
            error = ExecutionResult({key: None}, [error_of(reply.error)])
            return await self.send_one(result_json(error))
        if not reply.nothing:  # the tool no longer streams
            await self.write(event(result_json(result((reply.value,)))))
        await self.write(COMPLETE, last=True)
        return None

    async def call_many(self, key: bytes, requests: object, calls: OperationCalls) -> None:
        """Makes calls of corral's own runtimes. Each event has a line of the HTTP bridge, under the key of `_calls`."""

        async def write(data: bytes, /, *, last: bool = False) -> None:
            shown = event(b'{"data":{%b:%b}}' % (key, data.rstrip())) if data else b""
            await self.write(shown + (COMPLETE if last else b""), last=last)

        try:
            batch = await calls.batch(requests)
        except GraphQLError as error:
            return await self.send_one(result_json(ExecutionResult(None, [error])))
        self._calling = True
        await batch.answer(write)
        return None


_MOST_TOKENS = 10_000
_MOST = (5_000, 32, MAX_CALLS)
"""Maximum fields of an operation, counting a fragment at each use; levels; calls."""
_MOST_ALIKE = 200
"""Maximum fields with one response name in a document: validation compares them in pairs."""
_MOST_DOCUMENTS = 64
_MOST_CACHED_CHARACTERS = 4_000
"""Maximum size of a document that is cached; it takes some 150 times as many bytes."""
_QUICK_CHARACTERS = 2_000
"""Length above which documents are validated in a thread."""


class _Size(NamedTuple):
    fields: int
    levels: int
    calls: int


_NOTHING = _Size(0, 0, 0)


async def document_of(text: str, tools: ToolSchema) -> DocumentNode:
    """Returns the parsed and validated document of a request.

    Raises:
        MalformedMessage: the document is not GraphQL, or does not match the schema.
        MessageTooLarge: it has too many tokens, levels, fields or calls.
    """
    known = tools.documents.get(text)
    if known is not None:
        tools.documents.move_to_end(text)
        return known
    if len(text) < _QUICK_CHARACTERS:
        document = _validate(text, tools)
    else:
        document = await run_in_own_thread(_validate, text, tools, abandon_on_cancel=True)
    if len(text) <= _MOST_CACHED_CHARACTERS:
        tools.documents[text] = document
        if len(tools.documents) > _MOST_DOCUMENTS:
            tools.documents.popitem(last=False)
    return document


def operation_of(document: DocumentNode, name: str | None) -> OperationDefinitionNode:
    """Returns the operation to execute.

    Raises:
        MalformedMessage: no operation has that name, or there are several and no name.
    """
    operations = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
    if name is not None:
        operations = [each for each in operations if each.name is not None and each.name.value == name]
    if len(operations) != 1:
        raise MalformedMessage(
            f"the document has no operation {name!r}" if name else "operationName must name an operation"
        )
    return operations[0]


def is_introspection(operation: OperationDefinitionNode) -> bool:
    """True if the operation only requests the schema, directly in its own fields."""
    return all(
        isinstance(field, FieldNode) and field.name.value.startswith("__")
        for field in operation.selection_set.selections
    )


def _validate(text: str, tools: ToolSchema) -> DocumentNode:
    try:
        document = parse(text, no_location=False, max_tokens=_MOST_TOKENS)
    except GraphQLSyntaxError as error:
        if "tokens" in error.message:
            raise MessageTooLarge(f"the document has more than {_MOST_TOKENS} tokens") from None
        raise MalformedMessage(_message(error)) from None
    _Bounds(document, tools.namespaces).enforce()
    problems = validate(tools.schema, document, max_errors=5)
    if problems:
        raise MalformedMessage("; ".join(_message(problem) for problem in problems[:5]))
    return document


def _message(error: GraphQLError) -> str:
    places = error.locations
    return f"{error.message} (line {places[0].line}, column {places[0].column})" if places else error.message


class _Bounds:
    """Sizes of the operations of a document. Each fragment is visited once."""

    def __init__(self, document: DocumentNode, namespaces: frozenset[str]) -> None:
        self._document = document
        self._namespaces = namespaces
        self._fragments = {
            each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)
        }
        self._known: dict[tuple[str, bool], _Size] = {}
        self._alike: Counter[str] = Counter()

    def enforce(self) -> None:
        """Raises MessageTooLarge for a document over the bounds."""
        for each in self._document.definitions:
            if isinstance(each, OperationDefinitionNode):
                size = self._size(each.selection_set, at_root=True)
                for count, most, noun in zip(size, _MOST, ("fields", "levels", "calls"), strict=True):
                    if count > most:
                        raise MessageTooLarge(f"an operation of the document has {count} {noun}; the maximum is {most}")
            elif isinstance(each, FragmentDefinitionNode):
                self._fragment(each.name.value, at_root=False)
        alike = max(self._alike.values(), default=0)
        if alike > _MOST_ALIKE:
            raise MessageTooLarge(f"the document has {alike} fields of one name; the maximum is {_MOST_ALIKE}")

    def _size(self, selections: SelectionSetNode | None, *, at_root: bool) -> _Size:
        total = _NOTHING
        for each in () if selections is None else selections.selections:
            match each:
                case FieldNode():
                    size = self._field(each, at_root=at_root)
                case FragmentSpreadNode():
                    size = self._fragment(each.name.value, at_root=at_root)
                case InlineFragmentNode():
                    size = self._size(each.selection_set, at_root=at_root)
                case _:
                    continue
            total = _Size(total.fields + size.fields, max(total.levels, size.levels), total.calls + size.calls)
        return total

    def _field(self, field: FieldNode, *, at_root: bool) -> _Size:
        name = field.name.value
        self._alike[(field.alias or field.name).value] += 1
        is_space = at_root and name in self._namespaces
        inner = self._size(field.selection_set, at_root=False)
        calls = inner.calls if is_space else int(not name.startswith("__"))
        return _Size(inner.fields + 1, inner.levels + 1, calls)

    def _fragment(self, name: str, *, at_root: bool) -> _Size:
        size = self._known.get((name, at_root))
        if size is None:
            self._known[name, at_root] = _NOTHING  # stops at a cycle, which validation refuses
            if name in self._fragments:
                size = self._size(self._fragments[name].selection_set, at_root=at_root)
                self._known[name, at_root] = size
        return size or _NOTHING


_OPERATIONS = ("", "/")
_OF_RUNTIMES = "subscription($calls:[JSON!]!){_calls(calls:$calls)}"
"""Operation of corral's own runtimes."""
_MOST_INTROSPECTIONS = 8


@with_config(ConfigDict(extra="ignore", strict=True))
class Operation(TypedDict):
    query: Annotated[str, Field(min_length=1)]
    variables: NotRequired[dict[str, Any] | None]
    operationName: NotRequired[str | None]
    extensions: NotRequired[dict[str, Any] | None]


_operation = TypeAdapter(Operation)


class GraphqlApp:
    """ASGI app over a pipeline. Everything requires a token, except `/health`, the runtimes, and the GraphiQL page."""

    def __init__(
        self, host: BridgeHost, bridge: GraphqlBridge, schemas: DocumentCache[ToolSchema], graphiql: Graphiql | None
    ) -> None:
        self._host = host
        self._bridge = bridge
        self._schemas = schemas
        self._graphiql = graphiql

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self._route(RequestHead.of(scope), scope, receive, send)
        if response is not None:
            await response(scope, receive, send)

    async def _route(self, head: RequestHead, scope: Scope, receive: Receive, send: Send) -> ASGIApp | None:
        path: str = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix("/graphql")
        method: str = scope["method"]
        if path == "/health":
            return Response(to_json({"status": "ok"}), media_type="application/json")
        if path in RUNTIMES:
            language, media_type = RUNTIMES[path]
            return Response(self._bridge.guest_runtime(language), media_type=media_type)
        if self._graphiql is not None and method == "GET" and (page := self._graphiql.response(path)) is not None:
            return page
        allowed = {"/token": ("POST",), "/schema.graphql": ("GET",)}.get(path, ("GET", "POST"))
        if path not in (*_OPERATIONS, "/token", "/schema.graphql"):
            return failed(CallError.of(BridgeError("no such path")), 404)
        if method not in allowed:
            return failed(CallError.of(BridgeError(f"the method must be {' or '.join(allowed)}")), 405)
        grant = await grant_of(self._host, head, "graphql")
        if not isinstance(grant, Grant):
            return failed(grant)
        try:
            if path == "/token":
                return await self._token(head, grant, receive)
            if path == "/schema.graphql":
                return await self._sdl(grant, receive)
            return await self._operation(head, grant, receive, send)
        except (BridgeError, AccessDenied, CallBudgetExceeded) as error:
            return failed(error)

    async def _token(self, head: RequestHead, grant: Grant, receive: Receive) -> Response:
        async with watch_request(grant, receive, _no_heartbeat):
            parse_json(await read_body(head, receive, 1_000))
            token, expires = self._host.renew(grant)
            return Response(
                to_json({"token": token, "expires": expires}),
                headers={"cache-control": "no-store"},
                media_type="application/json",
            )
        return failed(ended() if grant.ended else late())

    async def _sdl(self, grant: Grant, receive: Receive) -> Response:
        async with watch_request(grant, receive, _no_heartbeat) as watch:
            watch.body_received()
            tools = await self._schemas.of(grant)
            text = await run_in_own_thread(tools.to_sdl, abandon_on_cancel=True)
            return Response(text, headers={"cache-control": "no-store"}, media_type="text/plain; charset=utf-8")
        return failed(ended())

    async def _operation(self, head: RequestHead, grant: Grant, receive: Receive, send: Send) -> Response | None:
        is_get = head.scope["method"] == "GET"
        if not is_get and not head.is_json:
            return failed(NOT_JSON, 415)
        media_type, reads_events = accepted(head)
        body_came = False
        stream = OperationStream(send)
        async with (
            watch_request(grant, receive, stream.heartbeat) as watch,
            Body(head, receive, 0 if is_get else most_body_bytes(grant), grant) as body,
        ):
            request = _read(_query_parameters(head) if is_get else parse_json(body))
            body_came = True
            watch.body_received()
            if request["query"] == _OF_RUNTIMES and not is_get and reads_events:  # needs no schema
                calls = OperationCalls(self._host, grant, len(body))
                await stream.call_many(b'"_calls"', (request.get("variables") or {}).get("calls"), calls)
                return None
            tools = await self._schemas.of(grant)
            try:
                document = await document_of(request["query"], tools)
                operation = operation_of(document, request.get("operationName"))
                kind = operation.operation
                if kind is OperationType.SUBSCRIPTION and not reads_events:
                    raise MalformedMessage("subscriptions need the header accept: text/event-stream")
            except BridgeError as error:
                return _not_executed(error, media_type)
            if is_get and kind is not OperationType.QUERY:
                return failed(BridgeError("GET is for queries only; send this operation by POST"), 405)
            calls = OperationCalls(self._host, grant, len(body) or len(request["query"]))
            if kind is OperationType.SUBSCRIPTION:
                await stream.subscribe(tools, document, request.get("variables"), request.get("operationName"), calls)
                return None
            content = await _execute(tools, document, operation, request, calls)
            if media_type != EVENTS:
                return respond(content, media_type)
            await stream.send_one(content)
            return None
        if stream.started:
            await stream.end(ended())
            return None
        return failed(ended() if body_came or grant.ended else late())


async def _execute(
    tools: ToolSchema,
    document: DocumentNode,
    operation: OperationDefinitionNode,
    request: Operation,
    calls: OperationCalls,
) -> bytes:
    """Executes a query or mutation; one that only requests the schema, in a thread and once."""
    variables, name = request.get("variables"), request.get("operationName")

    def run() -> Awaitable[ExecutionResult] | ExecutionResult:
        return tools.execute(document, calls, variables=variables, operation=name)

    if is_introspection(operation):
        key = (request["query"], name, to_json(variables))
        content = tools.introspections.get(key)
        if content is None:

            def introspect() -> bytes:
                result = run()
                assert isinstance(result, ExecutionResult)
                return result_json(result)

            content = await run_in_own_thread(introspect, abandon_on_cancel=True)
            tools.introspections[key] = content
            if len(tools.introspections) > _MOST_INTROSPECTIONS:
                tools.introspections.popitem(last=False)
        return content
    result = run()
    return result_json(result if isinstance(result, ExecutionResult) else await result)


def _read(raw: object) -> Operation:
    """Checks the shape of a request.

    Raises:
        MalformedMessage: the shape is wrong.
    """
    if isinstance(raw, list):
        raise MalformedMessage("batches are not supported; send one operation per request")
    try:
        return _operation.validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MalformedMessage(f"the request is wrong at {place or 'its root'}: {first['msg']}") from None


def _query_parameters(head: RequestHead) -> dict[str, object]:
    parameters: dict[str, object] = dict(
        parse_qsl(head.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    )
    for name in ("variables", "extensions"):
        if parameters.get(name):
            parameters[name] = parse_json(str(parameters[name]).encode())
        else:
            parameters.pop(name, None)
    return parameters


def _not_executed(error: BridgeError, media_type: str) -> Response:
    """Makes the response to an invalid operation: by the specification 200 in plain JSON, else 400."""
    if media_type == EVENTS:
        headers = {"content-type": EVENTS, "cache-control": "no-store"}
        return Response(event(failed_json(error)) + COMPLETE, headers=headers)
    return failed(error, 200 if media_type == "application/json" else 400, media_type)


async def _no_heartbeat() -> None:
    """Sends nothing: the response cannot begin before its status is known."""


def _size(tools: ToolSchema) -> int:
    return tools.estimated_bytes


@checked
class GraphqlBridge(WebBridge):
    """Tools as GraphQL, as an app that is mounted in a web server. Needs asyncio.

    Read-only tools are queries, other tools are mutations, and streams are subscriptions over server-sent events. A
    token's schema has the tools that its scopes allow. `graphiql`, a `node_modules` with graphiql 3, react 18 and
    react-dom 18, serves GraphiQL at `/graphiql`; the page itself needs no token. `url`, `allowed_hosts` and
    `allowed_origins` are as in every `WebBridge`.

    Raises:
        ConfigError: `url` is not an http or https URL, or `graphiql` lacks a package.
    """

    name: ClassVar[str] = "graphql"

    def __init__(
        self,
        url: str | None = None,
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        graphiql: str | Path | None = None,
    ) -> None:
        super().__init__(url, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
        self._schemas = DocumentCache(make_schema, _size)
        self._graphiql = None if graphiql is None else Graphiql(Path(graphiql))
        self._has_page = self._graphiql is not None

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return GraphqlApp(host, self, self._schemas, self._graphiql)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return failed(error, status)

    @override
    async def document(self, grant: Grant) -> Document:
        tools = await self._schemas.of(grant)
        return Document(await run_in_own_thread(tools.to_sdl), "text/plain")

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("graphql", language)
