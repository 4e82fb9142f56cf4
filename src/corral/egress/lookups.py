"""Name lookups by the system's resolver, in a limited number of threads."""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import httpcore

from corral.concurrency.threads import run_in_own_thread

Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the IPv4 and IPv6 addresses of a name, best first. Raises `OSError` if the name has none."""


class SystemResolver:
    """The default resolver of a client: the system's `getaddrinfo`.

    Lookups cannot be interrupted: an abandoned one keeps its place until it has ended.
    """

    def __init__(self, places: int) -> None:
        self._count = places
        self._places = threading.BoundedSemaphore(places)

    async def __call__(self, host: str) -> list[str]:
        """Returns the addresses of `host`.

        Raises:
            OSError: the name has none.
            httpcore.ConnectTimeout: all places are taken.
        """
        # Not anyio's limiter, which does not count abandoned threads.
        return await run_in_own_thread(self._look_up, host, abandon_on_cancel=True)

    def _look_up(self, host: str) -> list[str]:
        if not self._places.acquire(blocking=False):
            raise httpcore.ConnectTimeout(f"{host} was not resolved: {self._count} other lookups have not ended yet")
        try:
            infos = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
        finally:
            self._places.release()
        addresses = [sockaddr[0] for *_, sockaddr in infos]
        return list(dict.fromkeys(address for address in addresses if isinstance(address, str)))  # not without IPv6
