"""A stream in the reply to one request: its items leave in lines, as fast as the client reads them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from corral.bridges.http.messages import items_line
from corral.types import EncodedValue

__all__ = ["LineStream"]

_LINE_BYTES = 64_000
"""Bytes that wait for the client before the tool does; beyond them are the buffers of the server and the socket."""


class LineStream:
    """Collects items until they leave as one line."""

    def __init__(self, number: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._number = number
        self._write = write
        self._items: list[bytes] = []
        self._size = 0
        self._tagged = False
        self._ready = anyio.Event()
        self._room = anyio.Event()
        self._writing = anyio.Lock()

    def open(self, _abandon: Callable[[], object]) -> LineStream:
        """Opens the stream. The client ends it by disconnecting, which cancels the call."""
        self._ready.set()
        return self

    def put(self, item: EncodedValue) -> bool:
        """Takes an item. False: `room` must be awaited before the next one."""
        self._items.append(item.text)
        self._size += len(item.text)
        self._tagged = self._tagged or item.tagged
        self._ready.set()
        return self._size < _LINE_BYTES

    async def room(self) -> None:
        """Waits until the items have left."""
        if self._size >= _LINE_BYTES:
            self._room = anyio.Event()
            await self._room.wait()

    @asynccontextmanager
    async def written(self) -> AsyncGenerator[None]:
        """Writes lines within the block, as items come; at its end all have been written."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write_lines)
            yield
            await self._flush()
            tasks.cancel_scope.cancel()

    async def _write_lines(self) -> None:
        while True:
            await self._ready.wait()
            await self._flush()

    async def _flush(self) -> None:
        """Writes a line with the items that wait, the first one also without any."""
        async with self._writing:
            if not self._ready.is_set():
                return
            data = items_line(self._number, self._items, tagged=self._tagged)
            self._items, self._size, self._tagged = [], 0, False
            self._ready = anyio.Event()
            await self._write(data)
            self._room.set()
