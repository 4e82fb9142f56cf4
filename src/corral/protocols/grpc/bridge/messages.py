"""The service `corral.v1.Bridge`, by which runtimes call tools without loss: values are the tagged JSON of a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from corral.types import CallError, EncodedValue

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


CallRequest: Any = _class("CallRequest")
CallReply: Any = _class("CallReply")
CallsRequest: Any = _class("CallsRequest")
CallsReply: Any = _class("CallsReply")
RenewRequest: Any = _class("RenewRequest")
RenewReply: Any = _class("RenewReply")


def value_reply(value: EncodedValue | None) -> Any:
    """Makes the message of a value, or of an item of a stream; None if the call returns nothing."""
    return CallReply() if value is None else CallReply(value=value.text, tagged=value.tagged or None)


def error_reply(error: CallError) -> Any:
    reply = CallReply()
    reply.error.code, reply.error.name, reply.error.message = error.code, error.name, error.message
    if error.retry_after_seconds is not None:
        reply.error.retry_after_seconds = error.retry_after_seconds
    if error.correlation_id is not None:
        reply.error.correlation_id = error.correlation_id
    return reply
