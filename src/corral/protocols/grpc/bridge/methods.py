"""Methods of the bridge: those of tools, and `corral.v1.Bridge`. gRPC and Connect share them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

import anyio
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import ListValue, Struct, Value
from google.protobuf.unknown_fields import UnknownFieldSet
from pydantic import BaseModel
from pydantic_core import from_json

from corral.bridges.base import BridgeHost
from corral.bridges.web import Batch, ended, load_of
from corral.bridges.web.documents import DocumentCache
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.errors import BridgeError, InvalidArguments, InvalidToolOutput, MalformedMessage
from corral.guest import decode_value, plain_json
from corral.protocols.grpc.bridge.descriptors import FieldPlan, FieldType, MessagePlan, RootPlan
from corral.protocols.grpc.bridge.messages import (
    BRIDGE_SERVICE,
    CallsReply,
    CallsRequest,
    RenewReply,
    RenewRequest,
    error_reply,
    value_reply,
)
from corral.protocols.grpc.bridge.messages import CallRequest as CallMessage
from corral.protocols.grpc.bridge.schema import PACKAGE, Method, ToolSchema, path_of
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, EncodedValue, Reply

_WHOLE = 2.0**53
"""Bound below which whole doubles are read as integers."""
_INT64 = range(-(2**63), 2**63)


def read_root(plan: RootPlan, message: Any) -> object:
    """Reads the JSON value of a message.

    Raises:
        InvalidArguments: a field is unknown.
    """
    _refuse_unknown(message, plan.message)
    if plan.whole is None:
        return _read_message(plan.message, message)
    return _read_message(plan.message, message).get(plan.whole.key, {})


def write_root(plan: RootPlan, value: object, message: Any) -> None:
    """Writes a value into an empty message.

    Raises:
        InvalidToolOutput: the value does not fit the message.
    """
    try:
        if plan.whole is None:
            _write_message(plan.message, value, message)
        elif plan.whole.name:
            _write_field(plan.whole, value, message)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidToolOutput(
            "the tool ran, but its result was withheld: it does not fit its message; corral.v1.Bridge/Call returns any"
        ) from error


# --- messages to JSON -------------------------------------------------------------------------------------------------


def _read_message(plan: MessagePlan, message: Any) -> dict[str, object]:
    read: dict[str, object] = {}
    for field in plan.fields:
        field_type = field.type
        if field_type.shape == "list":
            read[field.key] = [_read_one(field_type, each) for each in getattr(message, field.name)]
        elif field_type.shape == "map":
            read[field.key] = _read_map(field_type, getattr(message, field.name))
        elif not message.HasField(field.name):
            if field.required and field_type.nullable:
                read[field.key] = None
        elif field_type.shape == "wrapped_list":
            holder = getattr(message, field.name)
            _refuse_unknown(holder, plan)
            read[field.key] = [_read_one(field_type, each) for each in holder.items]
        elif field_type.shape == "wrapped_map":
            holder = getattr(message, field.name)
            _refuse_unknown(holder, plan)
            read[field.key] = _read_map(field_type, holder.items)
        else:
            read[field.key] = _read_one(field_type, getattr(message, field.name))
    return read


def _read_map(field_type: FieldType, entries: Mapping[str, Any]) -> dict[str, object]:
    return {key: _read_one(field_type, entries[key]) for key in entries}


def _read_one(field_type: FieldType, value: Any) -> object:
    if field_type.message is not None:
        _refuse_unknown(value, field_type.message)
        return _read_message(field_type.message, value)
    match field_type.kind:
        case "value":
            return _read_value(value)
        case "struct":
            return {key: _read_value(member) for key, member in value.fields.items()}
        case _:
            return value


def _read_value(value: Value) -> object:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) < _WHOLE else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return {key: _read_value(member) for key, member in value.struct_value.fields.items()}
        case "list_value":
            return [_read_value(each) for each in value.list_value.values]
        case _:
            return None


def _refuse_unknown(message: Message, plan: MessagePlan) -> None:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        raise InvalidArguments(
            f"{plan.name.rpartition('.')[2]} has no field {number}; regenerate the client from the current descriptors"
        )


# --- JSON to messages -------------------------------------------------------------------------------------------------


def _write_message(plan: MessagePlan, value: object, message: Any) -> None:
    members = _members(value)
    for field in plan.fields:
        if field.key in members:
            _write_field(field, members[field.key], message)


def _write_field(field: FieldPlan, value: object, message: Any) -> None:
    field_type = field.type
    if value is None and (field_type.nullable or field_type.kind != "value"):
        return
    match field_type.shape:
        case "one" if field_type.kind in ("message", "struct", "value"):
            getattr(message, field.name).SetInParent()
            _write_part(field_type, value, getattr(message, field.name))
        case "one":
            setattr(message, field.name, _scalar(field_type, value))
        case "list" | "map":
            _write_many(field_type, value, getattr(message, field.name))
        case _:
            holder = getattr(message, field.name)
            holder.SetInParent()
            _write_many(field_type, value, holder.items)


def _write_many(field_type: FieldType, value: object, target: Any) -> None:
    composed = field_type.kind in ("message", "struct", "value")
    if field_type.shape in ("map", "wrapped_map"):
        for key, member in _members(value).items():
            if composed:
                _write_part(field_type, member, target[key])
            else:
                target[key] = _scalar(field_type, member)
        return
    if isinstance(value, str | bytes | Mapping):
        raise TypeError("not a list")
    for each in cast("Sequence[object]", value):
        if composed:
            _write_part(field_type, each, target.add())
        else:
            target.append(_scalar(field_type, each))


def _write_part(field_type: FieldType, value: object, target: Any) -> None:
    if field_type.message is not None:
        _write_message(field_type.message, value, target)
    elif field_type.kind == "struct":
        _write_struct(_members(value), target)
    else:
        _write_value(value, target)


def _scalar(field_type: FieldType, value: object) -> Any:
    match field_type.kind:
        case "int64":
            number = int(cast("int", value))
            if number not in _INT64 or number != value:
                raise ValueError("not an int64")
            return number
        case "bytes":
            return value.encode() if isinstance(value, str) else bytes(cast("bytes", value))
        case "string":
            return value if isinstance(value, str) else str(from_json(plain_json(value)))
        case "bool" if not isinstance(value, bool):
            raise TypeError("not a bool")
        case _:
            return value


def _members(value: object) -> Mapping[str, object]:
    if isinstance(value, BaseModel):
        return value.model_dump(by_alias=True)
    if not isinstance(value, Mapping):
        raise TypeError("not an object")
    return cast("Mapping[str, object]", value)


def _write_struct(value: Mapping[str, object], target: Struct) -> None:
    for key, member in value.items():
        _write_value(member, target.fields[key])


def _write_value(value: object, target: Value) -> None:
    match value:
        case None:
            target.null_value = 0  # pyright: ignore[reportAttributeAccessIssue]
        case bool():
            target.bool_value = value
        case int() | float():
            target.number_value = value
        case str():
            target.string_value = value
        case dict():
            target.struct_value.SetInParent()
            _write_struct(cast("dict[str, object]", value), target.struct_value)
        case list() | tuple():
            target.list_value.SetInParent()
            _write_list(cast("Sequence[object]", value), target.list_value)
        case _:
            _write_value(from_json(plain_json(value)), target)


def _write_list(value: Sequence[object], target: ListValue) -> None:
    for each in value:
        _write_value(each, target.values.add())


_WAITING_BYTES = 64_000
"""Size of items waiting for the client above which the tool has to wait."""


class ItemStream:
    """Stream of one call. `write` returns once the client can receive more."""

    def __init__(self, write: Callable[[EncodedValue], Awaitable[None]]) -> None:
        self._write = write
        self._items: deque[EncodedValue] = deque()
        self._size = 0
        self._ready = anyio.Event()
        self._room = anyio.Event()
        self._writing = anyio.Lock()

    def open(self, _abandon: Callable[[], object]) -> ItemStream:
        """Opens the stream. The client ends it by cancelling the call."""
        return self

    def put(self, item: EncodedValue) -> bool:
        """Adds an item. Returns False if `room` must be awaited before the next one."""
        self._items.append(item)
        self._size += len(item.text)
        self._ready.set()
        return self._size < _WAITING_BYTES

    async def room(self) -> None:
        """Waits until the items have been sent."""
        if self._size >= _WAITING_BYTES:
            self._room = anyio.Event()
            await self._room.wait()

    @asynccontextmanager
    async def written(self) -> AsyncGenerator[None]:
        """Writes items within the block, as they come; at its end all have been written."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write_items)
            yield
            await self._flush()
            tasks.cancel_scope.cancel()

    async def _write_items(self) -> None:
        while True:
            await self._ready.wait()
            await self._flush()

    async def _flush(self) -> None:
        async with self._writing:
            self._ready = anyio.Event()
            while self._items:
                item = self._items.popleft()
                await self._write(item)
                self._size -= len(item.text)
                if self._size < _WAITING_BYTES:
                    self._room.set()


class Exchange(Protocol):
    """One request of a method. Messages are those of protobuf; the exchange handles their form on the wire."""

    def begin(self, *, stream: bool, ping: Any = None) -> None:
        """Announces if the method streams, before any message. `ping` is a message that keeps a slow reply alive.

        Raises:
            BridgeError: the request has the form of another kind of method.
        """
        ...

    def message(self, kind: Any, *, batch: bool = False) -> AbstractAsyncContextManager[tuple[Any, int]]:
        """Reads the request's message and its size in bytes. Memory is reserved for it within the block.

        Raises:
            BridgeError: the message is too large, late, or has the wrong type.
        """
        ...

    async def write(self, message: Any, *, last: bool = False) -> None:
        """Sends a message: the only one, if the method does not stream. No message follows the `last` one."""
        ...


class MethodFailed(Exception):
    """Carries the error of a call to the end of its request."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error)
        self.error = error


_Serve: TypeAlias = Callable[[Exchange, Grant], Awaitable[None]]


class BridgeMethods:
    """Methods by path. Tools are looked up at each call, so that they can be added and removed."""

    def __init__(self, host: BridgeHost, schemas: DocumentCache[ToolSchema], protocol: str) -> None:
        self._host = host
        self._schemas = schemas
        self._protocol = protocol
        self._own: dict[str, _Serve] = {
            f"/{BRIDGE_SERVICE}/Call": self._call,
            f"/{BRIDGE_SERVICE}/Calls": self._calls,
            f"/{BRIDGE_SERVICE}/Renew": self._renew,
            f"/{BRIDGE_SERVICE}/Stream": self._stream,
        }

    async def serve(self, path: str, exchange: Exchange, grant: Grant) -> None:
        """Serves a request to its end.

        Raises:
            MethodFailed: the call failed.
            CorralError: the request failed as a whole.
        """
        if (serve := self._own.get(path)) is not None:
            await serve(exchange, grant)
            return
        if not path.startswith(f"/{PACKAGE}."):
            raise BridgeError("unknown method")
        method = (await self._schemas.of(grant)).method(path)
        if method is None:
            await self._refuse(path, grant)
        else:
            await self._tool(method, exchange, grant)

    async def _refuse(self, path: str, grant: Grant) -> None:
        """Refuses a method that the caller cannot see. Its call passes the guards, which record the reason."""
        named = [str(name) for name in grant.tools.snapshot() if path_of(name) == path]
        tool = named[0] if named else path.rpartition(".")[2].replace("Tools/", ".").lstrip(".")
        called = CallRequest(tool[:MAX_TOOL_PATH], None, load_of(grant).count(1))
        reply = await self._handle(called, grant)
        raise MethodFailed(reply.error or ended())

    async def _tool(self, method: Method, exchange: Exchange, grant: Grant) -> None:
        exchange.begin(stream=method.stream)
        async with exchange.message(method.request) as (request, size):
            sequence = load_of(grant).count(1)
            try:
                input = await grant.run_by_size(read_root, method.input, request, size=size)
            except RecursionError:
                raise MalformedMessage("the message is nested too deeply") from None

            async def write(item: EncodedValue) -> None:
                response = await grant.run_by_size(lambda: _response(method, _decode(item)), size=len(item.text))
                await exchange.write(response)

            called = CallRequest(method.tool, input, sequence, size)
            reply = await self._answer(called, grant, write if method.stream else None)
            if reply.error is not None:
                raise MethodFailed(reply.error)
            if not method.stream:
                size = 0 if reply.encoded is None else len(reply.encoded.text)
                await exchange.write(await grant.run_by_size(lambda: _response(method, _value_of(reply)), size=size))

    async def _answer(
        self, called: CallRequest, grant: Grant, write: Callable[[EncodedValue], Awaitable[None]] | None
    ) -> Reply:
        if write is None:
            return await self._handle(called, grant)
        items = ItemStream(write)
        async with items.written():
            return await self._handle(called._replace(open_stream=items.open), grant)

    async def _call(self, exchange: Exchange, grant: Grant, *, stream: bool = False) -> None:
        exchange.begin(stream=stream)

        async def write(item: EncodedValue) -> None:
            await exchange.write(value_reply(item))

        async with exchange.message(CallMessage) as (request, _):
            sequence = load_of(grant).count(1)
            read = partial(decode_value, request.input or b"{}", tagged=request.tagged)
            input: object = await grant.run_by_size(read, size=len(request.input))
            called = CallRequest(request.tool[:MAX_TOOL_PATH], input, sequence, len(request.input), read)
            tool = grant.peek_tool(called.tool)
            streams = stream and tool is not None and tool.stream
            reply = await self._answer(called, grant, write if streams else None)
            if reply.error is not None:
                await exchange.write(error_reply(reply.error))
            elif not streams:
                await exchange.write(value_reply(None if reply.nothing else reply.encoded))

    async def _stream(self, exchange: Exchange, grant: Grant) -> None:
        await self._call(exchange, grant, stream=True)

    async def _calls(self, exchange: Exchange, grant: Grant) -> None:
        exchange.begin(stream=True, ping=CallsReply())

        async def write(data: bytes, /, *, last: bool = False) -> None:
            if data:
                await exchange.write(CallsReply(line=data), last=last)

        async with exchange.message(CallsRequest, batch=True) as (request, _):
            batch = await Batch.read(self._host, grant, self._protocol, request.calls)
            await batch.answer(write)

    async def _renew(self, exchange: Exchange, grant: Grant) -> None:
        exchange.begin(stream=False)
        async with exchange.message(RenewRequest):
            token, expires = self._host.renew(grant)
            await exchange.write(RenewReply(token=token, expires=expires))

    async def _handle(self, called: CallRequest, grant: Grant) -> Reply:
        return await self._host.handle(Call(called, grant, protocol=self._protocol))


def _response(method: Method, value: object) -> Any:
    message = method.response()
    write_root(method.output, value, message)
    return message


def _value_of(reply: Reply) -> object:
    return _decode(reply.encoded) if reply.value is None and reply.encoded is not None else reply.value


def _decode(value: EncodedValue) -> object:
    return decode_value(value.text, tagged=True) if value.tagged else from_json(value.text)
