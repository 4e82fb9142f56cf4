"""From names to addresses, by the system's resolver, in a bounded number of threads."""

from __future__ import annotations

import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import httpcore

from corral.concurrency.threads import run_in_own_thread

Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Gives the IPv4 and IPv6 addresses of a name, best first. Raises `OSError` if there are none."""


class SystemResolver:
    """The default resolver of one client: the system's `getaddrinfo`.

    A lookup cannot be interrupted. One that nobody waits for any more keeps its place until it has ended.
    """

    def __init__(self, places: int) -> None:
        self._count = places
        self._places = threading.BoundedSemaphore(places)

    async def __call__(self, host: str) -> list[str]:
        """The addresses of `host`.

        Raises:
            OSError: there are none.
            httpcore.ConnectTimeout: all places are taken.
        """
        # The bound is ours: anyio's limiters do not count a thread that nobody waits for.
        return await run_in_own_thread(self._look_up, host, abandon_on_cancel=True)

    def _look_up(self, host: str) -> list[str]:
        if not self._places.acquire(blocking=False):
            raise httpcore.ConnectTimeout(f"{host} was not resolved: {self._count} other lookups have not ended yet")
        try:
            found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
        finally:
            self._places.release()
        addresses = [sockaddr[0] for *_, sockaddr in found]
        return list(dict.fromkeys(address for address in addresses if isinstance(address, str)))  # not without IPv6
