"""Items of a stream on their way to a client: they leave as fast as it reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from corral.types import EncodedValue

_WAITING_BYTES = 64_000
"""Bytes that wait for the client before the tool does."""


class ItemStream:
    """Stream of one call. `write` returns once the client has room for more."""

    def __init__(self, write: Callable[[EncodedValue], Awaitable[None]]) -> None:
        self._write = write
        self._items: deque[EncodedValue] = deque()
        self._size = 0
        self._ready = anyio.Event()
        self._room = anyio.Event()
        self._writing = anyio.Lock()

    def open(self, _abandon: Callable[[], object]) -> ItemStream:
        """Opens the stream. The client ends it by cancelling the call."""
        return self

    def put(self, item: EncodedValue) -> bool:
        """Takes an item. False: `room` must be awaited before the next one."""
        self._items.append(item)
        self._size += len(item.text)
        self._ready.set()
        return self._size < _WAITING_BYTES

    async def room(self) -> None:
        """Waits until the items have left."""
        if self._size >= _WAITING_BYTES:
            self._room = anyio.Event()
            await self._room.wait()

    @asynccontextmanager
    async def written(self) -> AsyncGenerator[None]:
        """Writes items within the block, as they come; at its end all have been written."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write_items)
            yield
            await self._flush()
            tasks.cancel_scope.cancel()

    async def _write_items(self) -> None:
        while True:
            await self._ready.wait()
            await self._flush()

    async def _flush(self) -> None:
        async with self._writing:
            self._ready = anyio.Event()
            while self._items:
                item = self._items.popleft()
                await self._write(item)
                self._size -= len(item.text)
                if self._size < _WAITING_BYTES:
                    self._room.set()
