"""The app: operations at `/` and `/graphql`, and for corral's own runtimes `/token`."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, NotRequired
from urllib.parse import parse_qsl

from graphql import DocumentNode, ExecutionResult, OperationDefinitionNode, OperationType
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import to_json
from starlette.responses import Response
from typing_extensions import TypedDict

from corral.bridges.base import ASGIApp, BridgeHost, Receive, Scope, Send
from corral.bridges.web import (
    NOT_JSON,
    Body,
    RequestHead,
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
from corral.calls.grants import Grant
from corral.concurrency.threads import run_in_own_thread
from corral.errors import AccessDenied, BridgeError, CallBudgetExceeded, MalformedMessage
from corral.guest import client_runtime
from corral.protocols.graphql.bridge.calls import OperationCalls
from corral.protocols.graphql.bridge.documents import document_of, is_introspection, operation_of
from corral.protocols.graphql.bridge.events import OperationStream
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
from corral.protocols.graphql.bridge.schema import ToolSchema
from corral.protocols.transports import transport
from corral.types import CallError

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
    """App over a pipeline. All of it requires a token, except `/health`, the runtimes, and the page of GraphiQL."""

    def __init__(self, host: BridgeHost, schemas: DocumentCache[ToolSchema], graphiql: Graphiql | None) -> None:
        self._host = host
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
            return Response(client_runtime(language, transport("graphql", language)), media_type=media_type)
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
            given = _read(_query_parameters(head) if is_get else parse_json(body))
            body_came = True
            watch.body_received()
            if given["query"] == _OF_RUNTIMES and not is_get and reads_events:  # needs no schema
                calls = OperationCalls(self._host, grant, len(body))
                await stream.call_many(b'"_calls"', (given.get("variables") or {}).get("calls"), calls)
                return None
            tools = await self._schemas.of(grant)
            try:
                document = await document_of(given["query"], tools)
                operation = operation_of(document, given.get("operationName"))
                kind = operation.operation
                if kind is OperationType.SUBSCRIPTION and not reads_events:
                    raise MalformedMessage("subscriptions need the header accept: text/event-stream")
            except BridgeError as error:
                return _not_executed(error, media_type)
            if is_get and kind is not OperationType.QUERY:
                return failed(BridgeError("GET is for queries only; send this operation by POST"), 405)
            calls = OperationCalls(self._host, grant, len(body) or len(given["query"]))
            if kind is OperationType.SUBSCRIPTION:
                await stream.subscribe(tools, document, given.get("variables"), given.get("operationName"), calls)
                return None
            content = await _executed(tools, document, operation, given, calls)
            if media_type != EVENTS:
                return respond(content, media_type)
            await stream.send_one(content)
            return None
        if stream.started:
            await stream.end(ended())
            return None
        return failed(ended() if body_came or grant.ended else late())


async def _executed(
    tools: ToolSchema,
    document: DocumentNode,
    operation: OperationDefinitionNode,
    given: Operation,
    calls: OperationCalls,
) -> bytes:
    """Executes a query or mutation; one that only asks for the schema, in a thread and once."""
    variables, name = given.get("variables"), given.get("operationName")

    def run() -> Awaitable[ExecutionResult] | ExecutionResult:
        return tools.execute(document, calls, variables=variables, operation=name)

    if is_introspection(operation):
        key = (given["query"], name, to_json(variables))
        found = tools.introspections.get(key)
        if found is None:

            def introspect() -> bytes:
                result = run()
                assert isinstance(result, ExecutionResult)
                return result_json(result)

            found = await run_in_own_thread(introspect, abandon_on_cancel=True)
            tools.introspections[key] = found
            if len(tools.introspections) > _MOST_INTROSPECTIONS:
                tools.introspections.popitem(last=False)
        return found
    result = run()
    return result_json(result if isinstance(result, ExecutionResult) else await result)


def _read(given: object) -> Operation:
    """Checks the shape of a request.

    Raises:
        MalformedMessage: the shape is wrong.
    """
    if isinstance(given, list):
        raise MalformedMessage("batches are not served; send one operation in each request")
    try:
        return _operation.validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MalformedMessage(f"the request is wrong at {place or 'its root'}: {first['msg']}") from None


def _query_parameters(head: RequestHead) -> dict[str, object]:
    given: dict[str, object] = dict(parse_qsl(head.scope["query_string"].decode("latin-1"), keep_blank_values=True))
    for name in ("variables", "extensions"):
        if given.get(name):
            given[name] = parse_json(str(given[name]).encode())
        else:
            given.pop(name, None)
    return given


def _not_executed(error: BridgeError, media_type: str) -> Response:
    """Makes the response to an operation that does not fit: by the specification 200 in plain JSON, else 400."""
    if media_type == EVENTS:
        headers = {"content-type": EVENTS, "cache-control": "no-store"}
        return Response(event(failed_json(error)) + COMPLETE, headers=headers)
    return failed(error, 200 if media_type == "application/json" else 400, media_type)


async def _no_heartbeat() -> None:
    """Sends nothing: the response cannot begin before its status is known."""
