"""Messages from an MCP server to the session: limited in rate, and repaired if necessary."""

from __future__ import annotations

import contextvars
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, cast

import anyio
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

from corral.types import JsonSchema

RAW = "corral/raw"
"""Member of `_meta` that carries a call's result as the server sent it, inside a result that mcp accepts."""
_CALLS = frozenset({"tools/call", "tasks/result", "tasks/cancel"})

_BUDGET_PER_SECOND = 5_000
_NOISE_COST = 10
"""Cost of a message that is not an answer, compared with an answer. So at most 500 of them are read per second."""
MAX_LIST_BYTES = 4_000_000
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

    problem = f"its list of tools is larger than {MAX_LIST_BYTES} bytes"

    def __init__(self) -> None:
        self.left = MAX_LIST_BYTES
        self.page: RequestId | None = None
        """Id of the request for a page that has not been answered yet."""

    def notice(self, request: JSONRPCRequest) -> None:
        """Remembers a request, about to be sent, if it is for a page."""
        if request.method == "tools/list":
            if not (request.params or {}).get("cursor"):
                self.left = MAX_LIST_BYTES
            self.page = request.id

    def take(self, size: int) -> bool:
        """Counts the bytes of a page; returns False if there are too many."""
        self.left -= size
        return self.left >= 0


class BoundedMessages:
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Sent:
    """Passes messages on to a server, and shows each to `sending` (`mcp.shared._stream_protocols.WriteStream`)."""

    def __init__(self, stream: Any, sending: Callable[[object], None]) -> None:
        self._stream = stream
        self._sending = sending

    async def send(self, item: SessionMessage, /) -> None:
        self._sending(item.message)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


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
