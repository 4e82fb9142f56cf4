"""Methods of services, and their calls."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status

from corral.errors import ToolError
from corral.protocols.grpc.source.messages import Messages
from corral.types import ExecutionContext

Metadata: TypeAlias = Mapping[str, str]
Credentials: TypeAlias = (
    Metadata | Callable[[ExecutionContext], Metadata | None] | Callable[[ExecutionContext], Awaitable[Metadata | None]]
)
"""Metadata of each call, or a function that returns a caller's; None fails the call."""

_UNTOUCHED = frozenset(
    {
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Statuses that imply that the call had no effect."""
_MESSAGE_CHARACTERS = 2_000
_VIOLATIONS = 10


class Skipped(NamedTuple):
    """A method that is not offered as a tool, and the reason."""

    method: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method that is called as a tool."""

    described: MethodDescriptor
    messages: Messages
    credentials: Credentials
    timeout_seconds: float

    @property
    def label(self) -> str:
        service: Any = self.described.containing_service
        return f"{service.full_name}/{self.described.name}"

    async def call(self, channel: grpc.aio.Channel, input: object, context: ExecutionContext) -> object:
        """Calls a unary method.

        Raises:
            ToolError: the input does not fit, the server did not answer, or it answered with an error.
        """
        metadata = await _metadata(self.credentials, context)
        make: Any = channel.unary_unary
        call = make(f"/{self.label}", self._serialize, self._parse)
        try:
            reply = await call(self._request(input), metadata=tuple(metadata.items()), timeout=self.timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise _failure(self.label, error, metadata) from None
        return self.messages.read(reply)

    async def stream(
        self, channel: grpc.aio.Channel, input: object, context: ExecutionContext
    ) -> AsyncGenerator[object]:
        """Calls a method that streams its responses; leaving the loop cancels the call. Raises as `call`."""
        metadata = await _metadata(self.credentials, context)
        make: Any = channel.unary_stream
        call = make(f"/{self.label}", self._serialize, self._parse)(
            self._request(input), metadata=tuple(metadata.items())
        )
        try:
            async for reply in call:
                yield self.messages.read(reply)
        except grpc.aio.AioRpcError as error:
            raise _failure(self.label, error, metadata) from None
        finally:
            call.cancel()

    def _request(self, input: object) -> Any:
        return self.messages.write(self.described.input_type, {} if input is None else input)

    def _serialize(self, message: Any) -> bytes:
        return message.SerializeToString()

    def _parse(self, data: bytes) -> Any:
        return GetMessageClass(self.described.output_type).FromString(data)


async def _metadata(credentials: Credentials, context: ExecutionContext) -> Metadata:
    if not callable(credentials):
        return credentials
    metadata: Any = credentials(context)
    metadata = await metadata if inspect.isawaitable(metadata) else metadata
    if metadata is None:
        raise ToolError("there is no credential for this caller")
    return {key.lower(): value for key, value in metadata.items()}


def _failure(label: str, error: grpc.aio.AioRpcError, metadata: Metadata) -> ToolError:
    """Converts the error of a call for a program."""
    known = error.code() in _UNTOUCHED
    text = failure_text(label, error, metadata)
    return ToolError(text if known else f"{text}; it may have taken effect", outcome_known=known)


def failure_text(label: str, error: grpc.aio.AioRpcError, metadata: Metadata) -> str:
    """Describes a status, without the metadata that servers may echo."""
    code = error.code()
    message = f"{label} failed with {code.name}: {error.details() or 'no details'}"
    if violations := _violations(error):
        message = f"{message}; {violations}"
    for secret in sorted(metadata.values(), key=len, reverse=True):
        for text in (secret, secret.rpartition(" ")[2]):
            message = message.replace(text, "[redacted]") if text else message
    return message[:_MESSAGE_CHARACTERS]


def _violations(error: grpc.aio.AioRpcError) -> str:
    """Returns the details of a status about single fields."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin" and isinstance(value, bytes):
            try:
                details = Status.FromString(value).details
            except DecodeError:
                return ""
            request = BadRequest()
            for each in details:
                if each.Unpack(request):
                    listed = request.field_violations[:_VIOLATIONS]
                    return "; ".join(f"{violation.field}: {violation.description}" for violation in listed)
    return ""
