"""`POST /calls`: what programs call tools by. No framework is in its way, because it is the hot path."""

from __future__ import annotations

from functools import partial

import anyio
from starlette.responses import Response
from starlette.types import Receive, Send

from corral.bridges.grants import Grant, Grants
from corral.bridges.http.attendance import Attendance
from corral.bridges.http.entrance import Head, refusal
from corral.bridges.http.wire import calls_of, failed, line, read_json
from corral.errors import BridgeError, InvalidToken, MessageTooLarge
from corral.types import Call, CallError, Handler, Reply

__all__ = ["CallsEndpoint", "refused_token"]

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
            try:
                if head.is_json:
                    most = max(_LEAST_BODY_BYTES, grant.limits.tool_input_bytes) + _BESIDE_INPUT_BYTES
                    calls = calls_of(*await read_json(head, receive, most), grant)
                    await self._answer(calls, grant, _Lines(send), receive)
                    return
                response = refusal(415, "bridge_error", "the request's content-type must be application/json")
            except BridgeError as error:
                response = failed(error)
        await response({"type": "http"}, receive, send)

    async def _answer(self, calls: list[Call], grant: Grant, lines: _Lines, receive: Receive) -> None:
        unanswered = set(range(len(calls)))

        async def answer(index: int) -> None:
            reply = await self._reply(calls[index], grant)
            unanswered.discard(index)
            await lines.write(line(calls[index], reply), last=len(calls) == 1)

        async with Attendance(grant, receive, partial(lines.write, b"\n")):
            if len(calls) == 1:
                await answer(0)
            else:
                async with anyio.create_task_group() as tasks:
                    for index in unanswered.copy():
                        tasks.start_soon(answer, index)
        if grant.ended:
            for index in unanswered:
                await lines.write(line(calls[index], Reply(error=ended())))
        if len(calls) > 1 or unanswered:
            await lines.write(b"", last=True)

    async def _reply(self, call: Call, grant: Grant) -> Reply:
        allowed = grant.limits.tool_input_bytes
        if call.size <= allowed:
            return await self._handler(call)
        too_large = MessageTooLarge(f"tools.{call.tool}: the input has {call.size} bytes; {allowed} are allowed")
        return Reply(error=CallError.of(too_large))


def ended() -> CallError:
    """What a call gets whose execution ended while it ran."""
    return CallError.of(InvalidToken("the execution of this token has ended"))


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
