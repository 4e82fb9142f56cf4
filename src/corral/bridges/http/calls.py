"""`POST /calls`: what programs call tools by. No framework is in its way, because it is the hot path."""

from __future__ import annotations

from functools import partial

import anyio
from starlette.responses import Response
from starlette.types import Receive, Send

from corral.bridges.grants import Grant, Grants
from corral.bridges.http.messages import calls_of, failed, line
from corral.bridges.http.request_filter import Head, not_json
from corral.bridges.http.request_load import Body, traffic_of
from corral.bridges.http.request_watch import BODY_SECONDS, attended
from corral.errors import BridgeError, CallBudgetExceeded, InvalidToken, MalformedMessage
from corral.types import Call, CallError, Handler, Reply

__all__ = ["CallsEndpoint", "ended", "late", "refused_token"]

_BESIDE_INPUT_BYTES = 100_000
_LEAST_BODY_BYTES = 1_000_000
"""What a batch of the runtime has as input at most, unless one call has more."""
_HEADERS = [(b"content-type", b"application/x-ndjson")]


class CallsEndpoint:
    """Answers each call by a line, as soon as it is answered. If the client goes away, its calls are cancelled."""

    def __init__(self, handler: Handler, grants: Grants) -> None:
        self._handler = handler
        self._grants = grants

    async def __call__(self, head: Head, receive: Receive, send: Send) -> None:
        try:
            grant = self._grants.find(head.token)
        except InvalidToken:
            response = await refused_token(self._handler, head.token)
        else:
            response = await self._respond(head, grant, _Lines(send), receive)
        if response is not None:
            await response({"type": "http"}, receive, send)

    async def _respond(self, head: Head, grant: Grant, lines: _Lines, receive: Receive) -> Response | None:
        """Writes the lines of the reply, or says what to respond instead."""
        if not head.is_json:
            return not_json()
        calls: list[Call] = []
        numbers: list[int] = []
        unanswered: set[int] = set()

        async def answer(index: int) -> None:
            reply = await self._handler(calls[index])
            unanswered.discard(index)
            await lines.write(line(numbers[index], reply), last=len(calls) == 1)

        most = max(_LEAST_BODY_BYTES, grant.limits.tool_input_bytes) + _BESIDE_INPUT_BYTES
        try:
            async with (
                attended(grant, receive, partial(lines.write, b"\n")) as attendance,
                Body(head, receive, most, grant) as (body, size),
            ):
                found = calls_of(body, size, grant)
                first = traffic_of(grant).count(len(found))
                numbers = [call.sequence for call in found]  # the client's, by which it knows the lines
                for index, call in enumerate(found):
                    call.sequence = first + index
                calls = found
                attendance.body_is_there()
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
            return failed(ended() if grant.ended else CallError.of(late()))
        for index in unanswered:
            await lines.write(line(numbers[index], Reply(error=ended())))
        await lines.write(b"", last=True)
        return None


def ended() -> CallError:
    """What a call gets whose execution ended while it ran."""
    return CallError.of(InvalidToken("the execution of this token has ended"))


def late() -> MalformedMessage:
    """What a request gets whose body did not come."""
    return MalformedMessage(f"the request's body did not come within {BODY_SECONDS:g} s")


async def refused_token(handler: Handler, token: str | None) -> Response:
    """The response to a request whose token is none. The pipeline refuses it, so that it is audited as any call."""
    reply = await handler(Call("", None, 0, protocol="http", token=token))
    return failed(reply.error or ended())


class _Lines:
    """The body of one response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False

    async def write(self, data: bytes, *, last: bool = False) -> None:
        if not self._started:
            self._started = True
            length = [(b"content-length", b"%d" % len(data))] if last else []
            await self._send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *length]})
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})
