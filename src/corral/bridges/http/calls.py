"""`POST /calls`: the route by which programs call tools. It bypasses the framework, because it is the hot path."""

from __future__ import annotations

from functools import partial

import anyio
from starlette.responses import Response

from corral.bridges.base import BridgeHost
from corral.bridges.calls import Call
from corral.bridges.grants import Grant
from corral.bridges.http.messages import alone_line, calls_of, failed, line
from corral.bridges.http.streams import LineStream, ReplyLines
from corral.bridges.web import (
    NOT_JSON,
    Body,
    Receive,
    RequestHead,
    Send,
    ended,
    grant_of,
    late,
    load_of,
    parse_json,
    watch_request,
)
from corral.errors import BridgeError, CallBudgetExceeded
from corral.types import CallRequest, Reply

__all__ = ["CallsEndpoint"]

_BESIDE_INPUT_BYTES = 100_000
_LEAST_BODY_BYTES = 1_000_000
"""Maximum input of a batch of the runtime, unless one call has more."""


class CallsEndpoint:
    """Writes one line for each call as soon as it has a reply. If the client disconnects, its calls are cancelled."""

    def __init__(self, host: BridgeHost) -> None:
        self._host = host

    async def __call__(self, head: RequestHead, receive: Receive, send: Send) -> None:
        grant = await grant_of(self._host, head, "http")
        if isinstance(grant, Grant):
            response = await self._respond(head, grant, ReplyLines(send), receive)
        else:
            response = failed(grant)
        if response is not None:
            await response({"type": "http"}, receive, send)

    async def _respond(self, head: RequestHead, grant: Grant, lines: ReplyLines, receive: Receive) -> Response | None:
        """Writes the lines of the reply; or returns another response, for a request that failed as a whole."""
        if not head.is_json:
            return failed(NOT_JSON, 415)
        calls: list[Call] = []
        numbers: list[int] = []
        streaming: set[int] = set()
        unanswered: set[int] = set()

        async def answer(index: int) -> None:
            number, call = numbers[index], calls[index]
            if number not in streaming:
                data = line(number, await self._host.handle(call))
            elif len(calls) > 1:  # else the stream would keep the replies of the others from being read
                data = alone_line(number)
            else:
                stream = LineStream(number, lines.write)
                call.request = call.request._replace(open_stream=stream.open)
                async with stream.written():
                    reply = await self._host.handle(call)
                data = line(number, reply)
            unanswered.discard(index)
            await lines.write(data, last=len(calls) == 1)

        most = max(_LEAST_BODY_BYTES, grant.limits.tool_input_bytes) + _BESIDE_INPUT_BYTES
        try:
            async with (
                watch_request(grant, receive, partial(lines.write, b"\n")) as watch,
                Body(head, receive, most, grant) as body,
            ):
                found, reads_streams = calls_of(parse_json(body), len(body), grant)
                streaming = {call.sequence for call in found if reads_streams and streams(grant, call)}
                first = load_of(grant).count(len(found))
                numbers = [call.sequence for call in found]  # the client's numbers, which identify the lines
                calls = [
                    Call(call._replace(sequence=first + index), grant, protocol="http")
                    for index, call in enumerate(found)
                ]
                watch.body_received()
                unanswered.update(range(len(calls)))
                if len(calls) == 1:
                    await answer(0)
                    return None
                async with anyio.create_task_group() as tasks:
                    for index in range(len(calls)):
                        tasks.start_soon(answer, index)
        except (BridgeError, CallBudgetExceeded) as error:
            return failed(error)
        if not calls:
            return failed(ended() if grant.ended else late())
        for index in unanswered:
            await lines.write(line(numbers[index], Reply(error=ended())))
        await lines.write(b"", last=True)
        return None


def streams(grant: Grant, call: CallRequest) -> bool:
    """True if the tool of a call streams."""
    tool = grant.peek_tool(call.tool)
    return tool is not None and tool.stream
