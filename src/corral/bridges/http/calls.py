"""`POST /calls`: the route by which programs call tools. It bypasses the framework, because it is the hot path."""

from __future__ import annotations

from functools import partial

import anyio
from starlette.responses import Response
from starlette.types import Receive, Send

from corral.bridges.calls import Call, Handler
from corral.bridges.grants import Grant, Grants
from corral.bridges.http.messages import calls_of, failed, line
from corral.bridges.http.request_filter import RequestHead, not_json
from corral.bridges.http.request_load import Body, load_of
from corral.bridges.http.request_watch import BODY_SECONDS, watch_request
from corral.errors import BridgeError, CallBudgetExceeded, InvalidToken, MalformedMessage
from corral.types import CallError, CallRequest, Reply

__all__ = ["CallsEndpoint", "ended", "late", "refused_token"]

_BESIDE_INPUT_BYTES = 100_000
_LEAST_BODY_BYTES = 1_000_000
"""Maximum input of a batch of the runtime, unless one call has more."""
_HEADERS = [(b"content-type", b"application/x-ndjson")]


class CallsEndpoint:
    """Writes one line for each call as soon as it has a reply. If the client disconnects, its calls are cancelled."""

    def __init__(self, handler: Handler, grants: Grants) -> None:
        self._handler = handler
        self._grants = grants

    async def __call__(self, head: RequestHead, receive: Receive, send: Send) -> None:
        try:
            grant = self._grants.find(head.token)
        except InvalidToken:
            response = await refused_token(self._handler, head.token)
        else:
            response = await self._respond(head, grant, _Lines(send), receive)
        if response is not None:
            await response({"type": "http"}, receive, send)

    async def _respond(self, head: RequestHead, grant: Grant, lines: _Lines, receive: Receive) -> Response | None:
        """Writes the lines of the reply; or returns another response, for a request that failed as a whole."""
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
                watch_request(grant, receive, partial(lines.write, b"\n")) as watch,
                Body(head, receive, most, grant) as (body, size),
            ):
                found = calls_of(body, size, grant)
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
            return failed(ended() if grant.ended else CallError.of(late()))
        for index in unanswered:
            await lines.write(line(numbers[index], Reply(error=ended())))
        await lines.write(b"", last=True)
        return None


def ended() -> CallError:
    """Returns the error of a call whose execution ended while it ran."""
    return CallError.of(InvalidToken("the execution of this token has ended"))


def late() -> MalformedMessage:
    """Returns the error of a request whose body did not arrive in time."""
    return MalformedMessage(f"the request's body did not arrive within {BODY_SECONDS:g} s")


async def refused_token(handler: Handler, token: str | None) -> Response:
    """Responds to a request with an invalid token. The pipeline refuses it, so that it is audited like any call."""
    reply = await handler(Call(CallRequest("", None, 0), protocol="http", token=token))
    return failed(reply.error or ended())


class _Lines:
    """Streamed body of one response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False

    async def write(self, data: bytes, *, last: bool = False) -> None:
        if not self._started:
            self._started = True
            length = [(b"content-length", b"%d" % len(data))] if last else []
            await self._send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *length]})
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})
