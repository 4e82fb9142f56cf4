"""Security headers, and the login of `corral chat`: a one-time code in the URL, then a session cookie."""

from __future__ import annotations

import hmac
import secrets
from http.cookies import SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse

from corral.bridges.base import ASGIApp, Message, Receive, Scope, Send
from corral.bridges.web.responses import page_headers
from corral.chat.assets import notice_page
from corral.types import ExecutionContext

_HEADERS = page_headers()


class SecurityHeaders:
    """Adds security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_bound)


class OneTimeLogin:
    """Login for one user of this machine: the first request with the code gets a session cookie.

    Pass `authenticate` to `chat_app`, and wrap the app by `guard`. The port is part of the cookie's name, since
    browsers send cookies to all ports of a host.
    """

    def __init__(self, context: ExecutionContext, port: int) -> None:
        self.code = secrets.token_urlsafe(24)
        self._unused = True
        self._context = context
        self._session = secrets.token_urlsafe(32)
        self._cookie = f"corral_chat_{port}"

    def authenticate(self, request: Request) -> ExecutionContext | None:
        """Returns the context of a request with the session cookie; None for others."""
        cookie = request.cookies.get(self._cookie, "")
        return self._context if hmac.compare_digest(cookie.encode(), self._session.encode()) else None

    def guard(self, app: ASGIApp) -> ASGIApp:
        """Wraps an app: a request for `/?code=...` gets the cookie, and is redirected to the page."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            codes = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("code")
            if scope["type"] == "http" and scope["path"] == "/" and codes:
                await self._enter(codes[0])(scope, receive, send)
            else:
                await app(scope, receive, send)

        return SecurityHeaders(guarded)

    def _enter(self, code: str) -> ASGIApp:
        if not (self._unused and hmac.compare_digest(code.encode(), self.code.encode())):
            text = "It works once, in one browser. Start corral chat again for a new one."
            return notice_page("", "This address has been used", text, 403)
        self._unused = False
        response = RedirectResponse("/", 303)
        cookie: SimpleCookie = SimpleCookie({self._cookie: self._session})
        cookie[self._cookie] |= {"httponly": True, "samesite": "Strict", "path": "/"}
        response.headers.append("set-cookie", cookie.output(header="").strip())
        return response
