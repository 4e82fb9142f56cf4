"""MCP servers over streamable HTTP: mcp's transport, over an HTTP client that limits responses."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp_types import INVALID_REQUEST, jsonrpc_message_adapter
from typing_extensions import override

from corral.sources.mcp.bounded_transport import ListRoom, readable

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
