"""Statuses of failed calls: a gRPC code, and details with the error's own code."""

from __future__ import annotations

import secrets
from typing import NamedTuple, TypeAlias, cast

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus
from grpc import StatusCode

from corral.errors import AccessDenied, CorralError, ToolFailed, error_class
from corral.logs import get_logger
from corral.types import CallError

logger = get_logger("corral.bridges")

Detail: TypeAlias = ErrorInfo | RetryInfo

_CODES = {
    "call_budget_exceeded": StatusCode.RESOURCE_EXHAUSTED,
    "cancelled": StatusCode.CANCELLED,
    "execution_ended": StatusCode.UNAUTHENTICATED,
    "invalid_arguments": StatusCode.INVALID_ARGUMENT,
    "invalid_token": StatusCode.UNAUTHENTICATED,
    "malformed_message": StatusCode.INVALID_ARGUMENT,
    "message_too_large": StatusCode.RESOURCE_EXHAUSTED,
    "rate_limited": StatusCode.RESOURCE_EXHAUSTED,
    "tool_error": StatusCode.FAILED_PRECONDITION,
    "tool_not_found": StatusCode.UNIMPLEMENTED,
}
_MESSAGE_BYTES = 1_000
"""Maximum bytes of a message in a header, where each can take three; clients accept headers of 8 KB."""


class Status(NamedTuple):
    code: StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]


def code_of(error: CallError) -> StatusCode:
    """Returns the gRPC code of an error: by its code, else PERMISSION_DENIED for denials, else INTERNAL."""
    denied = issubclass(error_class(error.code), AccessDenied)
    return _CODES.get(error.code, StatusCode.PERMISSION_DENIED if denied else StatusCode.INTERNAL)


def details_of(error: CallError) -> list[Detail]:
    """Returns the standard details of gRPC: ErrorInfo, and RetryInfo for a rate."""
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


def _pack(message: Detail) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def error_within(error: Exception, path: str) -> CorralError:
    """Returns the error of a group that is meant for clients; else logs it, and returns one without details."""
    inner = error
    while isinstance(inner, ExceptionGroup):
        inner = cast("ExceptionGroup[Exception]", inner).exceptions[0]
    if isinstance(inner, CorralError):
        return inner
    correlation = secrets.token_hex(6)
    logger.error("request %s failed (correlation id %s)", path, correlation, exc_info=error)
    return ToolFailed(f"the request failed (correlation id {correlation})", correlation_id=correlation)
