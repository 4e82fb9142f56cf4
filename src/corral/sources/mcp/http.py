"""MCP servers over streamable HTTP: mcp's transport, over an HTTP client that bounds what it takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import JSONRPCRequest
from typing_extensions import override

from corral.sources.mcp.bounded_transport import ListRoom

__all__ = ["streamable_http"]


@asynccontextmanager
async def streamable_http(
    url: str,
    *,
    headers: Mapping[str, str],
    connect_timeout_seconds: float,
    max_message_bytes: int,
    lists: ListRoom,
    refused: Callable[[int], None],
    lost: Callable[[str], None],
) -> AsyncGenerator[Any]:
    """A transport to a server at a URL.

    `refused` hears the status of each answer that is an error, of which mcp does not tell; `lost` hears why a request
    could not be sent, which ends the connection. A user and a password in the URL are sent as a header, because httpx2
    logs URLs. Answers may take for ever: calls are bounded by their callers.
    """
    timeout = httpx2.Timeout(None, connect=connect_timeout_seconds, write=connect_timeout_seconds)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)

    async def watch(response: httpx2.Response) -> None:
        _bound(response, max_message_bytes)
        if _asks_for_a_page(response.request, lists):
            response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), lists)
        if response.status_code >= 400:
            refused(response.status_code)

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
    """Says why a request could not be sent."""

    def __init__(self, lost: Callable[[str], None], **options: Any) -> None:
        super().__init__(**options)
        self._lost = lost

    @override
    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, **options)
        except httpx2.TransportError as error:
            if request.method == "POST":
                self._lost(_reason(error))
            raise


def _reason(error: httpx2.TransportError) -> str:
    """Without what the error itself says: that may be of a proxy, with its password."""
    match error:
        case httpx2.ConnectTimeout():
            return "it did not accept a connection in time"
        case httpx2.ConnectError():
            return "it does not accept connections"
        case _:
            return f"the connection broke ({type(error).__name__})"


def _bound(response: httpx2.Response, max_bytes: int) -> None:
    """Streams of events are bounded by event, by mcp; all else is bounded as a whole.

    That includes streams that mcp or httpx2 reads to the end without a look at them: redirects, and answers to DELETE.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.RemoteProtocolError("the answer is compressed, which was not asked for", request=response.request)
    events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    if not (events and response.status_code == 200 and response.request.method != "DELETE"):
        response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), _Room(max_bytes))


def _asks_for_a_page(request: httpx2.Request, lists: ListRoom) -> bool:
    if request.method != "POST":
        return False
    try:
        return lists.asks(JSONRPCRequest.model_validate_json(request.content))
    except ValueError:  # it is no request, but a notification or an answer
        return False


class _Room:
    """For one answer."""

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
