"""Results of tools that yield: they are iterated, or gathered into lists whose size is bounded as they grow."""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from io import IOBase
from typing import Any, cast

import anyio
import anyio.lowlevel
from anyio import to_thread
from pydantic import BaseModel

_DATA = frozenset({bool, bytes, dict, float, int, list, str, tuple, type(None)})
_SLACK = 4
"""Multiple of the byte limit at which gathering stops. The exact size is only known once the list is encoded."""
_MOST_WEIGHED = 10_000
"""Maximum number of values examined per item."""
CHECKPOINT_EVERY = 64
"""Number of items after which a generator that awaits nothing gives way to other tasks, and can be cancelled."""
CLOSING_SECONDS = 5.0
"""Seconds that a generator may take to close."""


class TooMuch(Exception):
    """A tool yielded more than fits in a result."""


def is_iterator(result: object) -> bool:
    """True if a result is an iterator, whose items have to be gathered."""
    kind = type(result)
    if kind in _DATA:
        return False
    return hasattr(kind, "__anext__") or (hasattr(kind, "__next__") and not isinstance(result, IOBase))


class Gathering:
    """Gathers the items that one call yields."""

    def __init__(self, most_bytes: float = math.inf) -> None:
        self._items: list[object] = []
        self._left = most_bytes * _SLACK
        self._stopped = False

    def stop(self) -> None:
        """Makes the gathering thread end at its next item."""
        self._stopped = True

    def read(self, result: object) -> object:
        """Gathers an iterator into a list and closes it. Blocks. Returns other results unchanged.

        Raises:
            TooMuch: the items are too many or too large.
        """
        if not is_iterator(result) or hasattr(type(result), "__anext__"):
            return result
        iterator = cast("Iterator[object]", result)
        try:
            for item in iterator:
                self._take(item)
                if self._stopped:
                    break
        finally:
            close: Any = getattr(iterator, "close", None)
            if close is not None:
                close()
        return self._items

    async def receive(self, result: object) -> object:
        """Gathers sync and async iterators without blocking.

        Raises:
            TooMuch: the items are too many or too large.
        """
        if hasattr(type(result), "__anext__"):
            return await self._gather(cast("AsyncIterator[object]", result))
        try:
            return await to_thread.run_sync(self.read, result, abandon_on_cancel=True)
        finally:
            self.stop()

    async def _gather(self, iterator: AsyncIterator[object]) -> object:
        try:
            async for item in iterator:
                self._take(item)
                if len(self._items) % CHECKPOINT_EVERY == 0:
                    await anyio.lowlevel.checkpoint()
        finally:
            close: Any = getattr(iterator, "aclose", None)
            if close is not None:
                with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                    await close()
        return self._items

    def _take(self, item: object) -> None:
        self._items.append(item)
        self._left -= _weight(item)
        if self._left < 0:
            self._items.clear()
            raise TooMuch


def iterate(result: object) -> AsyncIterator[object]:
    """Returns an async iterator over a tool's result. A blocking iterator is read in a thread, item by item.

    Raises:
        TypeError: the result cannot be iterated.
    """
    if isinstance(result, AsyncIterable):
        return aiter(cast("AsyncIterable[object]", result))
    if isinstance(result, str | bytes | Mapping) or not isinstance(result, Iterable):
        kind = type(cast("object", result)).__name__
        raise TypeError(f"a tool that streams returned a value of type {kind} instead of an iterator")
    return _InThread(iter(cast("Iterable[object]", result)))


class _InThread:
    """Reads a blocking iterator in a thread, one item at a time, so that items arrive without delay."""

    def __init__(self, iterator: Iterator[object]) -> None:
        self._iterator = iterator
        self._reading = self._closed = False
        self._state = threading.Lock()

    def __aiter__(self) -> _InThread:
        return self

    async def __anext__(self) -> object:
        self._reading = True
        item = await to_thread.run_sync(self._next, abandon_on_cancel=True)
        if item is None:
            raise StopAsyncIteration
        return item[0]

    async def aclose(self) -> None:
        """Closes the iterator. If it is being read, its thread closes it afterwards."""
        with self._state:
            self._closed = True
            reading = self._reading
        if not reading:
            await to_thread.run_sync(self._close, abandon_on_cancel=True)

    def _next(self) -> tuple[object] | None:
        try:
            for item in self._iterator:
                return (item,)
            return None
        finally:
            with self._state:
                self._reading = False
                closed = self._closed
            if closed:
                self._close()

    def _close(self) -> None:
        close: Any = getattr(self._iterator, "close", None)
        if close is not None:
            close()


def _weight(item: object) -> int:
    """Estimates the encoded size in bytes. The estimate is at least 1."""
    weight = looked_at = 0
    coming = [item]
    while coming and looked_at < _MOST_WEIGHED:
        looked_at += 1
        value = coming.pop()
        weight += 1
        match value:
            case str() | bytes() | bytearray():
                weight += len(value)
            case Mapping():
                members = cast("Mapping[object, object]", value)
                weight += 2 * len(members)
                coming += [*members.values()][:_MOST_WEIGHED]
            case Sequence() | AbstractSet():
                several = cast("Sequence[object]", value)
                weight += len(several)
                coming += [*several][:_MOST_WEIGHED]
            case BaseModel():
                coming += value.__dict__.values()
            case _ if is_dataclass(value):
                coming += getattr(value, "__dict__", {}).values()
            case _:
                pass
    return weight
