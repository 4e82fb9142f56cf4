"""Methods of the bridge: one for each tool, and `corral.v1.Bridge`. gRPC and Connect share them and their statuses.

`corral.v1.Bridge` is for runtimes, and loses no information: values are tagged JSON, as over a pipe.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.unknown_fields import UnknownFieldSet
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus
from grpc import StatusCode
from pydantic import BaseModel
from pydantic_core import from_json

from corral.bridges.base import BridgeHost
from corral.bridges.web import Batch, load_of
from corral.bridges.web.batches import LineStream
from corral.bridges.web.documents import DocumentCache
from corral.bridges.web.request_watch import ended
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.errors import (
    AccessDenied,
    BridgeError,
    CorralError,
    InvalidArguments,
    InvalidToolOutput,
    MalformedMessage,
    ToolFailed,
    error_class,
)
from corral.guest import decode_value, plain_json
from corral.logs import get_logger
from corral.protocols.grpc.tool_schema import (
    PACKAGE,
    FieldPlan,
    FieldType,
    MessagePlan,
    Method,
    RootPlan,
    ToolSchema,
    path_of,
)
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, EncodedValue, Reply

logger = get_logger("corral.bridges")

# --- the messages of runtimes -------------------------------------------------------------------------------

BRIDGE_SERVICE = "corral.v1.Bridge"
_FILE = "corral/v1/bridge.proto"
_KINDS = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "string": FieldDescriptorProto.TYPE_STRING,
}
_Fields: TypeAlias = Sequence[tuple[str, str]]
_ERROR: _Fields = (
    ("code", "string"),
    ("name", "string"),
    ("message", "string"),
    ("retry_after_seconds", "double"),
    ("correlation_id", "string"),
)
_MESSAGES: dict[str, _Fields] = {
    "CallRequest": (("tool", "string"), ("input", "bytes"), ("tagged", "bool")),
    "CallError": _ERROR,
    "CallReply": (("value", "bytes"), ("tagged", "bool"), ("error", "CallError")),
    "CallsRequest": (("calls", "bytes"),),
    "CallsReply": (("line", "bytes"),),
    "RenewRequest": (),
    "RenewReply": (("token", "string"), ("expires", "double")),
}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.title() for each in others)


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name=_FILE, package="corral.v1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            made = message.field.add(
                name=field,
                json_name=_camel(field),
                number=number,
                label=FieldDescriptorProto.LABEL_OPTIONAL,
                proto3_optional=True,
            )
            made.oneof_index = number - 1
            message.oneof_decl.add(name=f"_{field}")
            if kind in _KINDS:
                made.type = _KINDS[kind]
            else:
                made.type = FieldDescriptorProto.TYPE_MESSAGE
                made.type_name = f".corral.v1.{kind}"
    service = file.service.add(name="Bridge")
    service.method.add(name="Call", input_type=".corral.v1.CallRequest", output_type=".corral.v1.CallReply")
    service.method.add(
        name="Stream", input_type=".corral.v1.CallRequest", output_type=".corral.v1.CallReply", server_streaming=True
    )
    service.method.add(
        name="Calls", input_type=".corral.v1.CallsRequest", output_type=".corral.v1.CallsReply", server_streaming=True
    )
    service.method.add(name="Renew", input_type=".corral.v1.RenewRequest", output_type=".corral.v1.RenewReply")
    return file


POOL = DescriptorPool()
POOL.AddSerializedFile(_file().SerializeToString())


def _class(name: str) -> Any:
    return GetMessageClass(POOL.FindMessageTypeByName(f"corral.v1.{name}"))


CallMessage: Any = _class("CallRequest")
CallReply: Any = _class("CallReply")
CallsRequest: Any = _class("CallsRequest")
CallsReply: Any = _class("CallsReply")
RenewRequest: Any = _class("RenewRequest")
RenewReply: Any = _class("RenewReply")


def _value_reply(value: EncodedValue | None) -> Any:
    """Makes the message of a value, or of an item of a stream; None if the call returns nothing."""
    return CallReply() if value is None else CallReply(value=value.text, tagged=value.tagged or None)


def _error_reply(error: CallError) -> Any:
    reply = CallReply()
    reply.error.code, reply.error.name, reply.error.message = error.code, error.name, error.message
    if error.retry_after_seconds is not None:
        reply.error.retry_after_seconds = error.retry_after_seconds
    if error.correlation_id is not None:
        reply.error.correlation_id = error.correlation_id
    return reply


# --- statuses of failed calls: a gRPC code, and details with the error's own code ---------------------------

_Detail: TypeAlias = ErrorInfo | RetryInfo

_CODES = {
    "call_budget_exceeded": StatusCode.RESOURCE_EXHAUSTED,
    "cancelled": StatusCode.CANCELLED,
    "execution_ended": StatusCode.UNAUTHENTICATED,
    "host_lost": StatusCode.UNAVAILABLE,
    "invalid_arguments": StatusCode.INVALID_ARGUMENT,
    "invalid_token": StatusCode.UNAUTHENTICATED,
    "malformed_message": StatusCode.INVALID_ARGUMENT,
    "message_too_large": StatusCode.RESOURCE_EXHAUSTED,
    "rate_limited": StatusCode.RESOURCE_EXHAUSTED,
    "tool_error": StatusCode.FAILED_PRECONDITION,
    "tool_not_found": StatusCode.UNIMPLEMENTED,
}
_MESSAGE_BYTES = 1_000
"""Maximum bytes of a message in a header, where each byte can take three. Clients accept headers of 8 KB."""


class Status(NamedTuple):
    code: StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]


def code_of(error: CallError) -> StatusCode:
    """Returns the gRPC code of an error: by its code, else PERMISSION_DENIED for denials, else INTERNAL."""
    denied = issubclass(error_class(error.code), AccessDenied)
    return _CODES.get(error.code, StatusCode.PERMISSION_DENIED if denied else StatusCode.INTERNAL)


def details_of(error: CallError) -> list[_Detail]:
    """Returns gRPC's standard details: ErrorInfo, and RetryInfo for a rate limit."""
    info = ErrorInfo(reason=error.code.upper(), domain="corral", metadata={"code": error.code, "name": error.name})
    if error.correlation_id is not None:
        info.metadata["correlationId"] = error.correlation_id
    if error.retry_after_seconds is None:
        return [info]
    delay = Duration()
    delay.FromNanoseconds(round(min(error.retry_after_seconds, 3e8) * 1e9))
    return [info, RetryInfo(retry_delay=delay)]


def status_of(error: CallError | CorralError) -> Status:
    """Returns the status of an error. Its details are in a `google.rpc.Status`."""
    if isinstance(error, CorralError):
        error = CallError.of(error)
    code = code_of(error)
    message = error.message.encode()[:_MESSAGE_BYTES].decode("utf-8", "ignore")
    status = RpcStatus(code=code.value[0], message=message, details=[_pack(each) for each in details_of(error)])
    trailers: list[tuple[str, str | bytes]] = [
        ("corral-error-code", error.code),
        ("corral-error-name", error.name),
        ("grpc-status-details-bin", status.SerializeToString()),
    ]
    if error.retry_after_seconds is not None:
        trailers.append(("corral-retry-after-seconds", str(error.retry_after_seconds)))
    return Status(code, message, tuple(trailers))


def _pack(message: _Detail) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def error_within(error: Exception, path: str) -> CorralError:
    """Returns the error in a group that is meant for clients. If there is no such error, logs the group and returns an
    error without details."""
    inner = error
    while isinstance(inner, ExceptionGroup):
        inner = cast("ExceptionGroup[Exception]", inner).exceptions[0]
    if isinstance(inner, CorralError):
        return inner
    correlation = secrets.token_hex(6)
    logger.error("request %s failed (correlation id %s)", path, correlation, exc_info=error)
    return ToolFailed(f"the request failed (correlation id {correlation})", correlation_id=correlation)


# --- values -------------------------------------------------------------------------------------------------

_WHOLE = 2.0**53
"""Maximum of whole doubles that are read as integers."""
_INT64 = range(-(2**63), 2**63)


def read_root(plan: RootPlan, message: Any) -> object:
    """Reads the JSON value of a message. Raises InvalidArguments if a field is unknown."""
    _refuse_unknown(message, plan.message)
    if plan.whole is None:
        return _read_message(plan.message, message)
    return _read_message(plan.message, message).get(plan.whole.key, {})


def write_root(plan: RootPlan, value: object, message: Any) -> None:
    """Writes a value into an empty message. Raises InvalidToolOutput if the value does not fit the message."""
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
            for each in cast("Sequence[object]", value):
                _write_value(each, target.list_value.values.add())
        case _:
            _write_value(from_json(plain_json(value)), target)


# --- methods ------------------------------------------------------------------------------------------------


class Exchange(Protocol):
    """One request of a method. Messages are protobuf's; the exchange handles their form on the wire."""

    def begin(self, *, stream: bool, ping: Any = None) -> None:
        """Announces whether the method streams, before any message. `ping` is a message that keeps a slow reply alive.

        Raises:
            BridgeError: the request has the form for another kind of method.
        """
        ...

    def message(self, kind: Any, *, batch: bool = False) -> AbstractAsyncContextManager[tuple[Any, int]]:
        """Reads the request's message and its size in bytes. Memory is reserved for it during the block.

        Raises:
            BridgeError: the message is too large, late, or has the wrong type.
        """
        ...

    async def write(self, message: Any, *, last: bool = False) -> None:
        """Sends a message, which is the only one if the method does not stream. No message follows the `last` one."""
        ...


class MethodFailed(Exception):
    """Carries the error of a call to the end of its request."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error)
        self.error = error


_Serve: TypeAlias = Callable[[Exchange, Grant], Awaitable[None]]


class BridgeMethods:
    """Methods by path. Tools are looked up at each call, because they can be added and removed."""

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
            raise BridgeError(f"unknown method {path[:200]!r}; the .proto file of the bridge lists its methods")
        method = (await self._schemas.of(grant)).method(path)
        if method is None:
            await self._refuse(path, grant)
        else:
            await self._tool(method, exchange, grant)

    async def _refuse(self, path: str, grant: Grant) -> None:
        """Refuses a method that the caller cannot see. The call passes through the guards, which record the reason."""
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

        async def write_items(items: Sequence[EncodedValue]) -> None:
            for item in items:
                await write(item)

        items = LineStream(write_items)
        async with items.written():
            return await self._handle(called._replace(open_stream=items.open), grant)

    async def _call(self, exchange: Exchange, grant: Grant, *, stream: bool = False) -> None:
        exchange.begin(stream=stream)

        async def write(item: EncodedValue) -> None:
            await exchange.write(_value_reply(item))

        async with exchange.message(CallMessage) as (request, _):
            sequence = load_of(grant).count(1)
            read = partial(decode_value, request.input or b"{}", tagged=request.tagged)
            input: object = await grant.run_by_size(read, size=len(request.input))
            called = CallRequest(request.tool[:MAX_TOOL_PATH], input, sequence, len(request.input), read)
            tool = grant.peek_tool(called.tool)
            streams = stream and tool is not None and tool.stream
            reply = await self._answer(called, grant, write if streams else None)
            if reply.error is not None:
                await exchange.write(_error_reply(reply.error))
            elif not streams:
                await exchange.write(_value_reply(None if reply.nothing else reply.encoded))

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
