"""Reference counting for things that several users need open: the first user opens, the last one closes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio

__all__ = ["RefCounted"]

T = TypeVar("T")


class _Use:
    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.users = 0
        self.opened = AsyncExitStack()


class RefCounted(Generic[T]):
    """Counts the users of each thing. One that was open before its first user stays open after the last.

    `open_` makes the context manager that opens and closes a thing; different tasks may enter and exit it.
    """

    def __init__(self, open_: Callable[[T], AbstractAsyncContextManager[object]], is_open: Callable[[T], bool]) -> None:
        self._open = open_
        self._is_open = is_open
        self._uses = WeakKeyDictionary[T, _Use]()

    async def enter(self, thing: T) -> None:
        """Adds a user. Raises what opening the thing raises."""
        use = self._uses.setdefault(thing, _Use())
        async with use.lock:
            if use.users == 0 and not self._is_open(thing):
                await use.opened.enter_async_context(self._open(thing))
            use.users += 1

    async def leave(self, thing: T) -> None:
        """Removes a user: once for each `enter`."""
        use = self._uses[thing]
        with anyio.CancelScope(shield=True):
            async with use.lock:
                use.users -= 1
                if use.users == 0:
                    await use.opened.aclose()
