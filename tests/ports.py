"""Ports that nobody else takes while nobody listens there: for servers that come late, or again, or at two addresses."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager


@contextmanager
def held_port(*hosts: str, port: int = 0) -> Generator[int]:
    """Keeps a port of these addresses, by default of 127.0.0.1, for the duration of the block; servers may listen there.

    Raises:
        OSError: somebody else has it.
    """
    with ExitStack() as held:
        for host in hosts or ("127.0.0.1",):
            kept = held.enter_context(socket.socket())
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind((host, port))
            port = kept.getsockname()[1]
        yield port
