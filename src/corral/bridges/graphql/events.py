"""Subscriptions as server-sent events, by the distinct connections mode of the GraphQL over SSE protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
from graphql import DocumentNode, ExecutionResult, GraphQLError
from pydantic_core import from_json, to_json
from typing_extensions import override

from corral.bridges.base import Send
from corral.bridges.graphql.calls import OperationCalls, error_of
from corral.bridges.graphql.responses import COMPLETE, event, failed_json, result_json
from corral.bridges.graphql.schema import StreamedCall, ToolSchema
from corral.bridges.http.messages import alone_line, items_line, line
from corral.bridges.http.streams import LineStream
from corral.guest import plain_json, revive_value
from corral.types import CallError, CallRequest

__all__ = ["EventStream"]

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """Streamed body of one response."""

    def __init__(self, send: Send) -> None:
        self.started = False
        self._send = send
        self._writing = anyio.Lock()

    async def heartbeat(self) -> None:
        """Sends a comment, once it is known that the response has events."""
        if self.started:
            await self._write(b":\n\n")

    async def end(self, error: CallError) -> None:
        """Sends an error, and ends the response."""
        await self._write(event(failed_json(error)) + COMPLETE, last=True)

    async def send_one(self, content: bytes) -> None:
        """Sends the result of an operation that has one, and ends the response."""
        await self._write(event(content) + COMPLETE, last=True)

    async def subscribe(
        self,
        tools: ToolSchema,
        document: DocumentNode,
        variables: dict[str, Any] | None,
        name: str | None,
        calls: OperationCalls,
    ) -> None:
        """Executes a subscription: a result for each item."""

        def result(source: object) -> ExecutionResult:
            found = tools.execute(document, calls, variables=variables, operation=name, source=source)
            assert isinstance(found, ExecutionResult)
            return found

        first = result(None)
        asked = calls.asked
        if asked is None or first.errors or not first.data:
            return await self.send_one(result_json(first))
        [key] = first.data
        if asked.tool is None:
            return await self._calls(to_json(key), asked, calls)

        class Items(LineStream):
            @override
            async def write_items(self, items: Sequence[bytes], *, tagged: bool) -> None:
                data = b""
                for item in items:
                    value = from_json(item)
                    value = from_json(plain_json(revive_value(value))) if tagged else value
                    data += event(result_json(result((value,))))
                await self._write(data)

        await self._write(b":\n\n")
        items = Items(1, self._write)
        async with items.written():
            reply = await calls.stream(asked.tool, asked.input, items.open)
        if reply.error is not None:
            error = ExecutionResult({key: None}, [error_of(reply.error)])
            return await self.send_one(result_json(error))
        if not reply.nothing:  # the tool does not stream any more
            await self._write(event(result_json(result((reply.value,)))))
        await self._write(COMPLETE, last=True)
        return None

    async def _calls(self, key: bytes, asked: StreamedCall, calls: OperationCalls) -> None:
        """Makes calls of corral's own runtimes. Each event has a line of the HTTP bridge."""

        async def write(data: bytes) -> None:
            await self._write(event(b'{"data":{%b:%b}}' % (key, data.rstrip())))

        class Lines(LineStream):
            @override
            async def write_items(self, items: Sequence[bytes], *, tagged: bool) -> None:
                await write(items_line(self._number, items, tagged=tagged))

        async def answer(number: int, request: CallRequest) -> None:
            if not calls.streams(request):
                data = line(number, await calls.handle(request))
            elif len(requests) > 1:
                data = alone_line(number)
            else:
                stream = Lines(number, write)
                async with stream.written():
                    reply = await calls.handle(request._replace(open_stream=stream.open))
                data = line(number, reply)
            await write(data)

        try:
            requests = calls.requests(asked.input)
        except GraphQLError as error:
            return await self.send_one(result_json(ExecutionResult(None, [error])))
        await self._write(b":\n\n")
        async with anyio.create_task_group() as tasks:
            for number, request in requests:
                tasks.start_soon(answer, number, request)
        await self._write(COMPLETE, last=True)
        return None

    async def _write(self, data: bytes, *, last: bool = False) -> None:
        async with self._writing:
            if not self.started:
                self.started = True
                await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
