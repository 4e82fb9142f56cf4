"""Base of providers whose boxes start slowly and therefore serve several executions."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import current_token
from typing_extensions import override

from corral.concurrency.task_owned import spawn, unwrapped
from corral.errors import StartFailed
from corral.logs import get_logger
from corral.sandboxes.channel import GuestChannel, GuestFiles, PostMortem
from corral.sandboxes.framed.provider import FramedProvider
from corral.sandboxes.pool import Box, OwnedBoxes
from corral.types import SandboxConfig

logger = get_logger("corral.sandboxes")

_CLOSE_SECONDS = 30.0
_WATCH_SECONDS = 15.0
B = TypeVar("B")


class BoxProvider(FramedProvider, Generic[B]):
    """Runs programs in boxes that outlive them, such as a vendor's machines, containers or sandboxes.

    A subclass implements `open`, `connect_in` and `close`. A box serves only one `SandboxConfig`, so all of its
    executions have the same owner and settings. An execution without an owner has a separate box, as does every
    execution while the Corral is not open. Guests are never reused. Data that a program leaves in its box is visible to
    later programs of the same user. Idle boxes are closed after two minutes.
    """

    executions_at_once: int = 1
    """Number of executions of one owner that can share a box at the same time."""
    ready: int = 0
    """Number of boxes that an open Corral keeps ready for new users, for each configuration that it prepares."""

    def __init__(self) -> None:
        self._boxes = OwnedBoxes[_BoxPlace[B]](shared=self.executions_at_once > 1)
        self._waiting: dict[SandboxConfig, deque[_OpenBox[B]]] = {}
        self._pending: set[anyio.Event] = set()
        self._watch: anyio.CancelScope | None = None
        self._open = False

    @abstractmethod
    async def open(self, config: SandboxConfig) -> B:
        """Starts a box. Must leave nothing behind on an error or cancellation."""

    @abstractmethod
    async def connect_in(self, box: B, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        """Starts a guest in a box and returns the channel to it. If this raises, the box is closed.

        If the box has served or waited before, the execution then gets another box instead of the error.
        """

    @abstractmethod
    async def close(self, box: B) -> None:
        """Ends a box and everything that runs in it."""

    async def reserve(self, config: SandboxConfig) -> _BoxPlace[B]:
        """Reserves a slot in a box for an execution, which has to release it."""
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
                logger.info("a box of sandbox %r is no longer usable: %s", self.name, error)

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
        """Closes all boxes, and waits for the idle ones. Busy boxes are closed after their last execution."""
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
            self._start(partial(self._replace_waiting, config.unowned))
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
        """Schedules the closing of idle boxes."""
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
        """Closes a box in its own task."""
        if box.of_this_loop:
            self._start(partial(self._close, box))
        else:
            logger.warning("a box of sandbox %r was opened in another event loop and is not closed", self.name)

    async def _close(self, box: _OpenBox[B]) -> None:
        try:
            await self.close(box.content)
        except Exception:
            logger.warning("a box of sandbox %r could not be closed", self.name, exc_info=True)

    def _start(self, function: Callable[[], Awaitable[None]]) -> None:
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


class _OpenBox(Box["_BoxPlace[B]"], Generic[B]):
    """Box, used in the event loop that opened it."""

    def __init__(self, provider: BoxProvider[B], content: B) -> None:
        super().__init__(provider.executions_at_once)
        self.content = content
        self.used = False
        """True once it has served an execution, or has waited for one."""
        self._provider = provider
        self._token = current_token()

    @property
    def of_this_loop(self) -> bool:
        return self._token == current_token()

    @override
    def enter(self) -> _BoxPlace[B] | None:
        return _BoxPlace(self) if self.of_this_loop else None

    @override
    def leave(self) -> None:
        super().leave()
        if self.idle_since is not None and not self.retired:
            self._provider.idle()

    @override
    def end(self) -> None:
        self._provider.begin_closing(self)


class _BoxPlace(Generic[B]):
    """Slot of one execution in a box."""

    def __init__(self, box: _OpenBox[B]) -> None:
        self.box = box
        self._left = False

    def leave(self) -> None:
        """Releases the slot. Idempotent."""
        if not self._left:
            self._left = True
            self.box.leave()


class _ChannelInBox(GuestChannel):
    """Channel of a guest. Once it is closed, its box can serve the next execution."""

    def __init__(self, channel: GuestChannel, place: _BoxPlace[B]) -> None:
        self._channel = channel
        self._place = place
        self._ready = False
        place.box.used = True

    async def send(self, data: bytes) -> None:
        self._ready = True  # nothing is sent before READY
        await self._channel.send(data)

    def received(self) -> AsyncIterator[bytes]:
        return self._channel.received()

    def attach(
        self,
        receive: Callable[[bytes], None],
        ended: Callable[[Exception | None], None],
        on_cpu: Callable[[float], None],
    ) -> bool:
        return self._channel.attach(receive, ended, on_cpu)

    def send_now(self, data: bytes | bytearray) -> int:
        self._ready = True
        return self._channel.send_now(data)

    def limit_cpu(self, seconds: float) -> None:
        self._channel.limit_cpu(seconds)

    async def cpu_seconds(self) -> float | None:
        return await self._channel.cpu_seconds()

    async def post_mortem(self) -> PostMortem:
        return await self._channel.post_mortem()

    async def aclose(self) -> None:
        try:
            await self._channel.aclose()
        except BaseException:
            self._place.box.retire()  # its guest can still be running
            raise
        finally:
            if not self._ready:
                self._place.box.retire()  # no guest starts in it
            self._place.leave()
