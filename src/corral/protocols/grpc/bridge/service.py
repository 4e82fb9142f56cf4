"""Requests of one server: authenticated before their message is read, and ended with their execution."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import anyio
import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from typing_extensions import override

from corral.bridges.base import BridgeHost
from corral.bridges.web import ended, late, load_of, most_body_bytes
from corral.bridges.web.documents import DocumentCache
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.concurrency.threads import thread_safe_callback
from corral.errors import Cancelled, CorralError, InvalidToken, MalformedMessage, MessageTooLarge
from corral.protocols.grpc.bridge.methods import BridgeMethods, MethodFailed
from corral.protocols.grpc.bridge.reflection import REFLECTION_SERVICES, Reflection
from corral.protocols.grpc.bridge.schema import ToolSchema
from corral.protocols.grpc.bridge.statuses import error_within, status_of
from corral.types import MAX_TOOL_PATH, CallError, CallRequest

_MESSAGE_SECONDS = 30.0
_MAX_METADATA = 100

Context: TypeAlias = Any
"""`grpc.aio.ServicerContext` of bytes in, bytes out."""
Metadata: TypeAlias = list[tuple[str, str | bytes]]


class BridgeService(grpc.GenericRpcHandler):
    """Handler of all methods."""

    def __init__(self, host: BridgeHost, schemas: DocumentCache[ToolSchema]) -> None:
        self._host = host
        self._schemas = schemas
        self._methods = BridgeMethods(host, schemas, "grpc")
        self._reflections = {f"/{name}/ServerReflectionInfo": name for name in REFLECTION_SERVICES}

    @override
    def service(self, handler_call_details: Any) -> Any:
        path: str = handler_call_details.method
        metadata: Metadata = list(handler_call_details.invocation_metadata or ())

        async def serve(requests: object, context: Context) -> None:  # noqa: ARG001
            # Tasks of grpc.aio are cancelled when the client cancels, and at its deadline.
            try:
                async with _of_grant(await self._grant_of(metadata)) as grant:
                    await self._serve(path, context, grant)
            except CorralError as error:
                await _abort(context, error)
            except MethodFailed as failed:
                await _abort(context, failed.error)
            except Exception as error:  # gRPC would send its text to the client
                await _abort(context, error_within(error, path))

        make: Any = grpc.stream_stream_rpc_method_handler
        return make(serve)

    async def _grant_of(self, metadata: Metadata) -> Grant:
        if len(metadata) > _MAX_METADATA:
            raise MessageTooLarge("the request has too much metadata")
        given = [value for key, value in metadata if key == "authorization"]
        if len(given) > 1:
            raise MalformedMessage("the metadata have two authorizations")
        scheme, _, token = str(given[0]).partition(" ") if given else ("", "", "")
        token = token.strip() or None if scheme.lower() == "bearer" else None
        try:
            return self._host.find(token)
        except InvalidToken:
            # A refused token passes the pipeline as a call, so that it is audited like any other.
            reply = await self._host.handle(Call(CallRequest("", None, 0), protocol="grpc", token=token))
            raise MethodFailed(reply.error or ended()) from None

    async def _serve(self, path: str, context: Context, grant: Grant) -> None:
        exchange = _Exchange(context, grant)
        if (service := self._reflections.get(path)) is not None:
            load_of(grant).count(1)
            await Reflection(await self._schemas.of(grant), service).serve(context.read, exchange.write)
        else:
            await self._methods.serve(path, exchange, grant)


class _Exchange:
    """One request, in frames of HTTP/2."""

    def __init__(self, context: Context, grant: Grant) -> None:
        self._context = context
        self._grant = grant
        self._writing = anyio.Lock()
        """gRPC takes one message at a time."""
        self._begun = False
        """True once the first message has left."""

    def begin(self, *, stream: bool, ping: Any = None) -> None:
        """Does nothing: gRPC has one form for all methods, and keeps connections alive by itself."""

    @asynccontextmanager
    async def message(self, kind: Any, *, batch: bool = False) -> AsyncGenerator[tuple[Any, int]]:
        body: Any = None
        with anyio.move_on_after(_MESSAGE_SECONDS):
            body = await self._context.read()
        if body is None:
            raise MethodFailed(late())
        if not isinstance(body, bytes):
            raise MalformedMessage("the request has no message")
        grant = self._grant
        allowed = most_body_bytes(grant) if batch else grant.limits.tool_input_bytes + MAX_TOOL_PATH + 20
        if len(body) > allowed:
            raise MessageTooLarge(f"the request has {len(body)} bytes; {allowed} are allowed")
        room = load_of(grant).room
        if not room.try_acquire(len(body)):
            await room.acquire(len(body))
        try:
            try:
                message = kind.FromString(body)
            except DecodeError:
                raise MalformedMessage("the message is not of its type") from None
            yield message, len(body)
        finally:
            room.release(len(body))

    async def write(self, message: Any, *, last: bool = False) -> None:  # noqa: ARG002 - gRPC ends a stream by itself
        try:
            async with self._writing:
                # gRPC sends its headers with the first message. After a cancelled write it would send them again with
                # the status, fail (TOO_MANY_OPERATIONS), and leave the client waiting.
                with anyio.CancelScope(shield=not self._begun):
                    await self._context.write(message.SerializeToString())
                self._begun = True
        except grpc.aio.InternalError:
            raise Cancelled("the client has gone away") from None


@asynccontextmanager
async def _of_grant(grant: Grant) -> AsyncGenerator[Grant]:
    """Runs the block until the grant ends, which fails the request."""
    with anyio.CancelScope() as scope:
        cut = thread_safe_callback(scope.cancel)
        grant.on_end.add(cut)
        try:
            yield grant
        finally:
            grant.on_end.discard(cut)
    if scope.cancelled_caught:
        raise MethodFailed(ended())


async def _abort(context: Context, error: CorralError | CallError) -> None:
    status = status_of(error)
    with suppress(grpc.aio.InternalError):  # the client has gone away
        await context.abort(status.code, status.message, status.trailers)
