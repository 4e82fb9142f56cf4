"""Guests that serve many executions, each of one trust domain only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

import anyio
from anyio.lowlevel import current_token

from corral.concurrency.forks import ProcessOwner
from corral.errors import StartFailed
from corral.sandboxes.jailed.guest_starter import GuestKind, StartedGuest
from corral.sandboxes.pool import Pool, idle_surplus
from corral.types import TrustDomain

__all__ = ["GuestServer", "TenantServers"]

_Key = tuple[GuestKind, TrustDomain | None]
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class GuestServer(Protocol[S_co]):
    """A guest that serves many executions. Its methods are called from one thread at a time."""

    @property
    def idle_since(self) -> float | None:
        """Monotonic time of the end of its last execution; None while one runs."""
        ...

    @property
    def retired(self) -> bool: ...
    def retire(self) -> None:
        """Ends it with its last execution; no other starts in it."""
        ...

    def reserve(self) -> S_co | None:
        """A place for one execution of the running event loop; None if it is full or has ended."""
        ...


class TenantServers(Generic[S]):
    """Guest servers by trust domain, each made by `serve`. Any thread and event loop may use it."""

    def __init__(self, pool: Pool[GuestKind, StartedGuest], serve: Callable[[StartedGuest], GuestServer[S]]) -> None:
        self._pool = pool
        self._serve = serve
        self._owner = ProcessOwner()
        self._lock = threading.Lock()
        self._guests: OrderedDict[_Key, list[GuestServer[S]]] = OrderedDict()
        self._turns: dict[tuple[_Key, object], anyio.Lock] = {}

    async def reserve(self, spec: GuestKind, domain: TrustDomain | None) -> S:
        """A place in a server of this domain, or in a new one.

        Raises:
            StartFailed: as a sandbox's start.
        """
        key = (spec, domain)
        share = self._find(key)
        if share is not None:
            return share
        turn = self._turns.setdefault((key, current_token()), anyio.Lock())
        try:
            async with turn:  # those that come at once share one that is new
                return self._find(key) or self._add(key, await self._pool.take(spec))
        finally:
            if not turn.statistics().tasks_waiting and not turn.locked():
                self._turns.pop((key, current_token()), None)

    def close(self) -> None:
        """Ends idle guests, and each other one with its last execution."""
        with self._lock:
            guests = [guest for each in self._guests.values() for guest in each]
            self._guests.clear()
            for guest in guests:
                guest.retire()

    def _find(self, key: _Key) -> S | None:
        with self._lock:
            if self._owner.take_over():
                self._guests.clear()
            self._drop_idle()
            guests = self._guests.get(key)  # never any for a domain of None
            if guests is None:
                return None
            self._guests.move_to_end(key)
            for guest in guests:
                share = guest.reserve()
                if share is not None:
                    return share
            return None

    def _add(self, key: _Key, made: StartedGuest) -> S:
        guest = self._serve(made)
        with self._lock:
            share = guest.reserve()
            if share is None:
                raise StartFailed("the engine ended as soon as it had started")
            if key[1] is None:
                guest.retire()  # after this one execution
            else:
                self._guests.setdefault(key, []).append(guest)
            return share

    def _drop_idle(self) -> None:
        """Retires guests that are idle for too long, and the longest idle of too many."""
        idle: list[tuple[float, GuestServer[S]]] = []
        for key, guests in list(self._guests.items()):
            guests[:] = [guest for guest in guests if not guest.retired]
            if not guests:
                del self._guests[key]
            idle += [(guest.idle_since, guest) for guest in guests if guest.idle_since is not None]
        idle.sort(key=itemgetter(0))
        for guest in idle_surplus(idle):
            guest.retire()
