"""Calls in one request from corral's own runtimes, in the form shared by all protocols over HTTP, and items of
streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, NotRequired, Protocol, Self, TypeAlias

import anyio
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json, to_json
from typing_extensions import TypedDict, override

from corral.bridges.base import BridgeHost
from corral.bridges.web.request_load import MAX_CALLS, load_of, parse_json
from corral.bridges.web.request_watch import ended
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.concurrency.fairness import INLINE_BYTES
from corral.errors import MalformedMessage
from corral.guest import decode_value, encode_value, plain_json, revive_value
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, EncodedValue, JsonSchema, Reply

_STRICT = ConfigDict(extra="forbid", strict=True)


@with_config(_STRICT)
class OneCall(TypedDict):
    sequence: Annotated[int, Field(ge=1, le=2**53 - 1)]
    tool: Annotated[str, Field(min_length=1, max_length=MAX_TOOL_PATH)]
    input: NotRequired[Any]
    tagged: NotRequired[bool]


@with_config(_STRICT)
class Calls(TypedDict):
    calls: Annotated[list[OneCall], Field(min_length=1, max_length=MAX_CALLS)]
    stream: NotRequired[bool]


_calls = TypeAdapter(Calls)
CALLS_SCHEMA: JsonSchema = _calls.json_schema(ref_template="#/components/schemas/{model}")
"""Schema of the body of `POST /calls`, with its own `$defs`."""


class _WriteLine(Protocol):
    """Writes a line of a reply. The last line, which can be empty, ends the reply."""

    async def __call__(self, data: bytes, /, *, last: bool = False) -> None: ...


class Batch:
    """Calls of one request.

    Raises:
        CallBudgetExceeded: see `RequestLoad.count`.
    """

    @classmethod
    async def read(cls, host: BridgeHost, grant: Grant, protocol: str, body: bytes) -> Self:
        """Reads the calls in a body, in a thread if it is large.

        Raises:
            MalformedMessage: the shape is wrong, two calls have the same sequence number, or a tag is wrong.
            CallBudgetExceeded: see `RequestLoad.count`.
        """
        if len(body) <= INLINE_BYTES:
            calls, reads_streams = calls_of(parse_json(body), len(body), grant)
        else:
            calls, reads_streams = await grant.run_by_size(
                lambda: calls_of(parse_json(body), len(body), grant), size=len(body)
            )
        return cls(host, grant, protocol, calls, reads_streams=reads_streams)

    def __init__(
        self, host: BridgeHost, grant: Grant, protocol: str, requests: list[CallRequest], *, reads_streams: bool
    ) -> None:
        first = load_of(grant).count(len(requests))
        self._host = host
        self._unanswered = {
            call.sequence: Call(call._replace(sequence=first + index), grant, protocol=protocol)
            for index, call in enumerate(requests)
        }
        """Calls by the client's sequence numbers, which also identify the lines."""
        self._alone = len(requests) == 1
        self._streaming = {call.sequence for call in requests if reads_streams and streams(grant, call)}

    async def answer(self, write: _WriteLine) -> None:
        """Runs the calls concurrently, and writes each reply as a line as soon as it is there."""
        if self._alone:
            [number] = self._unanswered
            await self._answer(number, write)
            return
        async with anyio.create_task_group() as tasks:
            for number in list(self._unanswered):
                tasks.start_soon(self._answer, number, write)
        await write(b"", last=True)

    async def end(self, write: _WriteLine) -> None:
        """Writes errors for the calls that got no reply because their execution ended."""
        for number in self._unanswered:
            await write(line(number, Reply(error=ended())))
        await write(b"", last=True)

    async def _answer(self, number: int, write: _WriteLine) -> None:
        call = self._unanswered[number]
        if number not in self._streaming:
            data = line(number, await self._host.handle(call))
        elif not self._alone:  # the stream would block the replies to the other calls
            data = b'{"sequence":%d,"alone":true}\n' % number
        else:
            stream = LineStream(items_writer(number, write))
            call.request = call.request._replace(open_stream=stream.open)
            async with stream.written():
                reply = await self._host.handle(call)
            data = line(number, reply)
        del self._unanswered[number]
        await write(data, last=self._alone)


def calls_of(body: object, size: int, grant: Grant) -> tuple[list[CallRequest], bool]:
    """Returns the calls of a parsed body of `size` bytes, and whether the client reads streams.

    Raises:
        MalformedMessage: the shape is wrong, two calls have the same sequence number, or a tag is wrong.
    """
    try:
        request = _calls.validator.validate_python(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MalformedMessage(f"the request's body is wrong at {place or 'its root'}: {first['msg']}") from None
    calls = request["calls"]
    if len(calls) > 1 and len({call["sequence"] for call in calls}) < len(calls):
        raise MalformedMessage("two calls of the request have the same sequence number")
    made: list[CallRequest] = []
    for call in calls:
        value = call.get("input", {})
        small = len(calls) == 1 and size <= grant.limits.tool_input_bytes
        reread = None
        tagged = call.get("tagged", False)
        if not small or size > INLINE_BYTES:
            text = to_json(value)
            size, reread = len(text), partial(decode_value, text, tagged=tagged)
        if tagged:
            value = revive_value(value)
        made.append(CallRequest(call["tool"], value, call["sequence"], size, reread))
    return made, request.get("stream", False)


def with_own_size(call: CallRequest) -> CallRequest:
    """Returns a call with plain JSON input. The record of the call keeps the input encoded, with its own size."""
    text = to_json(call.input, inf_nan_mode="constants")
    return call._replace(size=len(text), reread=partial(decode_value, text, tagged=False))


def streams(grant: Grant, call: CallRequest) -> bool:
    """True if the tool of a call streams."""
    tool = grant.peek_tool(call.tool)
    return tool is not None and tool.stream


def line(number: int, reply: Reply) -> bytes:
    """Encodes a reply as a line; `number` is the client's number of the call."""
    if reply.error is not None:
        return b'{"sequence":%d,"error":%b}\n' % (number, to_json(error_content(reply.error)))
    if reply.nothing:
        return b'{"sequence":%d}\n' % number
    value = reply.encoded or encode_value(reply.value)
    tagged = b',"tagged":true' if value.tagged else b""
    return b'{"sequence":%d,"value":%b%b}\n' % (number, value.text, tagged)


def items_writer(number: int, write: _WriteLine) -> _WriteItems:
    """Returns the function that writes a call's items, several per line. The first line opens the stream."""

    async def write_items(items: Sequence[EncodedValue]) -> None:
        tagged = b',"tagged":true' if any(item.tagged for item in items) else b""
        await write(b'{"sequence":%d,"items":[%b]%b}\n' % (number, b",".join(item.text for item in items), tagged))

    return write_items


def error_content(error: CallError) -> dict[str, object]:
    """Returns the members of an error."""
    content: dict[str, object] = {"code": error.code, "name": error.name, "message": error.message}
    if error.retry_after_seconds is not None:
        content["retryAfterSeconds"] = error.retry_after_seconds
    return content


_LINE_BYTES = 64_000
"""Bytes queued for the client before the tool has to wait, on top of the buffers of server and socket."""


_WriteItems: TypeAlias = Callable[[Sequence[EncodedValue]], Awaitable[None]]
"""Writes items of a stream; the first write, which opens it, can have none."""


class LineStream:
    """Collects a call's items and sends them in groups."""

    def __init__(self, write: _WriteItems) -> None:
        self._write = write
        self._items: list[EncodedValue] = []
        self._size = 0
        self._ready = anyio.Event()
        self._room = anyio.Event()
        self._writing = anyio.Lock()

    def open(self, _abandon: Callable[[], object]) -> LineStream:
        """Opens the stream. The client ends it by disconnecting, which also cancels the call."""
        self._ready.set()
        return self

    def put(self, item: EncodedValue) -> bool:
        """Queues an item. Returns False if `room` must be awaited before the next one."""
        self._items.append(item)
        self._size += len(item.text)
        self._ready.set()
        return self._size < _LINE_BYTES

    async def room(self) -> None:
        """Waits until the items have been sent."""
        if self._size >= _LINE_BYTES:
            self._room = anyio.Event()
            await self._room.wait()

    @asynccontextmanager
    async def written(self) -> AsyncGenerator[None]:
        """Writes lines during the block as items arrive; at its end all have been written."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write_lines)
            yield
            await self._flush()
            tasks.cancel_scope.cancel()

    async def _write_lines(self) -> None:
        while True:
            await self._ready.wait()
            await self._flush()

    async def _flush(self) -> None:
        """Writes a line with the queued items. The first line is written even without items."""
        async with self._writing:
            if not self._ready.is_set():
                return
            items, self._items, self._size = self._items, [], 0
            self._ready = anyio.Event()
            await self._write(items)
            self._room.set()


class PlainLineStream(LineStream):
    """Stream whose items are plain JSON, without tags."""

    @override
    def put(self, item: EncodedValue) -> bool:
        if item.tagged:
            item = EncodedValue(plain_json(revive_value(from_json(item.text))), tagged=False)
        return super().put(item)
