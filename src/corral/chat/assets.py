"""Files of the page, compressed and with ETags."""

from __future__ import annotations

import gzip
import html
import mimetypes
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

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
    """Returns a page in the same design with only a notice."""
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
