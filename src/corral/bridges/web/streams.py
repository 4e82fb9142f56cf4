"""Sends a stream's items to a client, as fast as it reads them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import anyio
from pydantic_core import from_json
from typing_extensions import override

from corral.guest import plain_json, revive_value
from corral.types import EncodedValue

_LINE_BYTES = 64_000
"""Bytes queued for the client before the tool has to wait, besides the buffers of the server and the socket."""


class WriteItems(Protocol):
    """Writes items, each as JSON, with tags of the value codec if `tagged`."""

    async def __call__(self, items: Sequence[bytes], /, *, tagged: bool) -> None: ...


class LineStream:
    """Collects items and sends them together."""

    def __init__(self, write: WriteItems) -> None:
        self._write = write
        self._items: list[bytes] = []
        self._size = 0
        self._tagged = False
        self._ready = anyio.Event()
        self._room = anyio.Event()
        self._writing = anyio.Lock()

    def open(self, _abandon: Callable[[], object]) -> LineStream:
        """Opens the stream. The client ends it by disconnecting, which also cancels the call."""
        self._ready.set()
        return self

    def put(self, item: EncodedValue) -> bool:
        """Queues an item. Returns False if `room` must be awaited before the next one."""
        self._items.append(item.text)
        self._size += len(item.text)
        self._tagged = self._tagged or item.tagged
        self._ready.set()
        return self._size < _LINE_BYTES

    async def room(self) -> None:
        """Waits until the items have been sent."""
        if self._size >= _LINE_BYTES:
            self._room = anyio.Event()
            await self._room.wait()

    @asynccontextmanager
    async def written(self) -> AsyncGenerator[None]:
        """Writes lines during the block as items arrive; at its end all have been written."""
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
        """Writes a line with the queued items; the first line is written even without items."""
        async with self._writing:
            if not self._ready.is_set():
                return
            items, tagged = self._items, self._tagged
            self._items, self._size, self._tagged = [], 0, False
            self._ready = anyio.Event()
            await self._write(items, tagged=tagged)
            self._room.set()


class PlainLineStream(LineStream):
    """Stream whose items are plain JSON, without tags."""

    @override
    def put(self, item: EncodedValue) -> bool:
        if item.tagged:
            item = EncodedValue(plain_json(revive_value(from_json(item.text))), tagged=False)
        return super().put(item)
