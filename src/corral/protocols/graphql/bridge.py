"""`GraphqlBridge`: tools as queries, mutations and subscriptions. docs/graphql.md specifies it.

Needs the extra `graphql`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, NotRequired
from urllib.parse import parse_qsl

import anyio
import anyio.lowlevel
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict, override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document, Receive, Send
from corral.bridges.web import Batch, Body, BridgeApp, RequestHead, WebBridge, load_of, parse_json, watch_request
from corral.bridges.web.batches import PlainLineStream, calls_of, error_content, line
from corral.bridges.web.bridge import Answer
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.request_load import MAX_CALLS, most_body_bytes
from corral.bridges.web.request_watch import ended
from corral.bridges.web.responses import NOT_JSON, EventStream, Response, failed, page_headers
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.concurrency.threads import run_in_own_thread
from corral.errors import (
    AccessDenied,
    BridgeError,
    ConfigError,
    CorralError,
    MalformedMessage,
    MessageTooLarge,
    requires_extra,
)
from corral.guest import Transport, plain_json
from corral.protocols.transports import transport
from corral.types import CallError, CallRequest, EncodedValue, Language, OpenStream, Reply

with requires_extra("GraphqlBridge", "graphql"):
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

    from corral.protocols.graphql.tool_schema import StreamedCall, ToolSchema, make_schema

__all__ = ["GraphqlBridge"]

# --- responses over HTTP ------------------------------------------------------------------------------------

_JSON = "application/json"
_GRAPHQL_JSON = "application/graphql-response+json"
EVENTS = "text/event-stream"
_COMPLETE = b"event: complete\ndata:\n\n"


def accepted(head: RequestHead) -> tuple[str, bool]:
    """Returns the media type for a result, and True if the client wants events. Events have the lowest priority."""
    for name, value in head.scope["headers"]:
        if name == b"accept":
            text = value.decode("latin-1").lower()
            events = EVENTS in text or "*/*" in text
            if _GRAPHQL_JSON in text:
                return _GRAPHQL_JSON, events
            only_events = EVENTS in text and _JSON not in text and "*/*" not in text
            return (EVENTS if only_events else _JSON), events
    return _JSON, True


def _result_json(result: ExecutionResult) -> bytes:
    """Writes a result. An error without a code means that a value does not match its type."""
    content: dict[str, Any] = {}
    if result.errors:
        errors: list[dict[str, Any]] = [{**error.formatted} for error in result.errors]
        for error in errors:
            code = "invalid_tool_output" if "path" in error else "malformed_message"
            error["extensions"] = {"code": code, **error.get("extensions", {})}
        content["errors"] = errors
    if result.data is not None or not result.errors or any(error.path for error in result.errors):
        content["data"] = result.data
    return to_json(content, inf_nan_mode="null")


def event(content: bytes) -> bytes:
    """Makes the server-sent event of a result. The JSON has no line breaks."""
    return b"event: next\ndata: %b\n\n" % content


def _extensions_of(error: CallError) -> dict[str, Any]:
    """Returns the members of an error, for its `extensions`."""
    members = error_content(error)
    del members["message"]
    return members


def _failed_json(error: CallError) -> bytes:
    """Writes the result of a request that failed as a whole."""
    return to_json({"errors": [{"message": error.message, "extensions": _extensions_of(error)}]})


# --- calls of one operation ---------------------------------------------------------------------------------

_MOST_INPUT_BYTES = 8_000_000
"""Maximum bytes of all inputs of a request's calls."""


class _OperationCalls:
    """Context of an operation. Each field that represents a call becomes a call of the execution."""

    def __init__(self, host: BridgeHost, grant: Grant, body_bytes: int) -> None:
        self._host = host
        self._grant = grant
        self._body_bytes = body_bytes
        self._calls = 0
        self.requested: StreamedCall | None = None
        """Call that a subscription requests."""

    async def call(self, tool: str, input: object) -> object:
        """Calls a tool and returns its result as plain JSON data. Raises GraphQLError."""
        reply = await self.handle(self._request(tool, input))
        if reply.error is not None:
            raise _error_of(reply.error)
        if reply.nothing:
            return None
        size = 0 if reply.encoded is None else len(reply.encoded.text)
        return await self._grant.run_by_size(_plain, reply, size=size)

    async def query(self, tool: str, input: object) -> object:
        """Does the same as `call`, for read-only tools. Raises GraphQLError for others."""
        known_tool = self._grant.peek_tool(tool)
        if known_tool is not None and not known_tool.read_only:
            raise _error_of(AccessDenied(f"tool {tool!r} is not read-only; call it in a mutation"))
        return await self.call(tool, input)

    async def call_many(self, calls: object) -> object:
        """Makes calls concurrently and returns their lines. Raises GraphQLError."""
        lines: list[object] = []

        async def one(number: int, request: CallRequest) -> None:
            reply = await self.handle(request)
            size = 0 if reply.encoded is None else len(reply.encoded.text)
            lines.append(await self._grant.run_by_size(lambda: from_json(line(number, reply)), size=size))

        requests = await self.requests(calls)
        async with anyio.create_task_group() as tasks:
            for number, request in requests:
                tasks.start_soon(one, number, request)
        return lines

    async def requests(self, calls: object) -> list[tuple[int, CallRequest]]:
        """Returns calls in the form of the HTTP bridge, with the client's numbers. Raises GraphQLError."""
        try:
            requests, _ = await self._read(calls)
            first = self._count(len(requests))
        except CorralError as error:
            raise _error_of(error) from None
        return [(each.sequence, each._replace(sequence=first + index)) for index, each in enumerate(requests)]

    async def stream(self, tool: str, input: object, opened: OpenStream) -> Reply:
        """Calls a tool whose items go to the stream."""
        return await self.handle(self._request(tool, input)._replace(open_stream=opened))

    def _request(self, tool: str, input: object) -> CallRequest:
        size = self._body_bytes
        if self._calls * size > _MOST_INPUT_BYTES:  # several calls can have the same variable as their input
            raise _error_of(
                MessageTooLarge(f"the calls of the request have more than {_MOST_INPUT_BYTES} bytes of input")
            )
        if size > self._grant.limits.tool_input_bytes:
            size = len(to_json(input))
        try:
            return CallRequest(tool, input, self._count(1), size)
        except CorralError as error:
            raise _error_of(error) from None

    def _count(self, calls: int) -> int:
        self._calls += calls
        if self._calls > MAX_CALLS:
            raise MessageTooLarge(f"the request has more than {MAX_CALLS} calls")
        return load_of(self._grant).count(calls)

    async def batch(self, calls: object) -> Batch:
        """Returns the calls of a subscription to `_calls`. Raises GraphQLError."""
        try:
            requests, _ = await self._read(calls)
            return Batch(self._host, self._grant, "graphql", requests, reads_streams=True)
        except CorralError as error:
            raise _error_of(error) from None

    async def _read(self, calls: object) -> tuple[list[CallRequest], bool]:
        size, grant = self._body_bytes, self._grant
        return await grant.run_by_size(calls_of, {"calls": calls}, size, grant, size=size)

    def handle(self, request: CallRequest) -> Awaitable[Reply]:
        """Makes one of the calls of `requests`."""
        return self._host.handle(Call(request, self._grant, protocol="graphql"))


def _plain(reply: Reply) -> object:
    if reply.encoded is None or reply.encoded.tagged:
        return from_json(plain_json(reply.value))
    return from_json(reply.encoded.text)  # plain JSON has times and the like as strings


def _error_of(error: CallError | CorralError) -> GraphQLError:
    """Converts an error to a field's error, whose `extensions` have the members of the original."""
    if not isinstance(error, CallError):
        error = CallError.of(error)
    return GraphQLError(error.message, extensions=_extensions_of(error))


class _OperationStream(EventStream):
    """Streamed body of the response to one operation."""

    _calling = False

    @property
    @override
    def begins(self) -> bool:
        return self.started or self._calling

    async def end(self, error: CallError) -> None:
        """Sends an error, and ends the response."""
        await self.write(event(_failed_json(error)) + _COMPLETE, last=True)

    async def send_one(self, content: bytes) -> None:
        """Sends the only result of an operation, and ends the response."""
        await self.write(event(content) + _COMPLETE, last=True)

    async def subscribe(
        self,
        tools: ToolSchema,
        document: DocumentNode,
        variables: dict[str, Any] | None,
        name: str | None,
        calls: _OperationCalls,
    ) -> None:
        """Executes a subscription, with a result for each item."""

        def result(source: object) -> ExecutionResult:
            executed = tools.execute(document, calls, variables=variables, operation=name, source=source)
            assert isinstance(executed, ExecutionResult)
            return executed

        first = result(None)
        requested = calls.requested
        if requested is None or first.errors or not first.data:
            return await self.send_one(_result_json(first))
        [key] = first.data
        if requested.tool is None:
            return await self.call_many(to_json(key), requested.input, calls)

        async def write_items(items: Sequence[EncodedValue]) -> None:
            await self.write(b"".join(event(_result_json(result((from_json(item.text),)))) for item in items))

        await self.write(b":\n\n")
        items = PlainLineStream(write_items)
        async with items.written():
            reply = await calls.stream(requested.tool, requested.input, items.open)
        if reply.error is not None:
            error = ExecutionResult({key: None}, [_error_of(reply.error)])
            return await self.send_one(_result_json(error))
        if not reply.nothing:  # the tool no longer streams
            await self.write(event(_result_json(result((reply.value,)))))
        await self.write(_COMPLETE, last=True)
        return None

    async def call_many(self, key: bytes, requests: object, calls: _OperationCalls) -> None:
        """Makes calls of corral's own runtimes. Each event has a line of the HTTP bridge, under the key `_calls`."""

        async def write(data: bytes, /, *, last: bool = False) -> None:
            shown = event(b'{"data":{%b:%b}}' % (key, data.rstrip())) if data else b""
            await self.write(shown + (_COMPLETE if last else b""), last=last)

        try:
            batch = await calls.batch(requests)
        except GraphQLError as error:
            return await self.send_one(_result_json(ExecutionResult(None, [error])))
        self._calling = True
        await batch.answer(write)
        return None


# --- documents ----------------------------------------------------------------------------------------------

_MOST_TOKENS = 10_000
_MOST = (5_000, 32, MAX_CALLS)
"""Maximum numbers of an operation: fields, counting a fragment at each use; levels; calls."""
_MOST_ALIKE = 200
"""Maximum number of fields with one response name in a document, because validation compares them in pairs."""
_MOST_DOCUMENTS = 64
_MOST_CACHED_CHARACTERS = 4_000
"""Maximum size of a document that is cached. A cached one takes about 150 times as many bytes."""
_QUICK_CHARACTERS = 2_000
"""Minimum length of documents that are validated in a thread."""


class _Size(NamedTuple):
    fields: int
    levels: int
    calls: int


_NOTHING = _Size(0, 0, 0)


async def _document_of(text: str, tools: ToolSchema) -> DocumentNode:
    """Returns the parsed and validated document of a request.

    Raises:
        MalformedMessage: the document is not GraphQL, or does not match the schema. MessageTooLarge: the document has
        too many tokens, levels, fields or calls.
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


def _operation_of(document: DocumentNode, name: str | None) -> OperationDefinitionNode:
    """Returns the operation to execute.

    Raises:
        MalformedMessage: no operation has that name, or there are several and the request names none.
    """
    operations = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
    if name is not None:
        operations = [each for each in operations if each.name is not None and each.name.value == name]
    if len(operations) != 1:
        raise MalformedMessage(
            f"the document has no operation {name!r}" if name else "operationName must name an operation"
        )
    return operations[0]


def _is_introspection(operation: OperationDefinitionNode) -> bool:
    """True if the operation requests nothing but the schema, directly in its own fields."""
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
    """Measures the operations of a document. Visits each fragment once."""

    def __init__(self, document: DocumentNode, namespaces: frozenset[str]) -> None:
        self._document = document
        self._namespaces = namespaces
        self._fragments = {
            each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)
        }
        self._known: dict[tuple[str, bool], _Size] = {}
        self._alike: Counter[str] = Counter()

    def enforce(self) -> None:
        """Raises MessageTooLarge if a document exceeds the bounds."""
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
            self._known[name, at_root] = _NOTHING  # stops at a cycle, which validation will reject
            if name in self._fragments:
                size = self._size(self._fragments[name].selection_set, at_root=at_root)
                self._known[name, at_root] = size
        return size or _NOTHING


# --- the app ------------------------------------------------------------------------------------------------

_INSTALLED = {
    "react.js": "react/umd/react.production.min.js",
    "react-dom.js": "react-dom/umd/react-dom.production.min.js",
    "graphiql.js": "graphiql/graphiql.min.js",
    "graphiql.css": "graphiql/graphiql.min.css",
}
"""Paths below `/graphiql/`, with files of the packages: builds for a page without a bundler.

graphiql 5 and react 19 have no such builds.
"""
_MOST_FILE_BYTES = 16_000_000
_PAGE = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>GraphiQL</title>
<link rel="stylesheet" href="./graphiql/graphiql.css">
<style>
body { margin: 0; display: flex; flex-direction: column; height: 100vh; font: 14px system-ui, sans-serif }
#entrance { display: flex; gap: 8px; padding: 8px 12px }
#token { flex: 1; max-width: 40em }
#graphiql { flex: 1; min-height: 0 }
</style>
<form id="entrance">
<label for="token">Token</label>
<input id="token" type="password" autocomplete="off" spellcheck="false"> <button>Use</button>
</form>
<div id="graphiql"></div>
<script src="./graphiql/react.js" defer></script>
<script src="./graphiql/react-dom.js" defer></script>
<script src="./graphiql/graphiql.js" defer></script>
<script src="./graphiql/page.js" defer></script>
"""
_HEADERS = {
    # GraphiQL and its editor add their own styles while they run.
    **page_headers(style_src="'self' 'unsafe-inline'", font_src="'self' data:"),
    "cache-control": "no-cache",
}


class _Graphiql:
    """Page at `/graphiql`, and its files, which are read once. The user types a token into the page, which does not
    store it.

    Raises:
        ConfigError: the folder lacks a package, or has a version of it without the necessary files.
    """

    def __init__(self, node_modules: Path) -> None:
        self._files: dict[str, tuple[bytes, str]] = {
            "/graphiql": (_PAGE, "text/html; charset=utf-8"),
            "/graphiql/page.js": (Path(__file__).with_name("graphiql.js").read_bytes(), "text/javascript"),
        }
        for name, file in _INSTALLED.items():
            media_type = "text/css" if name.endswith(".css") else "text/javascript"
            self._files[f"/graphiql/{name}"] = _read_file(node_modules, file), media_type

    def response(self, path: str) -> Response | None:
        """Returns the page or one of its files; None for other paths."""
        file = self._files.get(path)
        return None if file is None else Response(file[0], headers=_HEADERS, media_type=file[1])


def _read_file(node_modules: Path, file: str) -> bytes:
    path = node_modules / file
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise ConfigError(f"graphiql: {path} is larger than {_MOST_FILE_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"graphiql: {path} cannot be read ({error.strerror}); run `npm install graphiql@3 react@18 react-dom@18`, "
            "and pass its node_modules"
        ) from error


_OF_RUNTIMES = "subscription($calls:[JSON!]!){_calls(calls:$calls)}"
"""Name of the operation of corral's own runtimes."""
_MOST_INTROSPECTIONS = 8


@with_config(ConfigDict(extra="ignore", strict=True))
class Operation(TypedDict):
    query: Annotated[str, Field(min_length=1)]
    variables: NotRequired[dict[str, Any] | None]
    operationName: NotRequired[str | None]
    extensions: NotRequired[dict[str, Any] | None]


_operation = TypeAdapter(Operation)


class _GraphqlApp(BridgeApp):
    """App with operations, the schema's text, and the GraphiQL page, which needs no token."""

    prefix = "/graphql"

    def __init__(
        self, bridge: GraphqlBridge, host: BridgeHost, schemas: DocumentCache[ToolSchema], graphiql: _Graphiql | None
    ) -> None:
        super().__init__(bridge, host)
        self._schemas = schemas
        self._graphiql = graphiql
        operations: Mapping[str, Answer] = {"GET": self._operation, "POST": self._operation}
        self._answers: Mapping[str, Mapping[str, Answer]] = {
            "": operations,
            "/": operations,
            "/token": {"POST": self.renew},
            "/schema.graphql": {"GET": self._sdl},
        }

    @override
    def answers(self, path: str) -> Mapping[str, Answer]:
        return self._answers.get(path, {})

    @override
    def page(self, path: str) -> ASGIApp | None:
        page = None if self._graphiql is None else self._graphiql.response(path)
        return page or super().page(path)

    async def _sdl(self, head: RequestHead, grant: Grant, receive: Receive, _send: Send) -> ASGIApp:
        async with watch_request(grant, receive, anyio.lowlevel.checkpoint) as watch:
            watch.body_received()
            tools = await self._schemas.of(grant)
            text = await run_in_own_thread(tools.to_sdl, abandon_on_cancel=True)
            return Response(text, media_type="text/plain; charset=utf-8")
        return self.refuse(head, watch.reason)

    async def _operation(self, head: RequestHead, grant: Grant, receive: Receive, send: Send) -> ASGIApp | None:
        is_get = head.method == "GET"
        if not is_get and not head.is_json:
            return self.refuse(head, NOT_JSON, 415)
        media_type, reads_events = accepted(head)
        stream = _OperationStream(send)
        async with (
            watch_request(grant, receive, stream.heartbeat) as watch,
            Body(head, receive, 0 if is_get else most_body_bytes(grant), grant) as body,
        ):
            request = _read(_query_parameters(head) if is_get else parse_json(body))
            watch.body_received()
            if request["query"] == _OF_RUNTIMES and not is_get and reads_events:  # without the schema
                calls = _OperationCalls(self._host, grant, len(body))
                await stream.call_many(b'"_calls"', (request.get("variables") or {}).get("calls"), calls)
                return None
            tools = await self._schemas.of(grant)
            try:
                document = await _document_of(request["query"], tools)
                operation = _operation_of(document, request.get("operationName"))
                kind = operation.operation
                if kind is OperationType.SUBSCRIPTION and not reads_events:
                    raise MalformedMessage("subscriptions need the header accept: text/event-stream")
            except BridgeError as error:
                return _not_executed(error, media_type)
            if is_get and kind is not OperationType.QUERY:
                return self.refuse(head, BridgeError("GET is for queries only; send this operation by POST"), 405)
            calls = _OperationCalls(self._host, grant, len(body) or len(request["query"]))
            if kind is OperationType.SUBSCRIPTION:
                await stream.subscribe(tools, document, request.get("variables"), request.get("operationName"), calls)
                return None
            content = await _execute(tools, document, operation, request, calls)
            if media_type != EVENTS:
                return Response(content, 200, {"cache-control": "no-store", "vary": "accept"}, media_type)
            await stream.send_one(content)
            return None
        if stream.started:
            await stream.end(ended())
            return None
        return self.refuse(head, watch.reason)


async def _execute(
    tools: ToolSchema,
    document: DocumentNode,
    operation: OperationDefinitionNode,
    request: Operation,
    calls: _OperationCalls,
) -> bytes:
    """Executes a query or mutation. One that requests nothing but the schema is executed once, in a thread."""
    variables, name = request.get("variables"), request.get("operationName")

    def run() -> Awaitable[ExecutionResult] | ExecutionResult:
        return tools.execute(document, calls, variables=variables, operation=name)

    if _is_introspection(operation):
        key = (request["query"], name, to_json(variables))
        content = tools.introspections.get(key)
        if content is None:

            def introspect() -> bytes:
                result = run()
                assert isinstance(result, ExecutionResult)
                return _result_json(result)

            content = await run_in_own_thread(introspect, abandon_on_cancel=True)
            tools.introspections[key] = content
            if len(tools.introspections) > _MOST_INTROSPECTIONS:
                tools.introspections.popitem(last=False)
        return content
    result = run()
    return _result_json(result if isinstance(result, ExecutionResult) else await result)


def _read(raw: object) -> Operation:
    """Checks the shape of a request. Raises MalformedMessage if it is wrong."""
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


def _not_executed(refused: BridgeError, media_type: str) -> Response:
    """Makes the response to an invalid operation: according to the specification 200 in plain JSON, else 400."""
    error = CallError.of(refused)
    content = _failed_json(error)
    if media_type == EVENTS:
        return Response(event(content) + _COMPLETE, media_type=EVENTS)
    return failed(content, error, 200 if media_type == _JSON else 400, media_type)


@checked
class GraphqlBridge(WebBridge):
    """Tools as GraphQL, as an app that is mounted in a web server. Needs asyncio.

    Read-only tools are queries, other tools are mutations, and streams are subscriptions over server-sent events. A
    token's schema has the tools that its scopes allow. With `graphiql`, the path of a `node_modules` with graphiql 3,
    react 18 and react-dom 18, GraphiQL is served at `/graphiql`; the page itself needs no token. For `url`,
    `allowed_hosts` and `allowed_origins` see `WebBridge`.

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
        self._schemas = DocumentCache(make_schema, lambda tools: tools.estimated_bytes)
        self._graphiql = None if graphiql is None else _Graphiql(Path(graphiql))
        self._has_page = self._graphiql is not None

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return _GraphqlApp(self, host, self._schemas, self._graphiql)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return failed(_failed_json(error), error, status)

    @override
    async def document(self, grant: Grant) -> Document:
        tools = await self._schemas.of(grant)
        return Document(await run_in_own_thread(tools.to_sdl), "text/plain")

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("graphql", language)
