"""Builds the site into build/site, serves it on loopback with `--serve`, and adds it to others with `--publish`."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from docs_src.site import ROOT, Problem, build, publish


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="serve the built site until Ctrl-C")
    parser.add_argument("--port", type=int, default=8787)
    parser.add_argument("--publish", type=Path, metavar="FOLDER", help="add this version to those in a folder")
    arguments = parser.parse_args()
    try:
        site = build(ROOT / "build", versions=arguments.publish is not None)
        if arguments.publish:
            site = publish(site, arguments.publish).parent
    except Problem as problem:
        sys.exit(str(problem))
    print(f"built: {site}")
    if arguments.serve:
        handler = partial(SimpleHTTPRequestHandler, directory=str(site))
        with ThreadingHTTPServer(("127.0.0.1", arguments.port), handler) as server:
            print(f"http://127.0.0.1:{server.server_port}/")
            with suppress(KeyboardInterrupt):
                server.serve_forever()


if __name__ == "__main__":
    main()
