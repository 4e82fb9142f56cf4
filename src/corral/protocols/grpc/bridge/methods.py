"""Methods of the bridge: those of tools, and `corral.v1.Bridge`. gRPC and Connect serve the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Protocol, TypeAlias

from pydantic_core import from_json

from corral.bridges.base import BridgeHost
from corral.bridges.web import Batch, ended, load_of
from corral.bridges.web.documents import DocumentCache
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.errors import BridgeError, MalformedMessage
from corral.guest import decode_value
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
from corral.protocols.grpc.bridge.streams import ItemStream
from corral.protocols.grpc.bridge.values import read_root, write_root
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, EncodedValue, Reply


class Exchange(Protocol):
    """One request of a method. Messages are those of protobuf; the exchange knows their form on the wire."""

    def begin(self, *, stream: bool, ping: Any = None) -> None:
        """Learns if the method streams, before any message. `ping` is a message that keeps a slow reply alive.

        Raises:
            BridgeError: the request has the form of another kind of method.
        """
        ...

    def message(self, kind: Any, *, batch: bool = False) -> AbstractAsyncContextManager[tuple[Any, int]]:
        """Reads the request's message and its size in bytes. Memory is reserved for it within the block.

        Raises:
            BridgeError: it is too large, late, or not of its type.
        """
        ...

    async def write(self, message: Any, *, last: bool = False) -> None:
        """Sends a message; of a method that does not stream, the only one. None follows the `last` one."""
        ...


class MethodFailed(Exception):
    """Carries the error of a call to where its request ends."""

    def __init__(self, error: CallError) -> None:
        super().__init__(error)
        self.error = error


_Serve: TypeAlias = Callable[[Exchange, Grant], Awaitable[None]]


class BridgeMethods:
    """Methods by path. Those of tools are looked up at each call, so that tools may come and go."""

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
        """Refuses a method that the caller does not see. As a call it passes the guards, which say and record why."""
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
                response = await grant.run_by_size(lambda: _response(method, _decoded(item)), size=len(item.text))
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
    return _decoded(reply.encoded) if reply.value is None and reply.encoded is not None else reply.value


def _decoded(value: EncodedValue) -> object:
    return decode_value(value.text, tagged=True) if value.tagged else from_json(value.text)
