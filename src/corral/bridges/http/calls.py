"""`POST /calls`: what programs call tools by. No framework is in its way, because it is the hot path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

import anyio
from anyio.abc import TaskGroup
from starlette.responses import Response
from starlette.types import Message, Receive, Send

from corral.bridges.grants import Grant, Grants
from corral.bridges.http.entrance import Head, refusal
from corral.bridges.http.wire import calls_of, failed, line, read_json
from corral.errors import BridgeError, InvalidToken, MessageTooLarge
from corral.types import Call, CallError, Handler, Reply

__all__ = ["CallsEndpoint", "refused_token"]

_HEARTBEAT_SECONDS = 15.0
"""A reply that waits longer for a call gets an empty line, so that nobody in between takes the connection for dead."""
_UNATTENDED_SECONDS = 0.05
"""Most calls are answered before anybody has to look whether the client is still there."""
_BESIDE_INPUT_BYTES = 100_000
_LEAST_BODY_BYTES = 1_000_000
"""What a batch of the runtime has as input at most, unless one call has more."""
_HEADERS = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]


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
                    calls = list(calls_of(*await read_json(head, receive, most), grant))
                    await self._answer(calls, grant, _Lines(send), receive)
                    return
                response = refusal(415, "bridge_error", "the request's content-type must be application/json")
            except BridgeError as error:
                response = failed(error)
        await response({"type": "http"}, receive, send)

    async def _answer(self, calls: list[Call], grant: Grant, lines: _Lines, receive: Receive) -> None:
        unanswered = {call.sequence: call for call in calls}

        async def answer(call: Call) -> None:
            reply = await self._reply(call, grant)
            del unanswered[call.sequence]
            await lines.write(line(call, reply), last=len(calls) == 1)

        with grant.within() as scope:
            async with _Attendance(lines, receive, scope):
                if len(calls) == 1:
                    await answer(calls[0])
                else:
                    async with anyio.create_task_group() as tasks:
                        for call in calls:
                            tasks.start_soon(answer, call)
        if grant.ended:
            for call in unanswered.values():
                await lines.write(line(call, Reply(error=ended())))
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


class _Attendance:
    """A block beside which it is watched whether the client is still there; if it goes, `scope` is cancelled.

    On asyncio, where a task costs as much as all guards together, that begins only if the block takes its time.
    """

    def __init__(self, lines: _Lines, receive: Receive, scope: anyio.CancelScope) -> None:
        self._lines = lines
        self._receive = receive
        self._scope = scope
        self._stop: Callable[[], object]
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._tasks = await anyio.create_task_group().__aenter__()
            self._tasks.start_soon(self._attend)
            self._stop = self._tasks.cancel_scope.cancel
        else:
            self._stop = loop.call_later(_UNATTENDED_SECONDS, self._begin, loop).cancel

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._stop = loop.create_task(self._attend()).cancel

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()
        if self._tasks is not None:
            await self._tasks.__aexit__(kind, error, traceback)

    async def _attend(self) -> None:
        while True:
            message: Message | None = None
            with anyio.move_on_after(_HEARTBEAT_SECONDS):
                message = await self._receive()
            if message is None:
                await self._lines.write(b"\n")
            elif message["type"] == "http.disconnect":
                self._scope.cancel()
                return
