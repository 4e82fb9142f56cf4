"""Base of providers whose boxes take long to start, and therefore serve several executions."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import current_token

from corral.concurrency.task_owned import spawn, unwrapped
from corral.errors import StartFailed
from corral.logs import get_logger
from corral.sandboxes.channel import GuestChannel, GuestFiles, PostMortem
from corral.sandboxes.framed.provider import FramedProvider
from corral.sandboxes.tenant_boxes import TenantBoxes
from corral.types import SandboxConfig

logger = get_logger("corral.sandboxes")

_CLOSE_SECONDS = 30.0
_WATCH_SECONDS = 15.0
B = TypeVar("B")


class BoxProvider(FramedProvider, Generic[B]):
    """Runs programs in boxes that outlive them: machines, containers, sandboxes of a vendor.

    A subclass implements `open`, `connect_in` and `close`. A box serves one `SandboxConfig` only: the executions of one
    trust domain, with the same settings. An execution of no trust domain has a box of its own; so has every one while
    the Corral is not open. Guests are never used twice; what a program leaves behind in its box, later programs of its
    user may find. Idle boxes are closed after two minutes.
    """

    executions_at_once: int = 1
    """Executions of one trust domain that share a box at the same time."""
    ready: int = 0
    """Boxes that an open Corral keeps ready for users who are new, of each configuration that it warms."""

    def __init__(self) -> None:
        self._boxes = TenantBoxes[BoxPlace[B]](shared=self.executions_at_once > 1)
        self._waiting: dict[SandboxConfig, deque[_OpenBox[B]]] = {}
        self._pending: set[anyio.Event] = set()
        self._watch: anyio.CancelScope | None = None
        self._open = False

    @abstractmethod
    async def open(self, config: SandboxConfig) -> B:
        """Starts a box. On an error or cancellation nothing is left."""

    @abstractmethod
    async def connect_in(self, box: B, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        """Starts a guest in a box and returns the channel to it; if this raises, the box is closed.

        An exception in a box that has served or waited before is not the execution's: it gets another box.
        """

    @abstractmethod
    async def close(self, box: B) -> None:
        """Ends a box and all that runs in it."""

    async def reserve(self, config: SandboxConfig) -> BoxPlace[B]:
        """Returns an execution's part of a box, which it is to leave."""
        return await self._boxes.reserve(config if self._open else config.unowned, self._new_box)

    async def connect(self, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        while True:
            place = await self.reserve(config)
            try:
                return _ChannelInBox(await self.connect_in(place.box.content, config, guest), place)
            except BaseException as error:
                place.box.retire()
                place.leave()
                if not place.box.used or not isinstance(error, Exception):
                    raise
                logger.info("a box of sandbox %r is of no use any more: %s", self.name, error)

    async def warm(self, config: SandboxConfig) -> None:
        await super().warm(config)
        self._open = True
        waiting = self._waiting.setdefault(config.unowned, deque())
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self.ready - len(waiting)):
                    tasks.start_soon(self._add_waiting, config.unowned)
        except ExceptionGroup as failed:
            raise unwrapped(failed.exceptions[0]) from failed

    async def aclose(self) -> None:
        """Closes all boxes, each busy one with its last execution, and waits for those that are idle."""
        self._open = False
        if self._watch is not None:
            self._watch.cancel()
        for waiting in self._waiting.values():
            for box in waiting:
                box.retire()
        self._waiting.clear()
        self._boxes.close()
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSE_SECONDS) as scope:
            while self._pending:
                await next(iter(self._pending)).wait()
        if scope.cancelled_caught:
            logger.warning("boxes of sandbox %r were not closed within %g s", self.name, _CLOSE_SECONDS)

    async def _new_box(self, config: SandboxConfig) -> _OpenBox[B]:
        waiting = self._waiting.get(config.unowned)
        while waiting:
            box = waiting.popleft()
            self._begin(partial(self._replace_waiting, config.unowned))
            if box.of_this_loop:
                return box
            box.retire()
        return _OpenBox(self, await self.open(config))

    async def _replace_waiting(self, config: SandboxConfig) -> None:
        try:
            await self._add_waiting(config)
        except Exception as error:
            unexpected = not isinstance(error, StartFailed)
            logger.warning("a box could not be opened in advance: %s", error, exc_info=unexpected)

    async def _add_waiting(self, config: SandboxConfig) -> None:
        box = _OpenBox(self, await self.open(config))
        box.used = True
        waiting = self._waiting.get(config)
        if waiting is None or len(waiting) >= self.ready:
            box.retire()
        else:
            waiting.append(box)

    def idle(self) -> None:
        """Has idle boxes closed in time."""
        if self._open and self._watch is None:
            self._watch = anyio.CancelScope()
            spawn(partial(self._watch_idle, self._watch))

    async def _watch_idle(self, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                while self._boxes.drop_idle():
                    await anyio.sleep(_WATCH_SECONDS)
        finally:
            self._watch = None

    def begin_closing(self, box: _OpenBox[B]) -> None:
        """Closes a box in a task of its own."""
        if box.of_this_loop:
            self._begin(partial(self._close, box))
        else:
            logger.warning("a box of sandbox %r was opened in another event loop and is not closed", self.name)

    async def _close(self, box: _OpenBox[B]) -> None:
        try:
            await self.close(box.content)
        except Exception:
            logger.warning("a box of sandbox %r could not be closed", self.name, exc_info=True)

    def _begin(self, function: Callable[[], Awaitable[None]]) -> None:
        """Runs the function in a task for which `aclose` waits."""
        done = anyio.Event()
        self._pending.add(done)

        async def run() -> None:
            try:
                await function()
            finally:
                self._pending.discard(done)
                done.set()

        spawn(run)


class _OpenBox(Generic[B]):
    """A box in the event loop that opened it."""

    def __init__(self, provider: BoxProvider[B], content: B) -> None:
        self.content = content
        self.used = False
        """True once it has served an execution, or has waited for one."""
        self._provider = provider
        self._token = current_token()
        self._live = 0
        self._retired = False
        self._idle_since = time.monotonic()

    @property
    def of_this_loop(self) -> bool:
        return self._token == current_token()

    @property
    def idle_since(self) -> float | None:
        return None if self._live else self._idle_since

    @property
    def retired(self) -> bool:
        return self._retired

    def reserve(self) -> BoxPlace[B] | None:
        if self._retired or self._live >= self._provider.executions_at_once or not self.of_this_loop:
            return None
        self._live += 1
        return BoxPlace(self)

    def retire(self) -> None:
        if not self._retired:
            self._retired = True
            if self._live == 0:
                self._provider.begin_closing(self)

    def leave(self) -> None:
        self._live -= 1
        self._idle_since = time.monotonic()
        if self._live == 0:
            if self._retired:
                self._provider.begin_closing(self)
            else:
                self._provider.idle()


class BoxPlace(Generic[B]):
    """One execution's part of a box."""

    def __init__(self, box: _OpenBox[B]) -> None:
        self.box = box
        self._left = False

    def leave(self) -> None:
        """Gives it back. Idempotent."""
        if not self._left:
            self._left = True
            self.box.leave()


class _ChannelInBox(GuestChannel):
    """A guest's channel; its box may serve the next execution once it is closed."""

    def __init__(self, channel: GuestChannel, place: BoxPlace[B]) -> None:
        self._channel = channel
        self._place = place
        self._ready = False
        place.box.used = True

    async def send(self, data: bytes) -> None:
        self._ready = True  # nothing is sent before READY
        await self._channel.send(data)

    def received(self) -> AsyncIterator[bytes]:
        return self._channel.received()

    async def cpu_seconds(self) -> float | None:
        return await self._channel.cpu_seconds()

    async def post_mortem(self) -> PostMortem:
        return await self._channel.post_mortem()

    async def aclose(self) -> None:
        try:
            await self._channel.aclose()
        except BaseException:
            self._place.box.retire()  # its guest may still run
            raise
        finally:
            if not self._ready:
                self._place.box.retire()  # no guest starts in it
            self._place.leave()
