"""Descriptors of a server, by its reflection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from corral.errors import ConfigError

_VERSIONS = ("v1", "v1alpha")
"""Both have the same messages."""
_MAX_FILES = 2_000
_MAX_BYTES = 16_000_000


async def reflected(
    channel: grpc.aio.Channel, metadata: Sequence[tuple[str, str]], seconds: float
) -> tuple[list[str], dict[str, FileDescriptorProto]]:
    """Asks a server for its services, and for the files that describe them.

    Raises:
        ConfigError: the server has no reflection, or what it says is too large or not legible.
        grpc.aio.AioRpcError: it did not answer.
    """
    for version in _VERSIONS:
        try:
            return await _Questions(channel, version, metadata, seconds).answers()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
    raise ConfigError("the server has no reflection; give GrpcSource(descriptors=...), which `protoc -o` writes")


class _Questions:
    def __init__(
        self, channel: grpc.aio.Channel, version: str, metadata: Sequence[tuple[str, str]], seconds: float
    ) -> None:
        # Each question is a stream of one message: writing to a stream that the server has refused loses its status.
        make: Any = channel.unary_stream
        self._stream: Any = make(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )
        self._metadata = tuple(metadata)
        self._seconds = seconds
        self._files: dict[str, FileDescriptorProto] = {}
        self._bytes = 0

    async def answers(self) -> tuple[list[str], dict[str, FileDescriptorProto]]:
        listed = await self._ask(list_services="")
        services = [each.name for each in listed.list_services_response.service][:_MAX_FILES]
        for name in services:
            await self._find(file_containing_symbol=name)
        while missing := self._missing():
            await self._find(file_by_filename=missing)
        return services, self._files

    def _missing(self) -> str | None:
        """Returns a file that others need, if the server has not given it; the library has those of protobuf."""
        needed = (name for file in self._files.values() for name in file.dependency)
        return next((name for name in needed if name not in self._files and not _is_standard(name)), None)

    async def _find(self, **question: str) -> None:
        answer = await self._ask(**question)
        before = len(self._files)
        for data in answer.file_descriptor_response.file_descriptor_proto:
            self._bytes += len(data)
            if self._bytes > _MAX_BYTES or len(self._files) >= _MAX_FILES:
                raise ConfigError(f"the server's descriptors are over {_MAX_BYTES} bytes or {_MAX_FILES} files")
            try:
                file = FileDescriptorProto.FromString(data)
            except DecodeError:
                raise ConfigError("the server's descriptors are not legible") from None
            self._files[file.name] = file
        if "file_by_filename" in question and len(self._files) == before:
            raise ConfigError(f"the server's reflection does not give {question['file_by_filename'][:200]!r}")

    async def _ask(self, **question: Any) -> ServerReflectionResponse:
        asked = self._stream(ServerReflectionRequest(**question), metadata=self._metadata, timeout=self._seconds)
        async for answer in asked:
            asked.cancel()
            return answer
        raise ConfigError("the server's reflection did not answer")


def _is_standard(name: str) -> bool:
    return name.startswith("google/protobuf/")
