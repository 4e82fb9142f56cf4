"""Login of browsers: who sends an API key once gets a cookie, which scripts cannot read and other sites do not send."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from urllib.parse import parse_qs

from corral import ExecutionContext
from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

__all__ = ["Logins"]

_COOKIE = "tenants"
_MAX_LOGINS = 1_000
_MAX_BYTES = 1_000
_PAGE = """<!doctype html>
<html lang="en">
  <head>
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>Invoices</title>
    <link rel="stylesheet" href="/chat/assets/index.css" />
  </head>
  <body>
    <main class="notice">
      <h1>Invoices</h1>
      <form method="post">
        {problem}
        <label>API key <input name="key" type="password" autofocus required /></label>
        <button class="yes">Log in</button>
      </form>
    </main>
  </body>
</html>"""
"""In the design of the chat page, whose styles need no login."""


class Logins:
    """Browsers that are logged in, in this process. The oldest one goes when there are too many."""

    def __init__(self, find: Callable[[str], ExecutionContext | None]) -> None:
        self._find = find
        self._callers: dict[str, ExecutionContext] = {}

    def caller(self, request: Request) -> ExecutionContext | None:
        """The caller of a request, by its cookie."""
        return self._callers.get(request.cookies.get(_COOKIE, ""))

    def router(self) -> APIRouter:
        router = APIRouter()

        @router.get("/login")
        async def show() -> HTMLResponse:  # pyright: ignore[reportUnusedFunction]
            return HTMLResponse(_PAGE.format(problem=""))

        @router.post("/login")
        async def log_in(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
            body = bytearray()
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MAX_BYTES:
                    raise HTTPException(413, "a form of the login is short")
            caller = self._find(parse_qs(body.decode(errors="replace")).get("key", [""])[0])
            if caller is None:
                return HTMLResponse(
                    _PAGE.format(problem='<p class="why" role="alert">This API key is not known.</p>'), 401
                )
            if len(self._callers) >= _MAX_LOGINS:
                del self._callers[next(iter(self._callers))]
            self._callers[name := secrets.token_urlsafe()] = caller
            response = RedirectResponse("/chat/", 303)
            response.set_cookie(_COOKIE, name, httponly=True, samesite="strict", secure=request.url.scheme == "https")
            return response

        return router
