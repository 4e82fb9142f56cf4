"""`POST /calls`: the route by which programs call tools. It bypasses the framework, because it is the hot path."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from corral.bridges.base import BridgeHost
from corral.bridges.http.lines import ReplyLines
from corral.bridges.http.messages import failed
from corral.bridges.web import (
    NOT_JSON,
    Batch,
    Body,
    Receive,
    RequestHead,
    Send,
    ended,
    grant_of,
    late,
    most_body_bytes,
    watch_request,
)
from corral.calls.grants import Grant
from corral.errors import BridgeError, CallBudgetExceeded


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
        batch: Batch | None = None
        try:
            async with (
                watch_request(grant, receive, partial(lines.write, b"\n")) as watch,
                Body(head, receive, most_body_bytes(grant), grant) as body,
            ):
                batch = await Batch.read(self._host, grant, "http", body)
                watch.body_received()
                await batch.answer(lines.write)
                return None
        except (BridgeError, CallBudgetExceeded) as error:
            return failed(error)
        if batch is None:
            return failed(ended() if grant.ended else late())
        await batch.end(lines.write)
        return None
