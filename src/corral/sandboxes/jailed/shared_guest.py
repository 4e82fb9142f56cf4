"""One guest for many executions of one trust domain: its pipes are shared, each execution has its own frames in them.

Frames from the guest are told apart by their nonce, which the host gave with START; frames to it carry the number of
the execution. Whatever breaks that order ends the guest for all.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
from anyio.lowlevel import current_token

from corral.concurrency.event_loop import SharedReadableWatch
from corral.guest import FrameKind, encode_frame
from corral.guest.frames import HEADER_BYTES, NONCE_BYTES, run_address
from corral.sandboxes.channel import PostMortem
from corral.sandboxes.jailed.guest_starter import StartedGuest
from corral.types import Tier

__all__ = ["Share", "SharedGuest"]

_EXECUTIONS = 1000
"""After so many a guest takes no more: its memory is never quite as it was."""
_AGE_SECONDS = 600.0
_GROWTH_BYTES = 56 << 20
"""Bytes that a shared guest may have grown by when an execution starts: room for garbage that its engine has
dropped and not collected yet. With more, a program would not find all of the memory that it may use."""
_AT_ONCE = 64
"""Executions that share a guest at the same time; further ones start another."""
_STOP_SECONDS = 0.25
"""For the guest to confirm that an execution was stopped; one that runs in a loop cannot, and is ended for all."""
_LONGEST_FRAME = 1 << 28
_LENGTH_BYTES = 4
_KIND_AT = 4


class SharedGuest:
    """A guest that serves many executions, at the same time too, in one event loop at a time.

    It is retired, so that nothing new starts in it, after so many executions, after so long, and after any that did not
    end as it should; and closed when the last one in it has ended. Its owner calls `share` and `retire` from one thread
    at a time.
    """

    def __init__(self, guest: StartedGuest) -> None:
        self.process = guest.process
        self.tier: Tier = guest.tier
        self._idle_since = time.monotonic()
        self.shares: dict[bytes, Share] = {}
        """Open shares, by their nonce."""
        self.writer: Share | None = None
        """The share in the middle of a frame."""
        self._written = anyio.Event()
        self._born = time.monotonic()
        self._executions = 0
        self._retired = False
        self._token: object = None
        self._reading: SharedReadableWatch | None = None
        self._header: bytes = b""
        self._left = 0
        self._current: Share | None = None
        self._held_at_first = self._held()

    @property
    def retired(self) -> bool:
        return self._retired

    @property
    def idle_since(self) -> float | None:
        return None if self.shares else self._idle_since

    def reserve(self) -> Share | None:
        """A place in it for one execution of the running event loop, if there is one."""
        token = current_token()
        if self._retired or len(self.shares) >= _AT_ONCE or (self.shares and self._token != token):
            return None
        worn = self._executions >= _EXECUTIONS or time.monotonic() - self._born > _AGE_SECONDS
        if worn or not self.process.alive or self._held() > self._held_at_first + _GROWTH_BYTES:
            self.retire()
            return None
        if not self.shares:
            self._token = token
            self._reading = SharedReadableWatch(self.process.output, self._readable)
        self._executions += 1
        share = Share(self, self._executions)
        self.shares[share.nonce] = share
        return share

    def _held(self) -> int:
        """Its memory in bytes; 0 if that cannot be seen."""
        try:
            return self.process.data_bytes()
        except OSError:
            return 0

    def retire(self) -> None:
        """Nothing new starts in it, and it ends with what still runs."""
        self._retired = True
        if not self.shares:
            self.process.close()

    def leave(self, share: Share) -> None:
        """Gives a share back."""
        del self.shares[share.nonce]
        self._idle_since = time.monotonic()
        if not self.shares and self._retired:
            self.process.close()

    def free_writer(self) -> None:
        """Nobody is in the middle of a frame any more."""
        self.writer = None
        self._written.set()
        self._written = anyio.Event()

    async def await_writer(self, share: Share) -> None:
        """Waits until nobody else is in the middle of a frame; then `share` is."""
        while self.writer not in (None, share):
            await self._written.wait()
        self.writer = share

    def reading(self) -> AbstractAsyncContextManager[None]:
        """Within the block, what the guest writes reaches the shares."""
        assert self._reading is not None
        return self._reading()

    def _readable(self) -> bool:
        data = self.process.read_now()
        if data is None:
            return True
        if not data:
            self._retired = True
            self.free_writer()
            for share in list(self.shares.values()):
                share.end()
            return False
        self._pass_on(data)
        return True

    def _pass_on(self, data: bytes) -> None:
        """Hands what was read to whose frames it is, who knows how long each may be; neighbours in one piece."""
        at = 0
        if self._left > 0:
            assert self._current is not None
            self._current.take(data[: self._left])
            at = min(self._left, len(data))
            self._left -= at
            if self._left > 0:
                return
        if self._header:
            data, at = self._header + data[at:], 0
            self._header = b""
        begin = at
        while len(data) - at >= HEADER_BYTES:
            share = self.shares.get(data[at + HEADER_BYTES - NONCE_BYTES : at + HEADER_BYTES])
            length = int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
            if share is None or not HEADER_BYTES - _LENGTH_BYTES <= length <= _LONGEST_FRAME:
                self._retired = True
                self.process.kill()  # nobody's frame; the shares will see that the guest has ended
                return
            last = data[at + _KIND_AT] == FrameKind.EXIT
            if at > begin and (last or share is not self._current):
                assert self._current is not None
                self._current.take(data[begin:at])
                begin = at
            self._current = share
            at += _LENGTH_BYTES + length
            if last:
                share.ends_after(_LENGTH_BYTES + length)
        if at > begin:
            assert self._current is not None
            self._current.take(data[begin:at])
        self._left = max(0, at - len(data))
        self._header = data[at:]


class Share:
    """One execution's part in a guest: the channel of its session, and the way to stop it without ending the guest."""

    def __init__(self, guest: SharedGuest, run: int) -> None:
        self.run = run
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self.guest = guest
        self._receive: Callable[[bytes], None] | None = None
        self._exit_left: int | None = None
        self._exited = anyio.Event()
        self._torn = False
        self._stopped = False

    # --- what the guest writes

    def ends_after(self, size: int) -> None:
        """The next `size` bytes are the last of this execution."""
        self._exit_left = size

    def take(self, data: bytes) -> None:
        """Bytes of its frames."""
        if self._receive is not None:
            self._receive(data)
        if self._exit_left is not None:
            self._exit_left -= len(data)
            if self._exit_left <= 0:
                self._exited.set()

    def end(self) -> None:
        """The guest has ended."""
        if self._receive is not None:
            self._receive(b"")
        self._exited.set()

    # --- the channel

    @asynccontextmanager
    async def reading(self, receive: Callable[[bytes], None]) -> AsyncGenerator[None]:
        self._receive = receive
        try:
            async with self.guest.reading():
                yield
        finally:
            self._receive = None

    def write_now(self, data: bytes | bytearray) -> int:
        if self.guest.writer not in (None, self):
            return 0
        written = self.guest.process.write_now(data)
        if 0 < written < len(data):
            self.guest.writer = self  # the rest comes next, by `write`
            self._torn = True
        return written

    async def write(self, data: bytes | bytearray) -> None:
        await self.guest.await_writer(self)
        self._torn = True  # unless the lines below come to their end
        await self.guest.process.write(data)
        self._torn = False
        self.guest.free_writer()

    def kill(self) -> None:
        """Has the guest stop this execution, unless somebody is in the middle of a frame; `aclose` makes sure of it."""
        if self.guest.writer is None and not self._torn:
            frame = self._stop_frame()
            written = self.guest.process.write_now(frame)
            self._stopped = written == len(frame)
            self._torn = 0 < written < len(frame)

    def end_guest(self) -> None:
        self.guest.process.kill()

    def cpu_time(self) -> float:
        return self.guest.process.cpu_time()

    def threads(self) -> int:
        return self.guest.process.threads()

    async def post_mortem(self) -> PostMortem:
        return await self.guest.process.post_mortem()

    def _stop_frame(self) -> bytes:
        return encode_frame(FrameKind.STOP, b"[]", run_address(self.run))

    async def aclose(self, *, clean: bool) -> None:
        """Gives the share back. Unless the execution came `clean` to its end, sees to it that the guest stops it."""
        guest = self.guest
        try:
            if not clean and not self._torn and not self._exited.is_set():
                with anyio.move_on_after(_STOP_SECONDS, shield=True):
                    async with guest.reading():
                        if not self._stopped:
                            await self.write(self._stop_frame())
                        await self._exited.wait()
        finally:  # asyncio's own cancellation comes through the shield
            if self._torn or not (clean or self._exited.is_set()):
                guest.process.kill()
            if self._torn or not clean:
                guest.retire()
            guest.leave(self)
