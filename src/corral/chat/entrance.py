"""Files of the page, its security headers, and the login of `corral chat`: a one-time code, then a session cookie."""

from __future__ import annotations

import gzip
import hmac
import html
import mimetypes
import secrets
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from corral.bridges.base import ASGIApp, Message, Receive, Scope, Send
from corral.bridges.web.responses import page_headers
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

    Pass `authenticate` to `chat_app`, and wrap the app in `guard`. The port is part of the cookie's name, because
    browsers send cookies to all ports of a host.
    """

    def __init__(self, context: ExecutionContext, port: int) -> None:
        self.code = secrets.token_urlsafe(24)
        self._unused = True
        self._context = context
        self._session = secrets.token_urlsafe(32)
        self._cookie = f"corral_chat_{port}"

    def authenticate(self, request: Request) -> ExecutionContext | None:
        """Returns the context of a request that has the session cookie; None for others."""
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


# --- files

_STATIC = Path(__file__).parent / "static"
_NOTICE = """\
<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>{title}</title>
    <link rel="icon" href="data:," />
    <link rel="stylesheet" href="{root}/assets/index.css" />
  </head>
  <body>
    <main class="notice">
      <h1>{title}</h1>
      <p>{text}</p>
    </main>
  </body>
</html>
"""


@dataclass(frozen=True, slots=True)
class _Asset:
    content: bytes
    compressed: bytes
    etag: str
    media_type: str


def index_page(root_path: str) -> Response:
    """Returns the page of an app that is mounted at `root_path`."""
    text = (_STATIC / "index.html").read_text(encoding="utf-8")
    return HTMLResponse(text.replace('"./', f'"{html.escape(root_path, quote=True)}/'))


def notice_page(root_path: str, title: str, text: str, status: int) -> Response:
    """Returns a page in the same design that contains only a notice."""
    root, title, text = (html.escape(each, quote=True) for each in (root_path, title, text))
    return HTMLResponse(_NOTICE.format(root=root, title=title, text=text), status)


async def asset(request: Request) -> Response:
    """Returns a script or style of the page."""
    file = _assets().get(request.path_params["name"])
    if file is None:
        raise HTTPException(404, "the page does not have this file")
    headers = {"etag": file.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(file.content, media_type=file.media_type, headers=headers)
    return Response(file.compressed, media_type=file.media_type, headers={**headers, "content-encoding": "gzip"})


@cache
def _assets() -> dict[str, _Asset]:
    return {path.name: _read(path) for path in sorted((_STATIC / "assets").iterdir())}


def _read(path: Path) -> _Asset:
    content = path.read_bytes()
    etag = f'"{sha256(content).hexdigest()[:32]}"'
    # Python before 3.12 returns "application/javascript", unless a system file overrides it.
    media_type = "text/javascript" if path.suffix == ".js" else mimetypes.types_map[path.suffix]
    return _Asset(content, gzip.compress(content, mtime=0), etag, media_type)
