"""GraphiQL, a browser page for GraphQL, from npm packages that the host has installed."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

from corral.bridges.web.page_headers import page_headers
from corral.errors import ConfigError

_INSTALLED = {
    "react.js": "react/umd/react.production.min.js",
    "react-dom.js": "react-dom/umd/react-dom.production.min.js",
    "graphiql.js": "graphiql/graphiql.min.js",
    "graphiql.css": "graphiql/graphiql.min.css",
}
"""Paths below `/graphiql/`, and files of the packages: builds for a page without a bundler.

graphiql 5 and react 19 have no such builds.
"""
_MOST_BYTES = 16_000_000
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>GraphiQL</title>
<link rel="stylesheet" href="./graphiql/graphiql.css">
<style>
body { margin: 0; display: flex; flex-direction: column; height: 100vh; font: 14px system-ui, sans-serif }
#entrance { display: flex; gap: 8px; padding: 8px 12px }
#token { flex: 1; max-width: 40em }
#graphiql { flex: 1; min-height: 0 }
</style>
<form id="entrance">
<label for="token">Token</label>
<input id="token" type="password" autocomplete="off" spellcheck="false"> <button>Use</button>
</form>
<div id="graphiql"></div>
<script src="./graphiql/react.js" defer></script>
<script src="./graphiql/react-dom.js" defer></script>
<script src="./graphiql/graphiql.js" defer></script>
<script src="./graphiql/page.js" defer></script>
"""
_HEADERS = {
    # GraphiQL and its editor add their own styles while they run.
    **page_headers(style_src="'self' 'unsafe-inline'", font_src="'self' data:"),
    "cache-control": "no-cache",
}


class Graphiql:
    """The page at `/graphiql` and its files, which are read once. A token is typed into the page and not stored.

    Raises:
        ConfigError: the folder lacks one of the packages, or has a version without the necessary files.
    """

    def __init__(self, node_modules: Path) -> None:
        self._files: dict[str, tuple[bytes, str]] = {
            "/graphiql": (_PAGE.encode(), "text/html; charset=utf-8"),
            "/graphiql/page.js": (Path(__file__).with_name("graphiql.js").read_bytes(), "text/javascript"),
        }
        for name, file in _INSTALLED.items():
            media_type = "text/css" if name.endswith(".css") else "text/javascript"
            self._files[f"/graphiql/{name}"] = _read(node_modules, file), media_type

    def response(self, path: str) -> Response | None:
        """Returns the page or a file of it; None for other paths."""
        file = self._files.get(path)
        return None if file is None else Response(file[0], headers=_HEADERS, media_type=file[1])


def _read(node_modules: Path, file: str) -> bytes:
    path = node_modules / file
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"graphiql: {path} is larger than {_MOST_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"graphiql: {path} cannot be read ({error.strerror}); run `npm install graphiql@3 react@18 react-dom@18`, "
            "and pass its node_modules"
        ) from error
