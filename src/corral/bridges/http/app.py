"""Routes besides `/calls`: `/tools/{tool}` for any HTTP client, tokens, documents and runtimes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import override

from corral.bridges.base import BridgeHost, BridgeProtocol, Receive, Scope, Send
from corral.bridges.http.lines import NDJSON, ReplyLines
from corral.bridges.http.messages import failed
from corral.bridges.web import (
    NOT_JSON,
    Body,
    PlainLineStream,
    RequestHead,
    ended,
    grant_of,
    items_writer,
    late,
    line,
    load_of,
    parse_json,
    read_body,
    watch_request,
)
from corral.bridges.web.runtimes import RUNTIMES
from corral.calls.calls import Call
from corral.calls.grants import Grant
from corral.errors import AccessDenied, BridgeError, CallBudgetExceeded
from corral.guest import plain_json
from corral.types import MAX_TOOL_PATH, CallError, CallRequest, Language, Reply

_NO_STORE = {"cache-control": "no-store"}

Serve = Callable[[Request, RequestHead, Grant], Awaitable[Response]]


def bridge_app(bridge: BridgeProtocol, host: BridgeHost) -> Starlette:
    """Builds the app. All routes except `/health` and the runtimes require a token."""

    def authenticated(serve: Serve) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            head = RequestHead(request.scope)
            grant = await grant_of(host, head, "http")
            if not isinstance(grant, Grant):
                return failed(grant)
            try:
                return await serve(request, head, grant)
            except (BridgeError, AccessDenied, CallBudgetExceeded) as error:
                return failed(error)

        return endpoint

    async def tool(request: Request, head: RequestHead, grant: Grant) -> Response:
        if not head.is_json:
            return failed(NOT_JSON, 415)
        name: str = request.path_params["tool"][:MAX_TOOL_PATH]
        if _accepts_lines(request) and (target := grant.peek_tool(name)) is not None and target.stream:
            return _Streaming(partial(stream, head, grant, name))
        body_came = False
        async with (
            watch_request(grant, request.receive, _no_heartbeat) as watch,
            Body(head, request.receive, grant.limits.tool_input_bytes, grant) as body,
        ):
            called = _request(name, body, grant)
            body_came = True
            watch.body_received()
            reply = await host.handle(Call(called, grant, protocol="http"))
            if reply.error is not None:
                return failed(reply.error)
            return Response(plain_json(reply.value), headers=_NO_STORE, media_type="application/json")
        return failed(ended() if body_came or grant.ended else late())

    async def stream(head: RequestHead, grant: Grant, name: str, receive: Receive, send: Send) -> Response | None:
        """Writes the lines of a stream, or returns another response if the call failed before its first line."""
        lines = ReplyLines(send)
        items = PlainLineStream(items_writer(1, lines.write))
        body_came = False

        async def heartbeat() -> None:
            if lines.started:
                await lines.write(b"\n")

        try:
            async with (
                watch_request(grant, receive, heartbeat) as watch,
                Body(head, receive, grant.limits.tool_input_bytes, grant) as body,
            ):
                called = _request(name, body, grant)._replace(open_stream=items.open)
                body_came = True
                watch.body_received()
                async with items.written():
                    reply = await host.handle(Call(called, grant, protocol="http"))
                if reply.error is not None and not lines.started:
                    return failed(reply.error)
                await lines.write(line(1, reply), last=True)
                return None
        except (BridgeError, CallBudgetExceeded) as error:
            return failed(error)
        if not lines.started:
            return failed(ended() if body_came or grant.ended else late())
        await lines.write(line(1, Reply(error=ended())), last=True)
        return None

    async def token(request: Request, head: RequestHead, grant: Grant) -> Response:
        async with watch_request(grant, request.receive, _no_heartbeat):
            parse_json(await read_body(head, request.receive, 1_000))
            renewed, expires = host.renew(grant)
            return JSONResponse({"token": renewed, "expires": expires}, headers=_NO_STORE)
        return failed(ended() if grant.ended else late())

    async def document(request: Request, head: RequestHead, grant: Grant) -> Response:  # noqa: ARG001
        load_of(grant).count(1)
        async with watch_request(grant, request.receive, _no_heartbeat) as watch:
            watch.body_received()  # a GET has no body
            description = await bridge.document(grant)
            assert description is not None
            return Response(description.content, headers=_NO_STORE, media_type=description.media_type)
        return failed(ended())

    async def health(request: Request) -> Response:  # noqa: ARG001
        return JSONResponse({"status": "ok"})

    def runtime(language: Language, media_type: str) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:  # noqa: ARG001
            return Response(bridge.guest_runtime(language), media_type=media_type)

        return serve

    app = Starlette(
        routes=[
            Route("/tools/{tool}", authenticated(tool), methods=["POST"]),
            Route("/token", authenticated(token), methods=["POST"]),
            Route("/openapi.json", authenticated(document), methods=["GET"]),
            Route("/health", health, methods=["GET"]),
            *(Route(path, runtime(*served), methods=["GET"]) for path, served in RUNTIMES.items()),
            Route("/calls", _only_post, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _not_served},
    )
    app.router.redirect_slashes = False  # a redirect could send the token elsewhere
    return app


def _request(name: str, body: bytes, grant: Grant) -> CallRequest:
    input = parse_json(body)
    return CallRequest(name, input, load_of(grant).count(1), len(body), partial(parse_json, body))


class _Streaming(Response):
    """Response that `answer` writes itself, unless it returns another."""

    def __init__(self, answer: Callable[[Receive, Send], Awaitable[Response | None]]) -> None:
        super().__init__()
        self._answer = answer

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(receive, send)
        if response is not None:
            await response(scope, receive, send)


def _accepts_lines(request: Request) -> bool:
    """True if the client reads NDJSON. Parses no other header: this is a hot path."""
    for name, value in request.scope["headers"]:  # noqa: SIM110 - a generator costs a frame for each header
        if name == b"accept" and NDJSON.encode() in value:
            return True
    return False


async def _only_post(request: Request) -> Response:  # noqa: ARG001
    """Never called: `RequestFilter` handles POST /calls. The route makes the router answer 405 to other methods."""
    return Response(status_code=500)


async def _no_heartbeat() -> None:
    """Does nothing, because the response cannot begin before its status is known."""


async def _not_served(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return failed(CallError.of(BridgeError(error.detail)), error.status_code, error.headers)
