"""Subscriptions as server-sent events, by the distinct connections mode of the GraphQL over SSE protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphql import DocumentNode, ExecutionResult, GraphQLError
from pydantic_core import from_json, to_json
from typing_extensions import override

from corral.bridges.web import PlainLineStream
from corral.bridges.web.server_events import EventStream
from corral.protocols.graphql.bridge.calls import OperationCalls, error_of
from corral.protocols.graphql.bridge.responses import COMPLETE, event, failed_json, result_json
from corral.protocols.graphql.bridge.schema import ToolSchema
from corral.types import CallError


class OperationStream(EventStream):
    """Streamed body of the response to one operation."""

    _calling = False

    @property
    @override
    def begins(self) -> bool:
        return self.started or self._calling

    async def end(self, error: CallError) -> None:
        """Sends an error, and ends the response."""
        await self.write(event(failed_json(error)) + COMPLETE, last=True)

    async def send_one(self, content: bytes) -> None:
        """Sends the result of an operation that has one, and ends the response."""
        await self.write(event(content) + COMPLETE, last=True)

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
            return await self.call_many(to_json(key), asked.input, calls)

        async def write_items(items: Sequence[bytes], /, *, tagged: bool) -> None:  # noqa: ARG001 - none are
            data = b""
            for item in items:
                data += event(result_json(result((from_json(item),))))
            await self.write(data)

        await self.write(b":\n\n")
        items = PlainLineStream(write_items)
        async with items.written():
            reply = await calls.stream(asked.tool, asked.input, items.open)
        if reply.error is not None:
            error = ExecutionResult({key: None}, [error_of(reply.error)])
            return await self.send_one(result_json(error))
        if not reply.nothing:  # the tool does not stream any more
            await self.write(event(result_json(result((reply.value,)))))
        await self.write(COMPLETE, last=True)
        return None

    async def call_many(self, key: bytes, given: object, calls: OperationCalls) -> None:
        """Makes calls of corral's own runtimes. Each event has a line of the HTTP bridge, under the key of `_calls`."""

        async def write(data: bytes, /, *, last: bool = False) -> None:
            shown = event(b'{"data":{%b:%b}}' % (key, data.rstrip())) if data else b""
            await self.write(shown + (COMPLETE if last else b""), last=last)

        try:
            batch = await calls.batch(given)
        except GraphQLError as error:
            return await self.send_one(result_json(ExecutionResult(None, [error])))
        self._calling = True
        await batch.answer(write)
        return None
