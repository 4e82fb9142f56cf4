"""A web service with orders, for those who know its key: what the host's credential opens, and programs never see."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "Bearer the-key-of-the-host"
_REGIONS = ("north", "east", "south", "west")


class _Orders(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.headers["Authorization"] != KEY:
            self.send_error(401, "the key is missing")
            return
        orders = [
            {"id": number, "region": _REGIONS[number % 7 % 4], "amount": 20 + number * 37 % 180}
            for number in range(500)
        ]
        body = json.dumps(orders).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stays silent."""


@contextmanager
def orders() -> Generator[str]:
    """Its origin, while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Orders)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
