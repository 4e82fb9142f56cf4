"""Connection of a session to its guest: `Link`, and `ChannelLink` over any `GuestChannel`."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar, cast

import anyio

from corral.concurrency.task_owned import spawn
from corral.errors import BridgeError, StartFailed
from corral.guest import FrameKind, FrameReader, decode_value
from corral.guest.python.frames import NO_NONCE, NONCE_BYTES, PROTOCOL
from corral.logs import get_logger
from corral.sandboxes.channel import ChannelLost, GuestChannel, PostMortem

logger = get_logger("corral.sandboxes")

_CLOSE_SECONDS = 10.0
_POST_MORTEM_SECONDS = 5.0
_MEASURE_SECONDS = 0.25
_READY_BYTES = 100
_EARLY_BYTES = 64_000
"""Maximum bytes that a channel may push before START. A guest writes 25."""
_STDERR_TAIL_CHARS = 16_384
_REASON_CHARS = 400
T = TypeVar("T")


class Link(Protocol):
    """Connection to a guest. Raw descriptors have a separate implementation, because a message over an asynchronous
    stream costs four times as much."""

    @property
    def nonce(self) -> bytes:
        """Nonce in the guest's frames."""
        ...

    @property
    def lost(self) -> str:
        """Reason why the connection itself was lost; "" if it was not."""
        ...

    def reading(self, receive: Callable[[bytes], None]) -> AbstractAsyncContextManager[None]:
        """During the block, passes the guest's output to `receive` as it arrives, and `b""` once at its end."""
        ...

    def write_now(self, data: bytes | bytearray) -> int:
        """Writes as much as the guest accepts at once, and returns the number of bytes."""
        ...

    async def write(self, data: bytes | bytearray) -> None: ...
    def kill(self) -> None:
        """Ends the guest at once."""
        ...

    def cpu_time(self) -> float | None:
        """Returns the guest's processor seconds; None if not measured."""
        ...

    def reports_cpu(self, changed: Callable[[], object]) -> bool:
        """Calls `changed` whenever `cpu_time` has grown, if the guest's machine reports it. False if it does not."""
        ...

    def threads(self) -> int:
        """Returns the guest's number of threads; 0 if unknown."""
        ...

    async def post_mortem(self) -> PostMortem: ...


class ReadyReader:
    """Reads READY, the only message that a guest may send before START."""

    def __init__(self) -> None:
        self._frames = FrameReader(NO_NONCE, {FrameKind.READY: _READY_BYTES})

    def feed(self, data: bytes) -> bool:
        """True once READY is complete.

        Raises:
            StartFailed: the output is not READY.
        """
        try:
            for frame in self._frames.feed(data):
                if decode_value(frame.payload, tagged=False) != [PROTOCOL]:
                    raise StartFailed("the guest speaks another version of the protocol")
                return True
        except BridgeError as error:
            raise StartFailed(f"the engine did not start the guest: {error}") from error
        return False


class ChannelLink:
    """Link over a channel. Call `ready` first, then run one session. `aclose` ends the guest."""

    def __init__(self, channel: GuestChannel) -> None:
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self._channel = channel
        self._cpu_seconds: float | None = None
        self._receive: Callable[[bytes], None] | None = None
        self._cpu_changed: Callable[[], object] = lambda: None
        self._early: list[bytes] | None = []
        """Output that was pushed before START: READY. None from then on."""
        self._news = anyio.Event()
        self._has_ended = False
        self.lost = ""
        self._closing = anyio.Lock()
        self._closed = False
        self._pushed = channel.attach(self._take, self._take_end, self._take_cpu)
        self._output: AsyncIterator[bytes] = self._early_output() if self._pushed else aiter(channel.received())

    async def ready(self) -> None:
        """Waits for READY. The caller sets the timeout.

        Raises:
            StartFailed: the guest ended first, or wrote something else.
        """
        reader = ReadyReader()
        async for data in self._output:
            if reader.feed(data):
                if not self._pushed:
                    self._cpu_seconds = await self._channel.cpu_seconds()
                return
        traces = await self.post_mortem()
        status = "" if traces.status is None else f" with status {traces.status}"
        reason = " ".join(traces.stderr.split())[-_REASON_CHARS:] or traces.lost
        raise StartFailed(f"the guest ended{status} before it was ready: {reason or 'it left no reason'}")

    def limit_cpu(self, seconds: float) -> None:
        self._channel.limit_cpu(seconds)

    @asynccontextmanager
    async def reading(self, receive: Callable[[bytes], None]) -> AsyncGenerator[None]:
        if self._pushed:
            self._receive = receive
            early, self._early = self._early, None
            for data in early or ():
                receive(data)
            if self._has_ended:
                self._end()
            try:
                yield
            finally:
                self._receive = None
            return
        async with anyio.create_task_group() as tasks:
            self._receive = receive
            tasks.start_soon(self._read)
            if self._cpu_seconds is not None:
                tasks.start_soon(self._measure)
            try:
                yield
            finally:
                self._receive = None
                tasks.cancel_scope.cancel()
                tasks.cancel_scope.shield = True  # a deadline must not discard received output

    def write_now(self, data: bytes | bytearray) -> int:
        return self._channel.send_now(data)

    async def write(self, data: bytes | bytearray) -> None:
        written = self._channel.send_now(data)
        if written < len(data):
            await self._or_end(self._channel.send(bytes(data[written:])))

    def kill(self) -> None:
        spawn(self.aclose)  # also called by timers of the event loop, which cannot use a task group
        self._end()

    def cpu_time(self) -> float | None:
        return self._cpu_seconds

    def reports_cpu(self, changed: Callable[[], object]) -> bool:
        self._cpu_changed = changed
        return self._pushed

    def threads(self) -> int:
        return 0

    async def post_mortem(self) -> PostMortem:
        if self.lost:
            return PostMortem(lost=self.lost)
        try:
            with anyio.move_on_after(_POST_MORTEM_SECONDS):
                traces = await self._channel.post_mortem()
                return PostMortem(
                    status=traces.status,
                    out_of_memory=traces.out_of_memory,
                    stderr=traces.stderr[-_STDERR_TAIL_CHARS:],
                )
        except Exception:
            logger.warning("a channel's post-mortem failed", exc_info=True)
        return PostMortem()

    async def aclose(self) -> None:
        """Ends the guest. Idempotent; further callers wait for the first."""
        with anyio.CancelScope(shield=True):
            async with self._closing:
                if self._closed:
                    return
                self._closed = True
                with anyio.move_on_after(_CLOSE_SECONDS) as scope:
                    try:
                        await self._channel.aclose()
                    except Exception:
                        logger.warning("a channel could not be closed, so its guest may still run", exc_info=True)
                    with contextlib.suppress(Exception):  # a channel that waits for output is cancelled with its reader
                        if isinstance(self._output, AsyncGenerator):
                            await cast("AsyncGenerator[bytes]", self._output).aclose()
                if scope.cancelled_caught:
                    logger.warning("a channel was not closed within %g s; its guest may still run", _CLOSE_SECONDS)

    async def _read(self) -> None:
        await self._or_end(self._pass_on())
        self._end()

    async def _pass_on(self) -> None:
        async for data in self._output:
            if self._receive is None:
                return
            if data:
                self._receive(data)

    async def _measure(self) -> None:
        while (seconds := await self._or_end(self._channel.cpu_seconds())) is not None:
            self._cpu_seconds = seconds
            await anyio.sleep(_MEASURE_SECONDS)

    async def _or_end(self, operation: Awaitable[T]) -> T | None:
        """Awaits an operation. An error of the channel ends the guest."""
        try:
            return await operation
        except Exception as error:
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        if isinstance(error, ChannelLost):
            self.lost = str(error)
        elif not self._closed:
            logger.warning("a channel failed, so its guest is lost", exc_info=error)
        self._end()

    # --- called by a channel that pushes

    def _take(self, data: bytes) -> None:
        if self._receive is not None:
            self._receive(data)
        elif self._early is not None and not self._has_ended:
            self._early.append(data)
            if sum(map(len, self._early)) > _EARLY_BYTES:
                self._take_end(OSError(f"its guest wrote more than {_EARLY_BYTES} bytes before its program"))
            self._news.set()

    def _take_end(self, error: Exception | None) -> None:
        self._has_ended = True
        self._news.set()
        if error is None:
            self._end()
        else:
            self._fail(error)

    def _take_cpu(self, seconds: float) -> None:
        self._cpu_seconds = seconds
        self._cpu_changed()

    async def _early_output(self) -> AsyncGenerator[bytes]:
        while True:
            while self._early:
                yield self._early.pop(0)
            if self._has_ended or self._early is None:
                return
            self._news = anyio.Event()
            await self._news.wait()

    def _end(self) -> None:
        receive, self._receive = self._receive, None
        if receive is not None:
            receive(b"")
