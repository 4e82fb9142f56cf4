"""Server reflection, v1 and v1alpha, over the descriptors that one caller may see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection_pb2

from corral.errors import MalformedMessage, MessageTooLarge
from corral.protocols.grpc.bridge.messages import BRIDGE_SERVICE, POOL
from corral.protocols.grpc.bridge.schema import FILE, ToolSchema

REFLECTION_SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
"""Both have the same messages."""
_MAX_SECONDS = 60.0
_MAX_REQUESTS = 2_000
_MAX_REQUEST_BYTES = 2_000


class Reflection:
    """One stream of questions about a schema."""

    def __init__(self, schema: ToolSchema, service: str) -> None:
        self._schema = schema
        self._service = service

    async def serve(self, read: Callable[[], Awaitable[Any]], write: Callable[[Any], Awaitable[None]]) -> None:
        """Answers until the client ends the stream, or it has been open for a minute.

        Raises:
            MalformedMessage: a message is no request.
            MessageTooLarge: a request is too long, or there are too many.
        """
        with anyio.move_on_after(_MAX_SECONDS):
            for _ in range(_MAX_REQUESTS):
                body = await read()
                if not isinstance(body, bytes):
                    return
                if len(body) > _MAX_REQUEST_BYTES:
                    raise MessageTooLarge(f"a request of reflection has more than {_MAX_REQUEST_BYTES} bytes")
                try:
                    request = reflection_pb2.ServerReflectionRequest.FromString(body)
                except DecodeError:
                    raise MalformedMessage("the message is not of its type") from None
                await write(self._answer(request))
            raise MessageTooLarge(f"a stream of reflection has more than {_MAX_REQUESTS} requests")

    def _answer(self, request: reflection_pb2.ServerReflectionRequest) -> reflection_pb2.ServerReflectionResponse:
        reply = reflection_pb2.ServerReflectionResponse(valid_host=request.host, original_request=request)
        match request.WhichOneof("message_request"):
            case "list_services":
                for name in (*self._schema.services, BRIDGE_SERVICE, self._service):
                    reply.list_services_response.service.add(name=name)
            case "file_by_filename":
                name = request.file_by_filename
                self._describe(reply, lambda pool: pool.FindFileByName(name).name)
            case "file_containing_symbol":
                symbol = request.file_containing_symbol
                self._describe(reply, lambda pool: _file_of(pool, symbol))
            case "all_extension_numbers_of_type":
                reply.all_extension_numbers_response.base_type_name = request.all_extension_numbers_of_type
            case _:
                _not_found(reply)
        return reply

    def _describe(self, reply: reflection_pb2.ServerReflectionResponse, find: Callable[[DescriptorPool], str]) -> None:
        """Adds the file that is found, after those that it needs."""
        for pool in (self._schema.pool, POOL, _REFLECTION_POOL):
            try:
                name = find(pool)
            except KeyError:
                continue
            described = pool.FindFileByName(name)
            for each in (described, *described.dependencies):
                # With comments, which a pool does not give back.
                file = self._schema.file.SerializeToString() if each.name == FILE else each.serialized_pb
                reply.file_descriptor_response.file_descriptor_proto.append(file)
            return
        _not_found(reply)


def _file_of(pool: DescriptorPool, symbol: str) -> str:
    """Returns the file of a symbol. The pool of protobuf knows those of methods and fields by their parents only."""
    try:
        return pool.FindFileContainingSymbol(symbol).name
    except KeyError:
        return pool.FindFileContainingSymbol(symbol.rpartition(".")[0]).name


def _not_found(reply: reflection_pb2.ServerReflectionResponse) -> None:
    code = grpc.StatusCode.NOT_FOUND
    reply.error_response.error_code = code.value[0]
    reply.error_response.error_message = "not found"


def _reflection_pool() -> DescriptorPool:
    pool = DescriptorPool()
    alpha = reflection_pb2.DESCRIPTOR.serialized_pb
    file = FileDescriptorProto.FromString(alpha)
    file.name, file.package = "grpc/reflection/v1/reflection.proto", "grpc.reflection.v1"
    _rename(file)
    pool.AddSerializedFile(alpha)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _rename(file: FileDescriptorProto) -> None:
    old, new = ".grpc.reflection.v1alpha.", ".grpc.reflection.v1."
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(old, new)
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(old, new)
            method.output_type = method.output_type.replace(old, new)


_REFLECTION_POOL = _reflection_pool()
