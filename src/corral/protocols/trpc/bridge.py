"""`TrpcBridge`: tools as tRPC procedures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast
from urllib.parse import parse_qsl, unquote

import anyio
from pydantic_core import to_json
from starlette.responses import Response
from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document, Receive, Scope, Send
from corral.bridges.web import (
    MAX_CALLS,
    NOT_JSON,
    Batch,
    Body,
    LineStream,
    RequestHead,
    WebBridge,
    ended,
    grant_of,
    late,
    load_of,
    most_body_bytes,
    parse_json,
    read_body,
    watch_request,
)
from corral.bridges.web.batches import with_own_size
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.response_stream import ResponseStream
from corral.bridges.web.runtimes import RUNTIMES
from corral.bridges.web.server_events import EventStream
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.concurrency.fairness import INLINE_BYTES
from corral.errors import AccessDenied, BridgeError, CallBudgetExceeded, MalformedMessage, MessageTooLarge
from corral.guest import Transport, decode_value, plain_json
from corral.model import declare_tools
from corral.protocols.transports import transport
from corral.protocols.trpc.responses import Transformer, error_shape, failed, result_of, shown, size_of, status_of_reply
from corral.protocols.trpc.superjson import from_superjson, to_superjson, without_undefined
from corral.tools import Tool
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, Language, Reply, ToolName

_EVENTS = b"text/event-stream"
_CALLS = "corral/calls"
"""Procedure of corral's own runtimes. No tool can have this name."""
_RENEWAL = "corral/token"
_RETURN = b"event: return\ndata: \n\n"
_JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class _CallBatch(NamedTuple):
    """Calls of one request."""

    paths: list[str]
    inputs: list[Any]
    batch: bool


class TrpcApp:
    """ASGI app over a pipeline. Everything requires a token, except `/health`."""

    def __init__(self, host: BridgeHost, bridge: TrpcBridge) -> None:
        self._host = host
        self._bridge = bridge
        self._transformer: Transformer = bridge.transformer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        response = await self._route(RequestHead.of(scope), scope, receive, send)
        if response is not None:
            await response(scope, receive, send)

    async def _route(self, head: RequestHead, scope: Scope, receive: Receive, send: Send) -> ASGIApp | None:
        path = scope["path"].removeprefix(scope.get("root_path", "")).strip("/")
        if path == "health":
            return Response(to_json({"status": "ok"}), media_type="application/json")
        if (runtime := RUNTIMES.get(f"/{path}")) is not None:
            language, media_type = runtime
            return Response(self._bridge.guest_runtime(language), media_type=media_type)
        if scope["method"] not in ("GET", "POST"):
            return self._failure(BridgeError("the method must be GET or POST"), 405)
        grant = await grant_of(self._host, head, "trpc")
        if not isinstance(grant, Grant):
            return self._failure(grant)
        try:
            if path in (_CALLS, _RENEWAL) and scope["method"] == "POST":
                serve = self._calls if path == _CALLS else self._token
                return await serve(head, grant, receive, send) if head.is_json else self._failure(NOT_JSON, 415)
            return await self._procedures(head, unquote(path), grant, receive, send)
        except (BridgeError, AccessDenied, CallBudgetExceeded) as error:
            return self._failure(error)

    async def _token(self, head: RequestHead, grant: Grant, receive: Receive, _send: Send) -> Response:
        async with watch_request(grant, receive, anyio.lowlevel.checkpoint):
            parse_json(await read_body(head, receive, 1_000))
            token, expires = self._host.renew(grant)
            content = to_json({"token": token, "expires": expires})
            return Response(content, headers={"cache-control": "no-store"}, media_type="application/json")
        return self._failure(ended() if grant.ended else late())

    async def _calls(self, head: RequestHead, grant: Grant, receive: Receive, send: Send) -> Response | None:
        """Writes an event for each line of a batch. It is a subscription by POST."""
        stream = _Subscription(send)
        batch: Batch | None = None

        async def heartbeat() -> None:
            if batch is not None:
                await stream.write(stream.heartbeat_event)

        async def write(data: bytes, /, *, last: bool = False) -> None:
            event = b"data: %b\n\n" % data.rstrip() if data else b""
            await stream.write(event + (_RETURN if last else b""), last=last)

        async with (
            watch_request(grant, receive, heartbeat) as watch,
            Body(head, receive, most_body_bytes(grant), grant) as body,
        ):
            batch = await Batch.read(self._host, grant, "trpc", body)
            watch.body_received()
            await batch.answer(write)
            return None
        if batch is None:
            return self._failure(ended() if grant.ended else late())
        await batch.end(write)
        return None

    async def _procedures(
        self, head: RequestHead, path: str, grant: Grant, receive: Receive, send: Send
    ) -> Response | None:
        is_get = head.scope["method"] == "GET"
        if not is_get and not head.is_json and not _has_no_body(head):
            return self._failure(NOT_JSON, 415)
        headers = dict(head.scope["headers"])
        stream = _Subscription(send)
        lines = ResponseStream(send, *_JSON_HEADERS)
        unanswered: dict[int, CallRequest] = {}
        body_came = False
        async with (
            watch_request(grant, receive, stream.heartbeat) as watch,
            Body(head, receive, 0 if is_get else most_body_bytes(grant), grant) as body,
        ):
            calls = await grant.run_by_size(
                self._read_calls, head, path, None if is_get else bytes(body), size=len(body)
            )
            body_came = True
            watch.body_received()
            if _EVENTS in headers.get(b"accept", b"") and not calls.batch:
                tool = grant.peek_tool(calls.paths[0])
                if tool is not None and tool.stream:
                    await self._subscription(calls, grant, stream, len(body))
                    return None
            if is_get:
                for each in calls.paths:
                    self._expect_query(grant, each)
            requests = await self._requests(calls, grant, len(body) or len(head.scope["query_string"]))
            if calls.batch and b"application/jsonl" in headers.get(b"trpc-accept", b""):
                unanswered = dict(enumerate(requests))
                await self._lines(unanswered, grant, lines)
                return None
            return await self._answer(requests, grant, batch=calls.batch)
        if lines.started:
            for number, request in unanswered.items():
                await self._line(lines, number, request, Reply(error=ended()), grant)
            await lines.write(b"", last=True)
            return None
        if stream.started:
            await stream.fail(ended(), self._transformer)
            return None
        return self._failure(ended() if body_came or grant.ended else late())

    def _read_calls(self, head: RequestHead, path: str, body: bytes | None) -> _CallBatch:
        """Reads the calls of a request.

        Raises:
            BridgeError: the request is malformed.
        """
        parameters = dict(parse_qsl(head.scope["query_string"].decode("latin-1"), keep_blank_values=True))
        batch = parameters.get("batch") == "1"
        paths = path.split(",") if batch else [path]
        if len(paths) > MAX_CALLS:
            raise MessageTooLarge(f"the batch has more than {MAX_CALLS} calls")
        if not all(0 < len(each) <= MAX_TOOL_PATH for each in paths):
            raise MalformedMessage("the path of a procedure is empty or too long")
        text = parameters.get("input", "").encode() if body is None else body
        document: Any = parse_json(text) if text else None
        if not batch:
            return _CallBatch(paths, [self._input(document)], batch)
        if not isinstance(document, dict | None):
            raise MalformedMessage('the inputs of a batch must be an object: {"0": ..., "1": ...}')
        by_number = cast("dict[str, Any]", document or {})
        inputs = [self._input(by_number.get(str(number))) for number in range(len(paths))]
        return _CallBatch(paths, inputs, batch)

    def _input(self, raw: object) -> Any:
        if self._transformer is None or raw is None:
            return without_undefined(raw)
        return without_undefined(from_superjson(raw))

    def _expect_query(self, grant: Grant, path: str) -> None:
        """Refuses GET for tools that are not read-only: any link or image of a web page can send it."""
        tool = grant.peek_tool(path)
        if tool is not None and not tool.read_only:
            raise AccessDenied(f"tool {path!r} is not read-only; call it as a mutation, by POST")

    async def _requests(self, calls: _CallBatch, grant: Grant, size: int) -> list[CallRequest]:
        first = load_of(grant).count(len(calls.paths))
        requests = [
            CallRequest(path, input, first + number, size)
            for number, (path, input) in enumerate(zip(calls.paths, calls.inputs, strict=True))
        ]
        if size <= INLINE_BYTES:
            return requests
        return await grant.run_by_size(lambda: [*map(with_own_size, requests)], size=size)

    async def _answer(self, requests: Sequence[CallRequest], grant: Grant, *, batch: bool) -> Response:
        replies: dict[int, Reply] = {}

        async def call(number: int, request: CallRequest) -> None:
            replies[number] = await self._handle(request, grant)

        if len(requests) == 1:
            await call(0, requests[0])
        else:
            async with anyio.create_task_group() as tasks:
                for number, request in enumerate(requests):
                    tasks.start_soon(call, number, request)
        statuses = {status_of_reply(reply) for reply in replies.values()}
        status = statuses.pop() if len(statuses) == 1 else 207

        def written() -> bytes:
            contents = [
                shown(result_of(replies[number], request.tool, self._transformer), self._transformer)
                for number, request in enumerate(requests)
            ]
            return to_json(contents if batch else contents[0], inf_nan_mode="null")

        size = sum(map(size_of, replies.values()))
        content = await grant.run_by_size(written, size=size)
        return Response(content, status, {"cache-control": "no-store"}, media_type="application/json")

    async def _lines(self, unanswered: dict[int, CallRequest], grant: Grant, lines: ResponseStream) -> None:
        """Writes each result as it comes, in the form of httpBatchStreamLink: a head with a promise for each call."""

        async def call(number: int, request: CallRequest) -> None:
            reply = await self._handle(request, grant)
            del unanswered[number]
            await self._line(lines, number, request, reply, grant)

        await lines.write(self._serialize({str(number): [[0], [None, 0, number]] for number in unanswered}))
        async with anyio.create_task_group() as tasks:
            for number, request in list(unanswered.items()):
                tasks.start_soon(call, number, request)
        await lines.write(b"", last=True)

    async def _line(self, lines: ResponseStream, number: int, request: CallRequest, reply: Reply, grant: Grant) -> None:
        def written() -> bytes:
            try:
                return self._serialize([number, 0, [[result_of(reply, request.tool, self._transformer)]]])
            except MessageTooLarge as error:
                return self._serialize([number, 0, [[{"error": error_shape(CallError.of(error), request.tool)}]]])

        await lines.write(await grant.run_by_size(written, size=size_of(reply)))

    def _serialize(self, content: Any) -> bytes:
        """Writes a line."""
        return to_json(content if self._transformer is None else to_superjson(content), inf_nan_mode="null") + b"\n"

    async def _subscription(self, calls: _CallBatch, grant: Grant, stream: _Subscription, size: int) -> None:
        """Writes each item of a stream as an event."""
        [request] = await self._requests(calls, grant, size)
        transformer = self._transformer
        refused: list[CallError] = []

        async def write_items(items: Sequence[bytes], /, *, tagged: bool) -> None:
            try:
                await write_each([] if refused else items, tagged)
            except MessageTooLarge as error:
                refused.append(CallError.of(error))

        async def write_each(items: Sequence[bytes], tagged: bool) -> None:
            for item in items:
                data = await grant.run_by_size(written, item, tagged, size=len(item))
                await stream.write(b"data: %b\n\n" % data)

        def written(item: bytes, tagged: bool) -> bytes:
            value = decode_value(item, tagged=tagged)
            return plain_json(value) if transformer is None else to_json(to_superjson(value))

        await stream.write(b"event: connected\ndata: {}\n\n")
        items = LineStream(write_items)
        async with items.written():
            reply = await self._handle(request._replace(open_stream=items.open), grant)
        if (error := reply.error or next(iter(refused), None)) is not None:
            await stream.fail(error, transformer, request.tool)
        else:
            await stream.write(_RETURN, last=True)

    async def _handle(self, request: CallRequest, grant: Grant) -> Reply:
        return await self._host.handle(Call(request, grant, protocol="trpc"))

    def _failure(self, error: Any, status: int | None = None) -> Response:
        return failed(error, self._transformer, status)


class _Subscription(EventStream):
    """Streamed body of a subscription."""

    heartbeat_event = b"event: ping\ndata: \n\n"

    async def fail(self, error: CallError, transformer: Transformer, path: str = "") -> None:
        """Sends an error, and ends the response."""
        shape = error_shape(error, path)
        content = to_json(shape if transformer is None else to_superjson(shape))
        await self.write(b"event: serialized-error\ndata: %b\n\n" % content, last=True)


def _has_no_body(head: RequestHead) -> bool:
    """True if a request declares no body, as a mutation without an input."""
    headers = dict(head.scope["headers"])
    return b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0"


@checked
class TrpcBridge(WebBridge):
    """Tools as tRPC procedures, as an app that is mounted in a web server.

    Read-only tools are queries, other tools are mutations, and streams are subscriptions over server-sent events. With
    the transformer `superjson`, which clients must also use, bytes, large integers and NaN keep their types.
    `url`, `allowed_hosts` and `allowed_origins` are as in every `WebBridge`.

    Raises:
        ConfigError: `url` is not an http or https URL.
    """

    name: ClassVar[str] = "trpc"

    def __init__(
        self,
        url: str | None = None,
        *,
        transformer: Transformer = None,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
    ) -> None:
        super().__init__(url, allowed_hosts=allowed_hosts, allowed_origins=allowed_origins)
        self.transformer: Transformer = transformer
        self._documents = DocumentCache(self._router_types)

    @override
    def routes(self, host: BridgeHost) -> ASGIApp:
        return TrpcApp(host, self)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        return failed(error, self.transformer, status)

    @override
    async def document(self, grant: Grant) -> Document:
        return Document(await self._documents.of(grant), "text/plain")

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("trpc", language)

    def _router_types(self, tools: Mapping[ToolName, Tool]) -> bytes:
        """Writes the type `AppRouter` for `createTRPCClient<AppRouter>`, from the declarations for programs."""
        queries = " | ".join(json.dumps(str(name)) for name, tool in tools.items() if tool.read_only) or "never"
        return _ROUTER.format(
            declarations=declare_tools(tools, "typescript"),
            queries=queries,
            transformer="true" if self.transformer else "false",
        ).encode()


_ROUTER = """\
import type {{
  TRPCBuiltRouter,
  TRPCDefaultErrorShape,
  TRPCMutationProcedure,
  TRPCQueryProcedure,
  TRPCSubscriptionProcedure,
}} from "@trpc/server";

{declarations}

type Queries = {queries};
type Input<P extends unknown[]> = P extends [] ? void | undefined : P[0];
type Procedure<Path, F> = F extends (...input: infer P) => AsyncIterable<infer T>
  ? TRPCSubscriptionProcedure<{{ input: Input<P>; output: AsyncIterable<T>; meta: unknown }}>
  : F extends (...input: infer P) => Promise<infer T>
    ? Path extends Queries
      ? TRPCQueryProcedure<{{ input: Input<P>; output: T; meta: unknown }}>
      : TRPCMutationProcedure<{{ input: Input<P>; output: T; meta: unknown }}>
    : never;
type Record_<T, Prefix extends string = ""> = {{
  [K in keyof T & string]: T[K] extends (...input: never[]) => unknown
    ? Procedure<`${{Prefix}}${{K}}`, T[K]>
    : Record_<T[K], `${{Prefix}}${{K}}.`>;
}};
export type AppRouter = TRPCBuiltRouter<
  {{ ctx: object; meta: object; errorShape: TRPCDefaultErrorShape; transformer: {transformer} }},
  Record_<typeof tools>
>;
"""
