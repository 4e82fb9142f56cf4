"""Calls of one GraphQL operation, through the pipeline."""

from __future__ import annotations

from collections.abc import Awaitable

import anyio
from graphql import GraphQLError
from pydantic_core import from_json, to_json

from corral.bridges.base import BridgeHost
from corral.bridges.web import MAX_CALLS, Batch, calls_of, line, load_of
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.errors import AccessDenied, CorralError, MessageTooLarge
from corral.guest import plain_json
from corral.protocols.graphql.bridge.responses import extensions_of
from corral.protocols.graphql.bridge.schema import StreamedCall
from corral.types import CallError, CallRequest, OpenStream, Reply

_MOST_INPUT_BYTES = 8_000_000
"""Maximum size of all inputs of a request's calls."""


class OperationCalls:
    """Context of an operation. Each field that is a call becomes a call of the execution."""

    def __init__(self, host: BridgeHost, grant: Grant, body_bytes: int) -> None:
        self._host = host
        self._grant = grant
        self._body_bytes = body_bytes
        self._calls = 0
        self.requested: StreamedCall | None = None
        """Call that a subscription requests."""

    async def call(self, tool: str, input: object) -> object:
        """Calls a tool and returns its result as plain JSON data. Raises GraphQLError."""
        reply = await self.handle(self._request(tool, input))
        if reply.error is not None:
            raise error_of(reply.error)
        if reply.nothing:
            return None
        size = 0 if reply.encoded is None else len(reply.encoded.text)
        return await self._grant.run_by_size(_plain, reply, size=size)

    async def query(self, tool: str, input: object) -> object:
        """As `call`, for tools that are read-only. Raises GraphQLError for others."""
        known_tool = self._grant.peek_tool(tool)
        if known_tool is not None and not known_tool.read_only:
            raise error_of(AccessDenied(f"tool {tool!r} is not read-only; call it in a mutation"))
        return await self.call(tool, input)

    async def call_many(self, calls: object) -> object:
        """Makes calls at the same time and returns their lines. Raises GraphQLError."""
        lines: list[object] = []

        async def one(number: int, request: CallRequest) -> None:
            reply = await self.handle(request)
            size = 0 if reply.encoded is None else len(reply.encoded.text)
            lines.append(await self._grant.run_by_size(lambda: from_json(line(number, reply)), size=size))

        requests = await self.requests(calls)
        async with anyio.create_task_group() as tasks:
            for number, request in requests:
                tasks.start_soon(one, number, request)
        return lines

    async def requests(self, calls: object) -> list[tuple[int, CallRequest]]:
        """Returns calls in the form of the HTTP bridge, with the client's numbers. Raises GraphQLError."""
        try:
            requests, _ = await self._read(calls)
            first = self._count(len(requests))
        except CorralError as error:
            raise error_of(error) from None
        return [(each.sequence, each._replace(sequence=first + index)) for index, each in enumerate(requests)]

    async def stream(self, tool: str, input: object, opened: OpenStream) -> Reply:
        """Calls a tool whose items go to the stream."""
        return await self.handle(self._request(tool, input)._replace(open_stream=opened))

    def _request(self, tool: str, input: object) -> CallRequest:
        size = self._body_bytes
        if self._calls * size > _MOST_INPUT_BYTES:  # each of them may have the same variable as its input
            raise error_of(
                MessageTooLarge(f"the calls of the request have more than {_MOST_INPUT_BYTES} bytes of input")
            )
        if size > self._grant.limits.tool_input_bytes:
            size = len(to_json(input))
        try:
            return CallRequest(tool, input, self._count(1), size)
        except CorralError as error:
            raise error_of(error) from None

    def _count(self, calls: int) -> int:
        self._calls += calls
        if self._calls > MAX_CALLS:
            raise MessageTooLarge(f"the request has more than {MAX_CALLS} calls")
        return load_of(self._grant).count(calls)

    async def batch(self, calls: object) -> Batch:
        """Returns the calls of a subscription to `_calls`. Raises GraphQLError."""
        try:
            requests, _ = await self._read(calls)
            return Batch(self._host, self._grant, "graphql", requests, reads_streams=True)
        except CorralError as error:
            raise error_of(error) from None

    async def _read(self, calls: object) -> tuple[list[CallRequest], bool]:
        size, grant = self._body_bytes, self._grant
        return await grant.run_by_size(calls_of, {"calls": calls}, size, grant, size=size)

    def handle(self, request: CallRequest) -> Awaitable[Reply]:
        """Makes one of the calls of `requests`."""
        return self._host.handle(Call(request, self._grant, protocol="graphql"))


def _plain(reply: Reply) -> object:
    if reply.encoded is None or reply.encoded.tagged:
        return from_json(plain_json(reply.value))
    return from_json(reply.encoded.text)  # times and the like are strings there


def error_of(error: CallError | CorralError) -> GraphQLError:
    """Converts an error to that of a field: its `extensions` have the members of the error."""
    if not isinstance(error, CallError):
        error = CallError.of(error)
    return GraphQLError(error.message, extensions=extensions_of(error))
