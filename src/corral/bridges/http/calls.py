"""`POST /calls`: what programs call tools by. No framework is in its way, because it is the hot path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Message, Receive, Send

from corral.bridges.grants import Grant, Grants
from corral.bridges.http.entrance import Head, refusal
from corral.bridges.http.wire import calls_of, failed, line, read_json
from corral.errors import AccessDenied, BridgeError, InvalidToken, MessageTooLarge
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
        token = head.token
        try:
            grant = self._grants.find(token)
            if not head.is_json:
                refused: Response = refusal(415, "bridge_error", "the request's content-type must be application/json")
            else:
                most = max(_LEAST_BODY_BYTES, grant.limits.tool_input_bytes) + _BESIDE_INPUT_BYTES
                calls = list(calls_of(*await read_json(head, receive, most), token or ""))
                await self._answer(calls, grant, _Lines(send), receive)
                return
        except InvalidToken:
            refused = await refused_token(self._handler, token)
        except (BridgeError, AccessDenied) as error:
            refused = failed(error)
        await refused({"type": "http"}, receive, send)

    async def _answer(self, calls: list[Call], grant: Grant, lines: _Lines, receive: Receive) -> None:
        async with _attended(lambda gone: _attend(lines, receive, gone)):
            if len(calls) == 1:
                await lines.write(await self._line(calls[0], grant), last=True)
                return

            async def answer(call: Call) -> None:
                await lines.write(await self._line(call, grant))

            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(answer, call)
            await lines.write(b"", last=True)

    async def _line(self, call: Call, grant: Grant) -> bytes:
        call.grant = grant
        allowed = grant.limits.tool_input_bytes
        if call.size <= allowed:
            return line(call, await self._handler(call))
        too_large = MessageTooLarge(f"tools.{call.tool}: the input has {call.size} bytes; {allowed} are allowed")
        return line(call, Reply(error=CallError.of(too_large)))


async def refused_token(handler: Handler, token: str | None) -> Response:
    """The response to a request whose token is none. The pipeline refuses it, so that it is audited as any call."""
    reply = await handler(Call("", None, 0, protocol="http", token=token))
    return failed(reply.error or CallError.of(InvalidToken("the token is not valid")))


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


async def _attend(lines: _Lines, receive: Receive, gone: Callable[[], None]) -> None:
    while True:
        message: Message | None = None
        with anyio.move_on_after(_HEARTBEAT_SECONDS):
            message = await receive()
        if message is None:
            await lines.write(b"\n")
        elif message["type"] == "http.disconnect":
            gone()
            return


@asynccontextmanager
async def _attended(attend: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
    """A block with `attend` beside it, which may end the block by calling what it gets.

    On asyncio, where a task costs as much as all guards together, only blocks that take their time have it.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(attend, tasks.cancel_scope.cancel)
            yield
            tasks.cancel_scope.cancel()
        return
    attendant: asyncio.Task[None] | None = None

    def begin() -> None:
        nonlocal attendant
        attendant = loop.create_task(attend(scope.cancel))

    with anyio.CancelScope() as scope:
        beginning = loop.call_later(_UNATTENDED_SECONDS, begin)
        try:
            yield
        finally:
            beginning.cancel()
            if attendant is not None:
                attendant.cancel()
