"""Statuses of calls that fail: a gRPC code, and details that carry the error's own code."""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus
from grpc import StatusCode

from corral.errors import AccessDenied, CorralError, error_class
from corral.types import CallError

__all__ = ["Status", "status_of"]

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
"""Bytes of a message in a header, where each may take three; clients accept headers of 8 KB."""


class Status(NamedTuple):
    code: StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]


def status_of(error: CallError | CorralError) -> Status:
    """Returns the status of an error. Its details are `google.rpc.Status` with ErrorInfo, and RetryInfo for a rate."""
    if isinstance(error, CorralError):
        error = CallError.of(error)
    code = _CODES.get(error.code)
    if code is None:
        denied = issubclass(error_class(error.code), AccessDenied)
        code = StatusCode.PERMISSION_DENIED if denied else StatusCode.INTERNAL
    message = error.message.encode()[:_MESSAGE_BYTES].decode("utf-8", "ignore")
    info = ErrorInfo(reason=error.code.upper(), domain="corral", metadata={"code": error.code, "name": error.name})
    if error.correlation_id is not None:
        info.metadata["correlationId"] = error.correlation_id
    status = RpcStatus(code=code.value[0], message=message, details=[_packed(info)])
    if error.retry_after_seconds is not None:
        delay = Duration()
        delay.FromNanoseconds(round(min(error.retry_after_seconds, 3e8) * 1e9))
        status.details.append(_packed(RetryInfo(retry_delay=delay)))
    trailers = (("corral-error-code", error.code), ("grpc-status-details-bin", status.SerializeToString()))
    return Status(code, message, trailers)


def _packed(message: ErrorInfo | RetryInfo) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed
