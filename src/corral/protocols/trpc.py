"""`TrpcBridge`: tools as tRPC procedures for `@trpc/client`, version 11. docs/trpc.md specifies them.

Needs the extra `http`.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import parse_qsl, unquote

import anyio
from pydantic_core import from_json, to_json, to_jsonable_python
from typing_extensions import override

from corral.arguments import checked
from corral.bridges.base import ASGIApp, BridgeHost, Document, Receive, Send
from corral.bridges.web import (
    Batch,
    Body,
    BridgeApp,
    RequestHead,
    WebBridge,
    load_of,
    parse_json,
    status_of,
    watch_request,
)
from corral.bridges.web.batches import LineStream, error_content, with_own_size
from corral.bridges.web.bridge import Answer
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.request_load import MAX_CALLS, most_body_bytes
from corral.bridges.web.request_watch import ended
from corral.bridges.web.responses import NOT_JSON, EventStream, Response, ResponseStream, failed
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.concurrency.fairness import INLINE_BYTES
from corral.errors import AccessDenied, MalformedMessage, MessageTooLarge
from corral.guest import Transport, decode_value, plain_json
from corral.model import declare_tools
from corral.protocols.transports import transport
from corral.tools import Tool
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, EncodedValue, Language, Reply, ToolName

__all__ = ["TrpcBridge"]

# --- the transformer superjson ------------------------------------------------------------------------------

# Wire format of npm's superjson 2: `{"json": ..., "meta": {"values": {"a.b": ["Date"]}, "v": 1}}`. A key of `values` is
# a path, in which `.` and `\\` are escaped by a backslash; a list has a type, and the tree of the values inside.

_SAFE_INTEGER = 2**53 - 1
_MOST_DEPTH = 200
_MOST_PATH_CHARS = 4_000_000
"""Maximum total characters of the paths to values of other types, each of which repeats all keys above the value."""
_PIECES = re.compile(r"\\(.?)|\.|[^\\.]+", re.DOTALL)


def to_superjson(value: object) -> dict[str, Any]:
    """Writes a value that a tool returned, with its tags converted.

    Raises:
        MessageTooLarge: the paths to values of other types are too long.
    """
    types = _ValueTypes()
    plain = _plain(value, (), types)
    if not types.kinds:
        return {"json": plain}
    return {"json": plain, "meta": {"values": types.kinds.get("", types.kinds), "v": 1}}


class _ValueTypes:
    """Types by path."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[Any]] = {}
        self._room = _MOST_PATH_CHARS
        self._above: tuple[str, ...] = ()
        self._prefix = ""
        """Text of the path `_above`, which leads to the last container with such a value."""

    def add(self, path: tuple[str, ...], kind: object) -> None:
        if path[:-1] != self._above:
            self._above = path[:-1]
            self._prefix = "".join(f"{_escape(step)}." for step in self._above)
        self._room -= len(self._prefix) + 1
        if self._room < 0:
            raise MessageTooLarge(
                "the call was made, but its result was withheld: the paths to its integers over 2^53, bytes and other "
                f"values that JSON cannot express have more than {_MOST_PATH_CHARS} characters"
            )
        self.kinds[self._prefix + "".join(map(_escape, path[-1:]))] = [kind]


def _escape(step: str) -> str:
    return step.replace("\\", "\\\\").replace(".", "\\.")


def from_superjson(raw: object) -> Any:
    """Reads an input. Values of types that JSON has are unchanged: a date that JSON has as a string stays a string.

    Raises:
        MalformedMessage: the input is not a superjson document.
    """
    if not isinstance(raw, dict) or "json" not in raw:
        raise MalformedMessage('with the transformer superjson an input is {"json": ..., "meta": ...}')
    document = cast("dict[str, Any]", raw)
    meta: Any = document.get("meta") or {}
    if not isinstance(meta, dict):
        raise MalformedMessage("the meta of an input is not an object")
    return _read(document["json"], cast("dict[str, Any]", meta).get("values"), 0)


def _plain(value: object, path: tuple[str, ...], types: _ValueTypes) -> Any:
    match value:
        case None | bool() | str():
            return value
        case int():
            if -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
                return value
            return _typed(str(value), "bigint", path, types)
        case float():
            if math.isfinite(value):
                return _typed("-0", "number", path, types) if not value and math.copysign(1, value) < 0 else value
            text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return _typed(text, "number", path, types)
        case bytes() | bytearray() | memoryview():
            return _typed([*bytes(cast("bytes", value))], ["typed-array", "Uint8Array"], path, types)
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {str(key): _plain(each, (*path, str(key)), types) for key, each in items}
        case list() | tuple():
            elements = cast("Iterable[Any]", value)
            return [_plain(each, (*path, str(number)), types) for number, each in enumerate(elements)]
        case _:
            return _plain(to_jsonable_python(value, by_alias=True, inf_nan_mode="constants"), path, types)


def _typed(value: Any, kind: object, path: tuple[str, ...], types: _ValueTypes) -> Any:
    types.add(path, kind)
    return value


def _read(value: Any, tree: Any, depth: int) -> Any:
    """Converts a value by the tree of its own types and the types inside it."""
    if depth > _MOST_DEPTH:
        raise MalformedMessage("the meta of an input is nested too deeply")
    if isinstance(tree, list) and tree:
        kind, *inner = cast("list[Any]", tree)
        if inner:
            value = _read(value, inner[0], depth + 1)
        return _convert(value, kind)
    if isinstance(tree, dict):
        for key, subtree in cast("dict[str, Any]", tree).items():
            value = _put(value, _path(key), subtree, depth)
    return value


def _put(value: Any, path: list[str], subtree: Any, depth: int) -> Any:
    parent, last = value, path[-1]
    for step in path[:-1]:
        parent = _at(parent, step)
    read = _read(_at(parent, last), subtree, depth + 1)
    if isinstance(parent, list):
        parent[int(last)] = None if read is _UNDEFINED else read
    elif read is _UNDEFINED:
        del parent[last]
    else:
        parent[last] = read
    return value


def _at(parent: Any, step: str) -> Any:
    try:
        return parent[int(step) if isinstance(parent, list) else step]
    except (LookupError, ValueError, TypeError):
        raise MalformedMessage("the meta of an input names a value that does not exist") from None


def _path(key: str) -> list[str]:
    steps: list[list[str]] = [[]]
    for match in _PIECES.finditer(key):
        if match[0] == ".":
            steps.append([])
        else:
            steps[-1].append(match[0] if match[1] is None else match[1])
    return ["".join(step) for step in steps]


_UNDEFINED = object()


def _convert(value: Any, kind: Any) -> Any:
    try:
        match kind:
            case "undefined":
                return _UNDEFINED
            case "bigint":
                return int(value)
            case "number":
                return float(value)
            case "map":
                return {str(key): each for key, each in value}
            case ["typed-array", *_]:
                if not isinstance(value, list):  # bytes(number) would allocate that many
                    raise TypeError
                return b64encode(bytes(cast("list[int]", value))).decode()
            case "Error":
                return value["message"]
            case _:
                return value  # Date, set, regexp and URL stay as JSON has them
    except (ValueError, TypeError, LookupError, OverflowError):
        raise MalformedMessage("the meta of an input does not fit its json") from None


def _without_undefined(value: object) -> Any:
    """Returns an input, with an empty object in place of undefined."""
    return {} if value is _UNDEFINED or value is None else value


# --- results and errors -------------------------------------------------------------------------------------

Transformer: TypeAlias = Literal["superjson"] | None

# Codes of JSON-RPC as tRPC numbers them (@trpc/server, rpc/codes).
_BY_STATUS: Mapping[int, tuple[str, int]] = {
    400: ("BAD_REQUEST", -32600),
    401: ("UNAUTHORIZED", -32001),
    403: ("FORBIDDEN", -32003),
    404: ("NOT_FOUND", -32004),
    405: ("METHOD_NOT_SUPPORTED", -32005),
    408: ("TIMEOUT", -32008),
    413: ("PAYLOAD_TOO_LARGE", -32013),
    415: ("UNSUPPORTED_MEDIA_TYPE", -32015),
    422: ("UNPROCESSABLE_CONTENT", -32022),
    429: ("TOO_MANY_REQUESTS", -32029),
    503: ("SERVICE_UNAVAILABLE", -32603),
}
_OTHER = "INTERNAL_SERVER_ERROR", -32603


def size_of(reply: Reply) -> int:
    """Returns the size of a result in bytes."""
    return 0 if reply.encoded is None else len(reply.encoded.text)


def result_of(reply: Reply, path: str, transformer: Transformer) -> dict[str, Any]:
    """Makes `{"result": {"data": ...}}` or `{"error": ...}`. The transformer is applied to the data later."""
    if reply.error is not None:
        return {"error": _error_shape(reply.error, path)}
    if reply.nothing:
        return {"result": {"data": None}}
    value = reply.value
    if transformer is None:
        if reply.encoded is None or reply.encoded.tagged:
            value = from_json(plain_json(value))
        return {"result": {"data": value}}
    if reply.encoded is not None:
        value = decode_value(reply.encoded.text, tagged=reply.encoded.tagged)
    return {"result": {"data": value}}


def _error_shape(error: CallError, path: str = "", status: int | None = None) -> dict[str, Any]:
    """Makes the error of a call. `data.corral` has corral's stable code."""
    status = status or status_of(error)
    name, number = _BY_STATUS.get(status, _OTHER)
    data: dict[str, Any] = {"code": name, "httpStatus": status}
    if path:
        data["path"] = path
    own = error_content(error)
    del own["message"]
    data["corral"] = own
    return {"message": error.message, "code": number, "data": data}


def shown(content: dict[str, Any], transformer: Transformer) -> dict[str, Any]:
    """Applies the transformer to the data or the error of one call."""
    if transformer is None:
        return content
    if "error" in content:
        return {"error": to_superjson(content["error"])}
    try:
        return {"result": {"data": to_superjson(content["result"]["data"])}}
    except MessageTooLarge as error:
        return {"error": to_superjson(_error_shape(CallError.of(error)))}


# --- the app ------------------------------------------------------------------------------------------------

_EVENTS = b"text/event-stream"
_CALLS = "corral/calls"
"""Name of the procedure of corral's own runtimes. No tool can have this name."""
_RENEWAL = "corral/token"
_RETURN = b"event: return\ndata: \n\n"
_JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class _CallBatch(NamedTuple):
    """Calls of one request."""

    paths: list[str]
    inputs: list[Any]
    batch: bool


class _TrpcApp(BridgeApp):
    """App that serves procedures at every path, except for the two paths of corral's own clients."""

    def __init__(self, bridge: TrpcBridge, host: BridgeHost) -> None:
        super().__init__(bridge, host)
        self._transformer: Transformer = bridge.transformer

    @override
    def answers(self, path: str) -> Mapping[str, Answer]:
        name = path.strip("/")
        procedures = partial(self._procedures, unquote(name))
        own: Mapping[str, Answer] = {_CALLS: self._calls, _RENEWAL: self.renew}
        return {"GET": procedures, "POST": own.get(name, procedures)}

    async def _calls(self, head: RequestHead, grant: Grant, receive: Receive, send: Send) -> ASGIApp | None:
        """Writes an event for each line of a batch, which is a subscription by POST."""
        if not head.is_json:
            return self.refuse(head, NOT_JSON, 415)
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
            return self.refuse(head, watch.reason)
        await batch.end(write)
        return None

    async def _procedures(
        self, path: str, head: RequestHead, grant: Grant, receive: Receive, send: Send
    ) -> ASGIApp | None:
        is_get = head.method == "GET"
        if not is_get and not head.is_json and not _has_no_body(head):
            return self.refuse(head, NOT_JSON, 415)
        headers = dict(head.scope["headers"])
        stream = _Subscription(send)
        lines = ResponseStream(send, *_JSON_HEADERS)
        unanswered: dict[int, CallRequest] = {}
        async with (
            watch_request(grant, receive, stream.heartbeat) as watch,
            Body(head, receive, 0 if is_get else most_body_bytes(grant), grant) as body,
        ):
            calls = await grant.run_by_size(
                self._read_calls, head, path, None if is_get else bytes(body), size=len(body)
            )
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
        return self.refuse(head, watch.reason)

    def _read_calls(self, head: RequestHead, path: str, body: bytes | None) -> _CallBatch:
        """Reads the calls of a request. Raises BridgeError if the request is malformed."""
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
            return _without_undefined(raw)
        return _without_undefined(from_superjson(raw))

    def _expect_query(self, grant: Grant, path: str) -> None:
        """Refuses GET for tools that are not read-only, because any link or image on a web page can send it."""
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
        statuses = {(200 if reply.error is None else status_of(reply.error)) for reply in replies.values()}
        status = statuses.pop() if len(statuses) == 1 else 207

        def written() -> bytes:
            contents = [
                shown(result_of(replies[number], request.tool, self._transformer), self._transformer)
                for number, request in enumerate(requests)
            ]
            return to_json(contents if batch else contents[0], inf_nan_mode="null")

        size = sum(map(size_of, replies.values()))
        return Response(await grant.run_by_size(written, size=size), status)

    async def _lines(self, unanswered: dict[int, CallRequest], grant: Grant, lines: ResponseStream) -> None:
        """Writes each result as soon as it is there, in the form of httpBatchStreamLink: a head with a promise for each
        call."""

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
                return self._serialize([number, 0, [[{"error": _error_shape(CallError.of(error), request.tool)}]]])

        await lines.write(await grant.run_by_size(written, size=size_of(reply)))

    def _serialize(self, content: Any) -> bytes:
        """Writes a line."""
        return to_json(content if self._transformer is None else to_superjson(content), inf_nan_mode="null") + b"\n"

    async def _subscription(self, calls: _CallBatch, grant: Grant, stream: _Subscription, size: int) -> None:
        """Writes each item of a stream as an event."""
        [request] = await self._requests(calls, grant, size)
        transformer = self._transformer
        refused: list[CallError] = []

        async def write_items(items: Sequence[EncodedValue]) -> None:
            try:
                for item in () if refused else items:
                    data = await grant.run_by_size(written, item, size=len(item.text))
                    await stream.write(b"data: %b\n\n" % data)
            except MessageTooLarge as error:
                refused.append(CallError.of(error))

        def written(item: EncodedValue) -> bytes:
            value = decode_value(item.text, tagged=item.tagged)
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


class _Subscription(EventStream):
    """Streamed body of a subscription."""

    heartbeat_event = b"event: ping\ndata: \n\n"

    async def fail(self, error: CallError, transformer: Transformer, path: str = "") -> None:
        """Sends an error, and ends the response."""
        shape = _error_shape(error, path)
        content = to_json(shape if transformer is None else to_superjson(shape))
        await self.write(b"event: serialized-error\ndata: %b\n\n" % content, last=True)


def _has_no_body(head: RequestHead) -> bool:
    """True if a request declares no body, like a mutation without an input."""
    headers = dict(head.scope["headers"])
    return b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0"


@checked
class TrpcBridge(WebBridge):
    """Tools as tRPC procedures, as an app that is mounted in a web server.

    Read-only tools are queries, other tools are mutations, and streams are subscriptions over server-sent events. With
    the transformer `superjson`, which clients must also use, bytes, large integers and NaN keep their types. For `url`,
    `allowed_hosts` and `allowed_origins` see `WebBridge`.

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
        return _TrpcApp(self, host)

    @override
    def refusal(self, head: RequestHead, error: CallError, status: int) -> ASGIApp:
        content = shown({"error": _error_shape(error, status=status)}, self.transformer)
        return failed(to_json(content), error, status)

    @override
    async def document(self, grant: Grant) -> Document:
        return Document(await self._documents.of(grant), "text/plain")

    @override
    def guest_transport(self, language: Language) -> Transport:
        return transport("trpc", language)

    def _router_types(self, tools: Mapping[ToolName, Tool]) -> bytes:
        """Writes the type `AppRouter`, for `createTRPCClient<AppRouter>`, from the declarations for programs."""
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
