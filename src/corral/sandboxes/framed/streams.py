"""The host's end of a stream over frames: items leave in CHUNKs, within a window of what the guest has not read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from corral.concurrency.event_loop import OneShot
from corral.errors import MalformedMessage
from corral.types import EncodedValue

WINDOW_BYTES = 256_000
"""Bytes of one stream that the program has not read: beyond it the tool waits. A single item may be larger."""
_MARK_BYTES = WINDOW_BYTES // 2
"""Bytes after which a CHUNK asks for a CREDIT."""


class FramedStream:
    """Collects items until they leave as one CHUNK, and counts the bytes that the program has not read.

    `ready` is called when there is a CHUNK to send, `abandon` when the program reads no further.
    """

    def __init__(
        self,
        sequence: int,
        ready: Callable[[FramedStream], None],
        abandon: Callable[[], object],
        make_one_shot: Callable[[], OneShot[None]],
    ) -> None:
        self._sequence = sequence
        self._ready = ready
        self._abandon: Callable[[], object] | None = abandon
        self._make_one_shot = make_one_shot
        self._opened = self._tagged = self._cancelled = False
        self._items: list[bytes] = []
        """Items that have not left."""
        self._size = 0
        """Their bytes, and those that have left since the last CHUNK that asked for a CREDIT."""
        self._marks: deque[int] = deque()
        """Bytes that each CREDIT to come is for."""
        self._unread = 0
        """Bytes without a CREDIT."""
        self._room: OneShot[None] | None = None
        ready(self)

    def put(self, item: EncodedValue) -> bool:
        """Takes an item. False: `room` must be awaited before the next one."""
        if not self._items:
            self._ready(self)
        self._items.append(item.text)
        self._tagged = self._tagged or item.tagged
        self._size += len(item.text)
        self._unread += len(item.text)
        return self._unread < WINDOW_BYTES

    async def room(self) -> None:
        """Waits until the program has read enough, or reads no further."""
        if self._unread >= WINDOW_BYTES and self._abandon is not None:
            self._room = self._make_one_shot()
            await self._room.wait()

    def take(self) -> tuple[bytes, bool] | None:
        """Returns the payload of a CHUNK of all items, and whether it has tags; None if there is none to send."""
        if self._cancelled or (self._opened and not self._items):
            return None
        self._opened = True
        wanted = b""
        if self._size >= _MARK_BYTES:
            self._marks.append(self._size)
            self._size = 0
            wanted = b",true"
        payload, tagged = b"[%d,[%b]%b]" % (self._sequence, b",".join(self._items), wanted), self._tagged
        self._items, self._tagged = [], False
        return payload, tagged

    def credit(self) -> None:
        """The program has read all up to a CHUNK that asked.

        Raises:
            MalformedMessage: none did.
        """
        if not self._marks:
            raise MalformedMessage("the sandbox sent a credit that was not asked for")
        self._unread -= self._marks.popleft()
        if self._unread < WINDOW_BYTES:
            self._wake()

    def cancel(self) -> None:
        """The program reads no further, and says so.

        Raises:
            MalformedMessage: it has said so before.
        """
        if self._cancelled:
            raise MalformedMessage("the sandbox cancelled a stream twice")
        self._cancelled = True
        self.abandon()

    def abandon(self) -> None:
        """Ends the stream, unless it has ended."""
        abandon, self._abandon = self._abandon, None
        if abandon is not None:
            abandon()
            self._wake()

    def end(self) -> None:
        """No items will come."""
        self._abandon = None

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set(None)
