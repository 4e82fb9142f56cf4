"""Connections to MCP servers, over HTTP and over the standard streams of a child process.

Messages from a server are bounded in size and in rate, and repaired if necessary. The transport for child processes
replaces that of the mcp package, which buffers lines of any length and lets the server write to our terminal.
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import re
import signal
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import anyio
import httpx2
from anyio.abc import AsyncResource, Process
from mcp.client import Transport
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from typing_extensions import override

from corral.concurrency.descriptors import reap
from corral.concurrency.threads import run_shielded_in_thread
from corral.types import JsonSchema

RAW = "corral/raw"
"""Member of `_meta` that carries a call's result as the server sent it, inside a result that mcp accepts."""
_CALLS = frozenset({"tools/call", "tasks/result", "tasks/cancel"})

_BUDGET_PER_SECOND = 5_000
_NOISE_COST = 10
"""Cost of a message that is not an answer, compared with an answer. So at most 500 of them are read per second."""
_MAX_LIST_BYTES = 4_000_000
"""Maximum bytes of a list of tools over all of its pages. In Python it can take 30 times as much."""


class RateLimiter:
    """Budget that is renewed each second. `take` needs no event loop."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._left = per_second
        self._since = time.monotonic()

    def take(self, cost: int = 1) -> bool:
        """Spends `cost` if that much is left; else returns False."""
        now = time.monotonic()
        if now - self._since >= 1:
            self._since, self._left = now, self._per_second
        if self._left < cost:
            return False
        self._left -= cost
        return True

    async def spend(self, cost: int = 1) -> None:
        """Waits until `cost` is left, and spends it."""
        while not self.take(cost):
            await anyio.sleep(max(0.0, self._since + 1 - time.monotonic()))


class ListRoom:
    """Bytes left for a list of tools, whose pages are requested one by one."""

    problem = f"its list of tools is larger than {_MAX_LIST_BYTES} bytes"

    def __init__(self) -> None:
        self.left = _MAX_LIST_BYTES
        self.page: RequestId | None = None
        """Id of the request for a page that has not been answered yet."""

    def notice(self, request: JSONRPCRequest) -> None:
        """Remembers a request, about to be sent, if it is for a page."""
        if request.method == "tools/list":
            if not (request.params or {}).get("cursor"):
                self.left = _MAX_LIST_BYTES
            self.page = request.id

    def take(self, size: int) -> bool:
        """Counts the bytes of a page; returns False if there are too many."""
        self.left -= size
        return self.left >= 0


class BoundedMessages(AsyncResource):
    """Messages of a server as mcp's session reads them (`mcp.shared._stream_protocols.ReadStream`).

    A server that exceeds its quota is read slowly, so that its pipe or socket fills up. `ended` is called once no more
    messages come. Results of calls pass through mcp unread, under `RAW`. If `mends`, lists of tools are repaired to fit
    the protocol.
    """

    def __init__(self, ended: Callable[[], None], lists: ListRoom) -> None:
        self.mends = False
        self._ended = ended
        self._lists = lists
        self._calls: set[str] = set()
        """Ids of calls that have not been answered."""
        self._limit = RateLimiter(_BUDGET_PER_SECOND)
        self._stream: Any = None

    @asynccontextmanager
    async def over(self, transport: Transport) -> AsyncGenerator[Any]:
        """Wraps a transport so that its messages are read through this object."""
        async with transport as (self._stream, write):
            yield self, _Sent(write, self._sending)

    def _sending(self, message: object) -> None:
        match message:
            case JSONRPCRequest():
                self._lists.notice(message)
                if message.method in _CALLS:
                    self._calls.add(str(message.id))
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": request}):
                self._calls.discard(str(request))
            case _:
                pass

    @property
    def last_context(self) -> contextvars.Context | None:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            item: SessionMessage | Exception = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended()
            raise
        message = item.message if isinstance(item, SessionMessage) else None
        await self._limit.spend(1 if isinstance(message, JSONRPCResponse | JSONRPCError) else _NOISE_COST)
        if isinstance(message, JSONRPCResponse | JSONRPCError) and str(message.id) in self._calls:
            self._calls.remove(str(message.id))
            if isinstance(message, JSONRPCResponse):
                message.result = {"content": [], "resultType": "complete", "_meta": {RAW: message.result}}
        elif self.mends and isinstance(message, JSONRPCResponse):
            _mend(message.result)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _Sent(AsyncResource):
    """Passes messages on to a server, and shows each to `sending` (`mcp.shared._stream_protocols.WriteStream`)."""

    def __init__(self, stream: Any, sending: Callable[[object], None]) -> None:
        self._stream = stream
        self._sending = sending

    async def send(self, item: SessionMessage, /) -> None:
        self._sending(item.message)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()


# --- messages that break the protocol -----------------------------------------------------------------------


def readable(data: bytes, log: Callable[[int, str], None]) -> bytes:
    """Repairs a message that mcp cannot read, if possible; returns others unchanged.

    Invalid UTF-8 and lone surrogates become U+FFFD; control characters are escaped. A result that is not an object
    becomes structured content.
    """
    try:
        message: dict[str, Any] = json.loads(data.decode("utf-8-sig", "replace"), strict=False)
        if not isinstance(message.get("result", {}), dict):
            message["result"] = {"structuredContent": message["result"]}
        text = json.dumps(message, ensure_ascii=False)
    except (ValueError, RecursionError, AttributeError):  # the last error: it is not an object
        return data
    log(logging.WARNING, "a message is invalid; it is read as far as possible")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _mend(result: dict[str, Any]) -> None:
    """Reduces each tool to the members that programs need and mcp accepts. Omits tools without a name."""
    tools = result.get("tools")
    if isinstance(tools, list):
        known = [cast("dict[str, Any]", each) for each in cast("list[object]", tools) if isinstance(each, dict)]
        result["tools"] = [_mend_tool(each) for each in known if isinstance(each.get("name"), str)]
        if not isinstance(result.get("nextCursor"), str):
            result.pop("nextCursor", None)


def _mend_tool(tool: dict[str, Any]) -> dict[str, Any]:
    mended: dict[str, Any] = {"name": tool["name"], "inputSchema": _input_schema(tool.get("inputSchema"))}
    if isinstance(tool.get("description"), str):
        mended["description"] = tool["description"]
    annotations = tool.get("annotations")
    if isinstance(annotations, dict):
        hints = cast("dict[str, object]", annotations)
        mended["annotations"] = {key: value for key, value in hints.items() if isinstance(value, bool)}
    execution = tool.get("execution")
    if isinstance(execution, dict) and cast("dict[str, object]", execution).get("taskSupport") == "required":
        mended["execution"] = {"taskSupport": "required"}
    output: object = tool.get("outputSchema")
    if isinstance(output, dict) and _is_object(cast("JsonSchema", output)):
        mended["outputSchema"] = output
    return mended


def _input_schema(schema: object) -> JsonSchema:
    if not isinstance(schema, dict):
        return {"type": "object"}
    of_object = {**cast("JsonSchema", schema), "type": "object"}
    return of_object if _is_object(of_object) else {"type": "object"}


def _is_object(schema: JsonSchema) -> bool:
    """True if the root has the form that the protocol requires since 2024-11-05."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    return (
        schema.get("type") == "object"
        and isinstance(schema.get("$schema", ""), str)
        and isinstance(properties, dict)
        and all(isinstance(each, dict | bool) for each in cast("dict[str, object]", properties).values())
        and isinstance(required, list)
        and all(isinstance(each, str) for each in cast("list[object]", required))
    )


FORGOTTEN = "it has forgotten the session"
"""Error message for a request that a server refused because of its session, so that it had no effect."""
_ASKED = "corral.request"
"""Extension of an HTTP request: the id of the MCP request in it, or None. Redirects keep it."""
_OF_A_SESSION = re.compile(rb"session|not initiali[sz]ed", re.IGNORECASE)


@asynccontextmanager
async def streamable_http(
    url: str,
    *,
    headers: Mapping[str, str],
    connect_timeout_seconds: float,
    max_message_bytes: int,
    lists: ListRoom,
    log: Callable[[int, str], None],
    refused: Callable[[int | None], None],
    lost: Callable[[str], None],
) -> AsyncGenerator[Any]:
    """Yields a transport to a server at a URL.

    `refused` is called with the status of each answer that is an error, which mcp does not report. `lost` is called
    with the reason why a request could not be sent, which ends the connection. A user and password in the URL are sent
    as a header, because httpx2 logs URLs. Answers have no time limit: callers limit their calls.
    """
    timeout = httpx2.Timeout(None, connect=connect_timeout_seconds, write=connect_timeout_seconds)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)

    async def watch(response: httpx2.Response) -> None:
        events = _bound(response, max_message_bytes)
        asked = response.request.extensions.get(_ASKED)
        if asked is not None and asked == lists.page:
            response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), lists)
        if events or response.headers.get("content-type", "").lower().startswith("application/json"):
            stream = cast("httpx2.AsyncByteStream", response.stream)
            response.stream = _Readable(stream, max_message_bytes if events else None, log)
        if asked is not None:
            refused(response.status_code if response.status_code >= 400 else None)
        if response.status_code in (301, 302) and response.request.method == "POST":
            response.status_code = 308  # as intended: mcp follows it, with the body, within the same server

    target = httpx2.URL(url)
    client = _Client(
        lost,
        auth=httpx2.BasicAuth(target.username, target.password) if target.userinfo else None,
        headers={**headers, "accept-encoding": "identity"},
        timeout=timeout,
        limits=limits,
        event_hooks={"response": [watch]},
    )
    plain_url = str(target.copy_with(userinfo=b""))
    async with (
        client,
        streamable_http_client(plain_url, http_client=client, max_sse_event_size=max_message_bytes) as streams,
    ):
        yield streams


class _Client(httpx2.AsyncClient):
    """Reports why a request could not be sent, and detects a forgotten session, however the server words it."""

    def __init__(self, lost: Callable[[str], None], **options: Any) -> None:
        super().__init__(**options)
        self._lost = lost

    @override
    def build_request(self, method: str, url: httpx2.URL | str, **options: Any) -> httpx2.Request:
        request = super().build_request(method, url, **options)
        message: dict[str, Any] = options.get("json") or {}
        request.extensions[_ASKED] = message.get("id") if "method" in message else None
        return request

    @override
    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except httpx2.TransportError as error:
            if request.method == "POST":
                self._lost(_reason(error))
            raise
        if not await _is_forgotten(response):
            return response
        await response.aclose()
        error = {"code": INVALID_REQUEST, "message": FORGOTTEN}
        return httpx2.Response(404, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


async def _is_forgotten(response: httpx2.Response) -> bool:
    """True if the answer refuses a request because of its session."""
    request = response.request
    if request.extensions.get(_ASKED) is None or MCP_SESSION_ID not in request.headers:
        return False
    if response.status_code != 400:
        return response.status_code == 404
    try:
        return _OF_A_SESSION.search(await response.aread()) is not None
    except httpx2.StreamError:  # the body is too large
        return False


def _reason(error: httpx2.TransportError) -> str:
    """Describes the error without its own text, which can come from a proxy and contain its password."""
    match error:
        case httpx2.ConnectTimeout():
            return "it did not accept a connection in time"
        case httpx2.ConnectError():
            return "it does not accept connections"
        case _:
            return f"the connection broke ({type(error).__name__})"


def _bound(response: httpx2.Response, max_bytes: int) -> bool:
    """True for a stream of events: mcp limits each event, whereas other answers are limited as a whole.

    Other answers include streams that mcp or httpx2 discards: redirects, and answers to DELETE.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.RemoteProtocolError("the answer is compressed, which was not requested", request=response.request)
    events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    if events and response.status_code == 200 and response.request.method != "DELETE":
        return True
    response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), _Room(max_bytes))
    return False


class _Room:
    """Bytes left for one answer."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self.problem = f"it is larger than {max_bytes} bytes; ask for less at a time"

    def take(self, size: int) -> bool:
        self._left -= size
        return self._left >= 0


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, room: _Room | ListRoom) -> None:
        self._stream = stream
        self._room = room

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            if not self._room.take(len(chunk)):
                raise httpx2.StreamError(self._room.problem)
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()


class _Readable(httpx2.AsyncByteStream):
    """Answer as JSON, or as a stream of events whose data is JSON, with messages that mcp can read.

    A line of an event stream that exceeds `max_line_bytes` is passed on unchanged: mcp refuses it.
    """

    def __init__(
        self, stream: httpx2.AsyncByteStream, max_line_bytes: int | None, log: Callable[[int, str], None]
    ) -> None:
        self._stream = stream
        self._max_line_bytes = max_line_bytes
        self._log = log

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        kept = bytearray()
        async for chunk in self._stream:
            kept += chunk
            if self._max_line_bytes is None:
                continue
            end = len(kept) - len(chunk) + chunk.rfind(b"\n") + 1 if b"\n" in chunk else 0
            if end or len(kept) > self._max_line_bytes:
                end = end or len(kept)
                yield b"".join(map(self._line, bytes(kept[:end]).splitlines(keepends=True)))
                del kept[:end]
        yield self._message(bytes(kept)) if self._max_line_bytes is None else self._line(bytes(kept))

    def _line(self, line: bytes) -> bytes:
        data = line[5:].strip()
        return b"data: " + self._message(data) + b"\n" if data and line.startswith(b"data:") else line

    def _message(self, data: bytes) -> bytes:
        try:
            jsonrpc_message_adapter.validate_json(data, by_name=False)
        except ValueError:
            return readable(data, self._log)
        return data

    @override
    async def aclose(self) -> None:
        await self._stream.aclose()


_GRACE_SECONDS = 1.0
"""Seconds that a server has to end after its input is closed, and again after SIGTERM."""
_SIGKILL = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL
_POLL_SECONDS = 0.01
_LINES_PER_SECOND = 20
_HEAD_BYTES = 10_000
_TAIL_BYTES = 300
"""Bytes that are kept of an overlong line, to log it and to find the request that it answers."""

_INVALID = "its answer is not valid, or too deeply nested; it begins with"
_UNKNOWN_BYTES = 100_000
"""Minimum length of an overlong line that counts as a page while a list is read, unless its id is another answer's."""

_VERSION = r'"jsonrpc"\s*:\s*"2\.0"'
_ID = r'"id"\s*:\s*(0|[1-9]\d{0,17}|"[\w.:/ +-]{1,100}")'
_OUTCOME = r'"(?:result|error)"\s*:'
_ID_FIRST = re.compile(rf"\s*\{{\s*(?:{_VERSION}\s*,\s*)?{_ID}\s*,\s*(?:{_VERSION}\s*,\s*)?{_OUTCOME}".encode())
_ID_LAST = re.compile(rf",\s*{_ID}\s*(?:,\s*{_VERSION}\s*)?\}}\s*\Z".encode())
_OUTCOME_FIRST = re.compile(rf"\s*\{{\s*(?:{_VERSION}\s*,\s*)?{_OUTCOME}".encode())
"""Members of an answer, in the orders in which servers write them. Other `"id"`s can be data."""


@asynccontextmanager
async def stdio(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | Path | None,
    max_message_bytes: int,
    lists: ListRoom,
    log: Callable[[int, str], None],
    lost: Callable[[str], None],
) -> AsyncGenerator[Any]:
    """Yields a transport to a new process in its own process group, which is killed afterwards.

    The process gets those of our environment variables that mcp considers harmless (PATH, HOME and the like). Its
    stderr, and lines of stdout that are not messages, go to `log`; `lost` is called with the reason why no more
    messages will come. An answer that exceeds `max_message_bytes`, or is invalid, fails its request.

    Raises:
        OSError: the process cannot be started.
        ValueError: the command or the environment contains a NUL.
    """
    process = await _start(command, {**get_default_environment(), **env}, cwd)
    received, receive = anyio.create_memory_object_stream[SessionMessage | Exception]()
    send, sending = anyio.create_memory_object_stream[SessionMessage]()
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr

    leaving = cleared = False
    last_words, no_more_words = "", anyio.Event()

    async def read() -> None:
        nonlocal cleared
        limit = RateLimiter(_LINES_PER_SECOND)
        async with received:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for line, whole in _lines(stdout, max_message_bytes):
                    if lists.page is not None and _is_page(line, lists.page) and not lists.take(len(line)):
                        message = _error(lists.page, lists.problem)
                    elif whole:
                        message = _message(line) or _message(readable(line, log))
                        message = message or _failure(line, f"{_INVALID} {_excerpt(line)}")
                    else:
                        message = _failure(
                            line, f"its answer is larger than {max_message_bytes} bytes; ask for less at a time"
                        )
                    if message is not None:
                        await received.send(message)
                    elif limit.take():
                        log(logging.WARNING, f"not a message: {_excerpt(line)}")
            with anyio.move_on_after(_GRACE_SECONDS):
                await _wait(process)
                _signal_group(process, _SIGKILL)  # at once, because the number may later be another group's
                cleared = True
                await no_more_words.wait()
            if not leaving:
                if last_words and process.returncode:
                    log(logging.WARNING, f"{_ending(process.returncode)} after it wrote: {last_words}")
                lost(_ending(process.returncode))

    async def write() -> None:
        async with sending:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                async for message in sending:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await stdin.send(text.encode() + b"\n")

    async def read_errors() -> None:
        nonlocal last_words
        limit = RateLimiter(_LINES_PER_SECOND)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line, _ in _lines(stderr, _HEAD_BYTES):
                last_words = _excerpt(line) or last_words
                if limit.take():
                    log(logging.INFO, f"stderr: {_excerpt(line)}")
        no_more_words.set()

    try:
        async with anyio.create_task_group() as tasks:
            for each in (read, write, read_errors):
                tasks.start_soon(each)
            try:
                yield receive, send
            finally:
                leaving = True
                with anyio.CancelScope(shield=True):
                    receive.close()
                    send.close()
                    if not cleared:
                        await _stop(process)
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def _start(command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None) -> Process:
    try:
        with anyio.CancelScope(shield=True):  # a started process must be returned, so that it can be stopped
            return await anyio.open_process(list(command), env=env, cwd=cwd, start_new_session=True)
    except FileNotFoundError as error:
        program, has_more, _ = command[0].partition(" ")
        if not has_more or error.filename != command[0]:
            raise
        problem = f"{error.strerror}; pass its arguments separately in args"
        raise FileNotFoundError(error.errno, problem, f"{program} …") from None
    raise AssertionError("unreachable: nothing cancels the scope")


async def _lines(stream: AsyncIterable[bytes], max_bytes: int) -> AsyncGenerator[tuple[bytes, bool]]:
    """Yields lines without their ends, and True if complete. Of an overlong line, yields only its head and tail."""
    line, whole = bytearray(), True
    async for chunk in stream:
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:  # the part before it is complete lines
                yield bytes(line), whole
                line, whole = bytearray(), True
            line += piece
            if not whole or len(line) > max_bytes:
                whole = False
                del line[_HEAD_BYTES:-_TAIL_BYTES]


def _message(line: bytes) -> SessionMessage | None:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        return None


def _failure(line: bytes, problem: str) -> SessionMessage | None:
    """Makes an error for the request that a line answers, if its id comes before or after the result."""
    answered = _answered_request(line)
    return None if answered is None else _error(answered, problem)


def _error(request: RequestId, problem: str) -> SessionMessage:
    return SessionMessage(
        JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=INTERNAL_ERROR, message=problem))
    )


def _answered_request(line: bytes) -> RequestId | None:
    match = _ID_FIRST.match(line) or (_OUTCOME_FIRST.match(line) and _ID_LAST.search(line[-_TAIL_BYTES:]))
    return None if match is None else json.loads(match[1])


def _is_page(line: bytes, page: RequestId) -> bool:
    """True if a line answers the request for a page, or is overlong and has no known id."""
    answered = _answered_request(line)
    return len(line) > _UNKNOWN_BYTES if answered is None else str(answered) == str(page)


def _excerpt(line: bytes) -> str:
    return line[:_HEAD_BYTES].decode(errors="replace").rstrip()


# --- the end of a process -----------------------------------------------------------------------------------


async def _stop(process: Process) -> None:
    """Ends a process and its children, except children that have left its process group."""
    assert process.stdin is not None
    with suppress(OSError, anyio.BrokenResourceError):
        await process.stdin.aclose()
    for sign in (None, signal.SIGTERM, _SIGKILL):
        if sign is not None:
            _signal_group(process, sign)
        with anyio.move_on_after(_GRACE_SECONDS):
            await _wait(process)
            break
    _signal_group(process, _SIGKILL)  # children that are still running
    if process.returncode is not None and sys.platform != "win32":
        await run_shielded_in_thread(partial(reap, -process.pid))


async def _wait(process: Process) -> None:
    """Waits for the process only. `process.wait()` would also wait for processes that have inherited its pipes."""
    while process.returncode is None:
        await anyio.sleep(_POLL_SECONDS)


def _signal_group(process: Process, sign: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()  # the process alone, as there are no groups to signal
        else:
            os.killpg(process.pid, sign)


def _ending(code: int | None) -> str:
    match code:
        case None:
            return "it closed its output"
        case int() if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        case _:
            return f"its process ended with exit code {code}"
