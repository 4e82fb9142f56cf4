"""Requests of one server: authenticated before their message is read, and ended with their execution."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias, cast

import anyio
import grpc
from google.protobuf.message import DecodeError
from pydantic_core import from_json
from typing_extensions import override

from corral.bridges.base import BridgeHost
from corral.bridges.calls import Call
from corral.bridges.grants import Grant
from corral.bridges.grpc.messages import (
    BRIDGE_SERVICE,
    RenewReply,
    error_reply,
    value_reply,
)
from corral.bridges.grpc.messages import (
    CallRequest as CallMessage,
)
from corral.bridges.grpc.reflection import REFLECTION_SERVICES, Reflection
from corral.bridges.grpc.schema import PACKAGE, Method, ToolSchema, path_of
from corral.bridges.grpc.statuses import status_of
from corral.bridges.grpc.streams import ItemStream
from corral.bridges.grpc.values import read_root, write_root
from corral.bridges.web import ended, late, load_of
from corral.bridges.web.documents import DocumentCache
from corral.concurrency.threads import thread_safe_callback
from corral.errors import BridgeError, CorralError, InvalidToken, MalformedMessage, MessageTooLarge, ToolFailed
from corral.guest import decode_value
from corral.logs import get_logger
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, EncodedValue, Reply

__all__ = ["BridgeService"]

logger = get_logger("corral.bridges")

_MESSAGE_SECONDS = 30.0
_MAX_METADATA = 100

Context: TypeAlias = Any
"""`grpc.aio.ServicerContext` of bytes in, bytes out."""
Metadata: TypeAlias = list[tuple[str, str | bytes]]


class BridgeService(grpc.GenericRpcHandler):
    """Handler of all methods. The methods of tools are looked up at each call, so that tools may come and go."""

    def __init__(self, host: BridgeHost, schemas: DocumentCache[ToolSchema]) -> None:
        self._host = host
        self._schemas = schemas
        self._bridge_methods: dict[str, Callable[[Context, Grant], Awaitable[None]]] = {
            f"/{BRIDGE_SERVICE}/Call": self._call,
            f"/{BRIDGE_SERVICE}/Stream": self._stream,
            f"/{BRIDGE_SERVICE}/Renew": self._renew,
            **{f"/{name}/ServerReflectionInfo": partial(self._reflect, name) for name in REFLECTION_SERVICES},
        }

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
            except _Failed as failed:
                await _abort(context, failed.error)
            except Exception as error:  # gRPC would send its text to the client
                await _abort(context, _error_within(error, path))

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
            raise _Failed(reply.error or ended()) from None

    async def _serve(self, path: str, context: Context, grant: Grant) -> None:
        if (serve := self._bridge_methods.get(path)) is not None:
            await serve(context, grant)
            return
        if not path.startswith(f"/{PACKAGE}."):
            raise BridgeError("unknown method")
        method = (await self._schemas.of(grant)).method(path)
        if method is None:
            await self._refuse(path, grant)
        else:
            await self._call_method(method, context, grant)

    async def _refuse(self, path: str, grant: Grant) -> None:
        """Refuses a method that the caller does not see. As a call it passes the guards, which say and record why."""
        named = [str(name) for name in grant.tools.snapshot() if path_of(name) == path]
        tool = named[0] if named else path.rpartition(".")[2].replace("Tools/", ".").lstrip(".")
        called = CallRequest(tool[:MAX_TOOL_PATH], None, load_of(grant).count(1))
        reply = await self._host.handle(Call(called, grant, protocol="grpc"))
        raise _Failed(reply.error or ended())

    async def _call_method(self, method: Method, context: Context, grant: Grant) -> None:
        async with _message(context, grant) as body:
            request = _parsed(method.request, body)
            sequence = load_of(grant).count(1)
            try:
                input = read_root(method.input, request)
            except RecursionError:
                raise MalformedMessage("the message is nested too deeply") from None

            async def write(item: EncodedValue) -> None:
                await context.write(_encoded(method, _decoded(item)))

            called = CallRequest(method.tool, input, sequence, len(body))
            reply = await self._answer(called, grant, write if method.stream else None)
            if reply.error is not None:
                raise _Failed(reply.error)
            if not method.stream:
                await context.write(_encoded(method, _value_of(reply)))

    async def _answer(
        self, called: CallRequest, grant: Grant, write: Callable[[EncodedValue], Awaitable[None]] | None
    ) -> Reply:
        if write is None:
            return await self._host.handle(Call(called, grant, protocol="grpc"))
        items = ItemStream(write)
        async with items.written():
            return await self._host.handle(Call(called._replace(open_stream=items.open), grant, protocol="grpc"))

    async def _call(self, context: Context, grant: Grant, *, stream: bool = False) -> None:
        async def write(item: EncodedValue) -> None:
            await context.write(value_reply(item))

        async with _message(context, grant) as body:
            request = _parsed(CallMessage, body)
            sequence = load_of(grant).count(1)
            input: object = decode_value(request.input, tagged=request.tagged) if request.input else {}
            called = CallRequest(request.tool[:MAX_TOOL_PATH], input, sequence, len(request.input))
            tool = grant.peek_tool(called.tool)
            streams = stream and tool is not None and tool.stream
            reply = await self._answer(called, grant, write if streams else None)
            if reply.error is not None:
                await context.write(error_reply(reply.error))
            elif not streams:
                await context.write(value_reply(None if reply.nothing else reply.encoded))

    async def _stream(self, context: Context, grant: Grant) -> None:
        await self._call(context, grant, stream=True)

    async def _renew(self, context: Context, grant: Grant) -> None:
        async with _message(context, grant):
            token, expires = self._host.renew(grant)
            await context.write(RenewReply(token=token, expires=expires).SerializeToString())

    async def _reflect(self, service: str, context: Context, grant: Grant) -> None:
        load_of(grant).count(1)
        await Reflection(await self._schemas.of(grant), service).serve(context)


class _Failed(Exception):
    """Carries the error of a call to where its request ends."""

    def __init__(self, error: CallError) -> None:
        self.error = error


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
        raise _Failed(ended())


@asynccontextmanager
async def _message(context: Context, grant: Grant) -> AsyncGenerator[bytes]:
    """Reads the one message of a request, for which memory is reserved within the block."""
    body: Any = None
    with anyio.move_on_after(_MESSAGE_SECONDS):
        body = await context.read()
    if body is None:
        raise _Failed(late())
    if not isinstance(body, bytes):
        raise MalformedMessage("the request has no message")
    if len(body) > (allowed := grant.limits.tool_input_bytes + MAX_TOOL_PATH + 20):
        raise MessageTooLarge(f"the request has {len(body)} bytes; {allowed} are allowed")
    room = load_of(grant).room
    if not room.try_acquire(len(body)):
        await room.acquire(len(body))
    try:
        yield body
    finally:
        room.release(len(body))


def _parsed(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError:
        raise MalformedMessage("the message is not of its type") from None


def _encoded(method: Method, value: object) -> bytes:
    message = method.response()
    write_root(method.output, value, message)
    return message.SerializeToString()


def _value_of(reply: Reply) -> object:
    return _decoded(reply.encoded) if reply.value is None and reply.encoded is not None else reply.value


def _decoded(value: EncodedValue) -> object:
    return decode_value(value.text, tagged=True) if value.tagged else from_json(value.text)


def _error_within(error: Exception, path: str) -> CorralError:
    """Returns the error of a group that is for clients, else one without details, which the log has."""
    found = error
    while isinstance(found, ExceptionGroup):
        found = cast("ExceptionGroup[Exception]", found).exceptions[0]
    if isinstance(found, CorralError):
        return found
    correlation = secrets.token_hex(6)
    logger.error("request %s failed (correlation id %s)", path, correlation, exc_info=error)
    return ToolFailed(f"the request failed (correlation id {correlation})", correlation_id=correlation)


async def _abort(context: Context, error: CorralError | CallError) -> None:
    status = status_of(error)
    await context.abort(status.code, status.message, status.trailers)
