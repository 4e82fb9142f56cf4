"""Reference counting for shared resources: the first user opens one, the last user closes it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from threading import Lock, Timer, current_thread
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio

from corral.concurrency.threads import run_shielded_in_thread

T = TypeVar("T")

_LOCK_POLL_SECONDS = 0.002


class _Use:
    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0
        self.opened = AsyncExitStack()
        self.closing: Timer | None = None
        self.is_closing = False
        self.is_ours = False
        """True if the first user opened the resource, rather than finding it open."""


@asynccontextmanager
async def _held(lock: Lock) -> AsyncGenerator[None]:
    """Holds a lock that users in several event loops share.

    Polls for it: a helper thread could acquire the lock for a task that has been cancelled meanwhile.
    """
    while not lock.acquire(blocking=False):
        await anyio.sleep(_LOCK_POLL_SECONDS)
    try:
        yield
    finally:
        lock.release()


class RefCounted(Generic[T]):
    """Counts the users of each resource. A resource that was open before its first user stays open after the last.

    Users can be in several event loops, if the resource supports that.

    `open_` makes the context manager that opens and closes a resource; different tasks can enter and exit it.
    """

    def __init__(self, open_: Callable[[T], AbstractAsyncContextManager[object]], is_open: Callable[[T], bool]) -> None:
        self._open = open_
        self._is_open = is_open
        self._uses = WeakKeyDictionary[T, _Use]()
        self._taking = Lock()
        """Held while a resource's closing timer is set, cancelled or firing."""

    async def enter(self, thing: T) -> None:
        """Adds a user, opening the resource for the first one. Raises the errors of opening it."""
        use = self._uses.setdefault(thing, _Use())
        async with _held(use.lock):
            if use.users == 0:
                await self._take_back(use)
                if not self._is_open(thing):
                    use.is_ours = True
                    await use.opened.enter_async_context(self._open(thing))
            use.users += 1

    def has_opened(self, thing: T) -> bool:
        """True if a user opened the resource, rather than finding it open."""
        return self._uses[thing].is_ours

    async def leave(self, thing: T, *, keep_seconds: float = 0.0) -> None:
        """Removes a user. Call it once for each `enter`.

        The last user closes the resource. With `keep_seconds`, a thread with its own event loop closes it that much
        later, unless it has a user again by then. It stays open when the process exits.
        """
        use = self._uses[thing]
        with anyio.CancelScope(shield=True):
            async with _held(use.lock):
                use.users -= 1
                if use.users:
                    return
                if keep_seconds:
                    with self._taking:
                        use.closing = Timer(keep_seconds, self._close_later, [use])
                        use.closing.daemon = True
                        use.closing.start()
                else:
                    await _close(use)

    async def _take_back(self, use: _Use) -> None:
        """Cancels a scheduled closing, or waits for one that is already running."""
        with self._taking:
            if use.closing is not None and not use.is_closing:
                use.closing.cancel()
                use.closing = None
        if use.closing is not None:
            await run_shielded_in_thread(use.closing.join)
            use.closing, use.is_closing = None, False

    def _close_later(self, use: _Use) -> None:
        with self._taking:
            if use.closing is not current_thread():  # the resource has a user again
                return
            use.is_closing = True
        anyio.run(_close, use)


async def _close(use: _Use) -> None:
    use.is_ours = False
    await use.opened.aclose()
