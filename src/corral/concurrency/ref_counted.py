"""What several users need open: the first of them opens it, and it is closed after the last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio

__all__ = ["Shared"]

T = TypeVar("T")


class _Use:
    def __init__(self) -> None:
        self.lock = anyio.Lock()
        self.users = 0
        self.opened = AsyncExitStack()


class Shared(Generic[T]):
    """Things of one kind. One that was open before its first user came stays open.

    `hold` gives what opens and closes one, where different tasks may do that.
    """

    def __init__(self, hold: Callable[[T], AbstractAsyncContextManager[object]], is_open: Callable[[T], bool]) -> None:
        self._hold = hold
        self._is_open = is_open
        self._uses = WeakKeyDictionary[T, _Use]()

    async def enter(self, thing: T) -> None:
        """Raises what opening it raises."""
        use = self._uses.setdefault(thing, _Use())
        async with use.lock:
            if use.users == 0 and not self._is_open(thing):
                await use.opened.enter_async_context(self._hold(thing))
            use.users += 1

    async def leave(self, thing: T) -> None:
        """For each time that it was entered, once."""
        use = self._uses[thing]
        with anyio.CancelScope(shield=True):
            async with use.lock:
                use.users -= 1
                if use.users == 0:
                    await use.opened.aclose()
