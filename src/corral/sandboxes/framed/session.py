"""One execution over a guest's pipes: frames in, handler calls, frames out. Used by every engine with our guest."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from pydantic_core import to_json

from corral.concurrency.event_loop import OneShot, one_shot_factory
from corral.errors import BridgeError, MalformedMessage
from corral.guest import Frame, FrameKind, FrameReader, UnencodableValue, decode_value, encode_frame, encode_value
from corral.guest.python.frames import NO_NONCE
from corral.logs import get_logger
from corral.sandboxes.base import GRACE_SECONDS, Job, SavedGuest
from corral.sandboxes.framed.link import Link
from corral.types import (
    MAX_TOOL_PATH,
    TIMER,
    CallRequest,
    EncodedValue,
    GuestState,
    LogEntry,
    LogLevel,
    PipeEndpoint,
    Reply,
)

WINDOW_BYTES = 256_000
"""Maximum unread bytes of a stream, beyond which the tool waits. A single item can be larger."""
_MARK_BYTES = WINDOW_BYTES // 2
"""Number of bytes after which a CHUNK requests a CREDIT."""


class _FramedStream:
    """Collects items until they are sent as one CHUNK, and counts the bytes that the program has not read.

    `ready` is called when there is a CHUNK to send, `abandon` when the program stops reading. With `whole`, there is a
    single CHUNK, which requests no CREDIT, because a durable program must not depend on how fast it reads.
    """

    def __init__(
        self,
        sequence: int,
        ready: Callable[[_FramedStream], None],
        abandon: Callable[[], object],
        make_one_shot: Callable[[], OneShot[None]],
        *,
        whole: bool = False,
    ) -> None:
        self._sequence = sequence
        self._whole = whole
        self._ready = ready
        self._abandon: Callable[[], object] | None = abandon
        self._make_one_shot = make_one_shot
        self._opened = self._tagged = self._cancelled = False
        self._items: list[bytes] = []
        """Items not yet sent."""
        self._size = 0
        """Bytes of these items, and of those sent since the last CHUNK that requested a CREDIT."""
        self._marks: deque[int] = deque()
        """Number of bytes for each expected CREDIT."""
        self._unread = 0
        """Number of bytes without a CREDIT."""
        self._room: OneShot[None] | None = None
        ready(self)

    def put(self, item: EncodedValue) -> bool:
        """Adds an item. Returns False if the caller has to await `room` before the next one."""
        if not self._items:
            self._ready(self)
        self._items.append(item.text)
        self._tagged = self._tagged or item.tagged
        if self._whole:
            return True
        self._size += len(item.text)
        self._unread += len(item.text)
        return self._unread < WINDOW_BYTES

    async def room(self) -> None:
        """Waits until the program has read enough, or stops reading."""
        if self._unread >= WINDOW_BYTES and self._abandon is not None:
            self._room = self._make_one_shot()
            await self._room.wait()

    def take(self) -> tuple[bytes, bool] | None:
        """Returns the payload of a CHUNK with all items, and whether it has tags; None if there is nothing to send."""
        if self._cancelled or (self._opened and not self._items):
            return None
        self._opened = True
        request = b""
        if self._size >= _MARK_BYTES:
            self._marks.append(self._size)
            self._size = 0
            request = b",true"
        payload, tagged = b"[%d,[%b]%b]" % (self._sequence, b",".join(self._items), request), self._tagged
        self._items, self._tagged = [], False
        return payload, tagged

    def credit(self) -> None:
        """Handles a CREDIT: the program has read everything up to a CHUNK that requested one.

        Raises:
            MalformedMessage: no CHUNK has requested one.
        """
        if not self._marks:
            raise MalformedMessage("the sandbox sent a credit that was not requested")
        self._unread -= self._marks.popleft()
        if self._unread < WINDOW_BYTES:
            self._wake()

    def cancel(self) -> None:
        """Handles a CANCEL: the program stops reading.

        Raises:
            MalformedMessage: the program has already cancelled the stream.
        """
        if self._cancelled:
            raise MalformedMessage("the sandbox cancelled a stream twice")
        self._cancelled = True
        self.abandon()

    def abandon(self) -> None:
        """Ends the stream before its last item, if it has not ended."""
        abandon, self._abandon = self._abandon, None
        if abandon is not None:
            abandon()
            self._wake()

    def end(self) -> None:
        """Ends the stream after its last item."""
        self._abandon = None

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set(None)


_AROUND_BYTES = len('[,"",]')
_NAME_BYTES = 1_000
"""Maximum bytes of the sequence number and the tool's path in a CALL, and of the CALL of a timer."""
_NUMBER_BYTES = 100
"""Maximum bytes of a CREDIT or a CANCEL, which is one number."""
_EXIT_BYTES = 1_000_000
"""Maximum bytes of an EXIT in addition to the value: an error's five texts of 8,000 characters, a hundred unawaited
calls of 1,200 and twenty remarks of 1,000, with up to six bytes per character."""
_JSON_ESCAPE = 6
"""Bytes of the JSON escape of a one-byte control character."""
_INPUT_BYTES = 8_000_000
"""Maximum encoded input of calls that are answered at the same time. As Python objects it can take 25 times as much."""
_REPLY_BYTES = 8_000_000
"""Maximum bytes of replies that wait for the guest to read. Calls that arrive beyond this are answered later."""
_BURST = 16
"""Maximum number of replies of one turn that are sent together. With more, the guest would wait when it could already
work."""
_LARGE = 1_000
"""Bytes from which an input is decoded again later instead of kept as objects."""
_MAX_TIMERS = 10_000
"""Maximum number of timers of a durable execution at the same time, in addition to its calls. Its guest refuses
more."""
_MOST_SAVED_BYTES = 16_000_000
"""Maximum bytes of a saved guest."""
_TIMER = TIMER.encode()
_MAX_DIGEST = 64
_SERVICE_CALLS = 1_000_000
"""Maximum number of calls of the host's services. The host keeps only a few bytes of each."""
_MAX_UNAWAITED = 100
_MAX_REMARKS = 20
_LEVELS: frozenset[LogLevel] = frozenset({"debug", "log", "info", "warn", "error"})

logger = get_logger("corral.sandboxes")

GuestExit = list[Any]
"""Received EXIT: `[kind, value or error, unawaited, dropped log bytes, remarks]`. Only that shape has been checked."""


class Seen:
    """The host's own observations of a run, against which it checks the guest's claims."""

    __slots__ = ("called", "failures", "printed")

    def __init__(self) -> None:
        self.called: list[str] = []
        """Tools and services that the program called, in order."""
        self.failures: set[str] = set()
        """Error codes of the program's failed calls."""
        self.printed = False

    @property
    def ran(self) -> bool:
        return self.printed or bool(self.called)


class GuestSession:
    """Runs one job in a guest that has sent READY.

    Calls run concurrently, in worker tasks. A worker that has answered a call waits for the next one instead of ending,
    because starting a task costs more than all guards together. Replies that become ready in one turn are sent in one
    write.
    """

    def __init__(self, channel: Link, job: Job, endpoint: PipeEndpoint) -> None:
        self._channel = channel
        self._job = job
        self._handler = endpoint.handler
        self._must_finish = endpoint.must_finish
        limits = job.limits
        self._bounds: dict[int, int] = {
            FrameKind.CALL: limits.tool_input_bytes + _NAME_BYTES,
            FrameKind.LOG: limits.log_bytes * _JSON_ESCAPE + _NAME_BYTES,
            FrameKind.OUTCOME: limits.value_bytes + _EXIT_BYTES,
            FrameKind.EXIT: limits.value_bytes + _EXIT_BYTES,
            FrameKind.CREDIT: _NUMBER_BYTES,
            FrameKind.CANCEL: _NUMBER_BYTES,
            **({} if job.durable is None else {FrameKind.PONG: _NUMBER_BYTES + _MAX_DIGEST}),
        }
        self._frames = FrameReader(channel.nonce, self._bounds)
        self._take: dict[int, Callable[[Frame], None]] = {
            FrameKind.CALL: self._queue,
            FrameKind.LOG: self._log,
            FrameKind.OUTCOME: self._take_outcome,
            FrameKind.EXIT: self._take_exit,
            FrameKind.CREDIT: lambda frame: self._stream_of(frame).credit(),
            FrameKind.CANCEL: lambda frame: self._stream_of(frame).cancel(),
        }
        self._journal = job.durable
        self._service_names = frozenset(job.services)
        self._received = 0
        """Number of CALLs."""
        self._cancels = 0
        self._timers: set[int] = set()
        """Number of timers that have neither ended nor been cancelled."""
        self._ping_due = False
        self._pings = self._pongs = 0
        self._state = GuestState(0, "")
        self._again: set[int] = set()
        """Numbers of the calls of a restored program that have no reply yet."""
        self._restored: bool | None = None
        """True if the guest was restored. None until it has answered, or if nothing is stored."""
        if job.durable is not None:
            job.durable.attach(self._ask, self._save)
            self._take[FrameKind.SAVED] = self._take_saved
            self._service_names |= {TIMER}
            self._take[FrameKind.PONG] = self._take_pong
            self._take[FrameKind.CANCEL] = self._cancel
        self._log_room = limits.log_bytes
        self._lines: dict[LogLevel, list[str]] = {}
        """Parts of an unfinished entry, by level."""
        self._calls_room = limits.calls
        self._service_calls_room = _SERVICE_CALLS
        self._services = frozenset(name.encode() for name in self._service_names)
        self._replies = bytearray()
        self._unsent = 0
        self._writing = False
        self._corked = False
        self._make_one_shot: Callable[[], OneShot[None]] = one_shot_factory()
        self._unassigned: deque[Frame] = deque()
        self._unanswered = 0
        self._input_bytes = 0
        """Encoded size of calls that are being answered."""
        self._idle: list[OneShot[None]] = []
        self._summoned = 0
        """Number of workers that have been woken to look for a call."""
        self._busy = 0
        """Number of workers with a call."""
        self._serving: dict[anyio.CancelScope, CallRequest] = {}
        """Call of each worker, by its cancel scope."""
        self._answered: anyio.Event | None = None
        """Set once no worker has a call any more, after unneeded calls were cancelled."""
        self._ending = False
        """True once the program has ended and its calls have a grace period."""
        self.cut_short: list[str] = []
        """Tools whose calls were cancelled after that period."""
        self._streams: dict[int, _FramedStream] = {}
        """Streams by the number of their call, including ended ones."""
        self._unsent_streams: list[_FramedStream] = []
        self._unread = False
        """True once the program has ended, so that nothing reads its streams."""
        self._attention: OneShot[None] | None = None
        self._over = False
        self._outcome: GuestExit | BridgeError | None = None
        self.seen = Seen()
        self.held: GuestExit | None = None
        """Outcome of the program, in the form of an EXIT, if it arrived before the last calls were answered."""

    @property
    def is_clean(self) -> bool:
        """True if the guest has sent EXIT and gets no more of this run, so that a notebook's next cell can follow."""
        return isinstance(self._outcome, list) and not self._writing

    async def run(self, start: dict[str, object]) -> GuestExit | None:
        """Sends START and serves the guest. Returns its EXIT, or None if it ended without one.

        Raises:
            MalformedMessage, MessageTooLarge: the guest broke the protocol, and must not be used any more.
        """
        try:
            await self._serve(start)
        finally:
            for level in list(self._lines):
                self._say(level, "")
        if isinstance(self._outcome, BridgeError):
            raise self._outcome
        return self._outcome

    async def _serve(self, start: dict[str, object]) -> None:
        async with anyio.create_task_group() as tasks:
            async with self._channel.reading(self._receive):
                try:
                    await self._begin(start)
                    await self._attend(tasks)
                except BaseException:
                    self._channel.kill()  # at once, because a tool can be slow to react to its cancellation
                    raise
            if self._journal is not None and self._channel.lost:
                self._journal.lost()
            await self._finish_calls()
            while self._idle:
                self._idle.pop().set(None)  # so that they notice the end
            if self._busy or self._summoned or self._writing or self._ending:
                tasks.cancel_scope.cancel()
            tasks.cancel_scope.shield = True  # all tasks end now, and a deadline must not discard the outcome

    async def _begin(self, start: dict[str, object]) -> None:
        """Restores the stored guest, or sends START if there is none or this engine cannot restore it."""
        nonce, journal = self._channel.nonce, self._journal
        stored = None if journal is None else journal.stored
        if stored is not None:
            self._bounds[FrameKind.SAVED] = 1
            await self._channel.write(encode_frame(FrameKind.RESTORE, stored.memory, nonce))
            while self._restored is None and not self._over:
                self._attention = self._make_one_shot()
                await self._attention.wait()
        if stored is not None and self._restored:
            self._restore(stored.session)
        elif not self._over:
            await self._channel.write(encode_frame(FrameKind.START, to_json([start]), nonce))
        if journal is not None:
            journal.began(restored=bool(self._restored))

    def _receive(self, data: bytes) -> None:
        """Handles the guest's output; `b""` is its end. Called by the event loop, outside any task."""
        if self._over:
            return
        try:
            self._over = not data
            frames = self._frames.feed(data)
            self._corked = self._corked or len(frames) > 1
            for frame in frames:
                self._take[frame.kind](frame)
        except BridgeError as violation:
            self._violated(violation)
        except Exception:
            logger.exception(
                "a frame of %s could not be handled",
                self._job.execution_id,
                extra={"execution_id": self._job.execution_id},
            )
            self._violated(MalformedMessage("the sandbox sent a message that could not be handled"))
        if self._over or self._corked or self._ending:
            self._wake()
        elif self._unassigned and self._idle:
            self._summoned += 1
            self._idle.pop().set(None)  # the usual case: one call and an idle worker
        elif self._unassigned:
            self._wake()

    def _take_outcome(self, frame: Frame) -> None:
        if self.held is not None:
            raise MalformedMessage("the sandbox sent more than one outcome")
        content = self._stated(frame)
        self.held, lasts = _outcome(content)
        self._ending = not lasts
        if self._journal is not None and self._ending:
            self._journal.ending(self._state)

    def _take_exit(self, frame: Frame) -> None:
        self._outcome = _exit(self._stated(frame))
        self._over = True
        if self._journal is not None:
            self._journal.ended(self._state)

    # --- durable executions

    def _stated(self, frame: Frame) -> Any:
        """Removes the state of a durable program from a frame, keeps it, and returns the other members.

        Raises:
            MalformedMessage: the guest states a number of calls that differs from the calls it made.
        """
        content: Any = decode_value(frame.payload, tagged=frame.tagged)
        if self._journal is None:
            return content
        match content:
            case [*parts, int() as calls, str() as digest] if calls == self._received and len(digest) <= _MAX_DIGEST:
                self._state = GuestState(calls, digest)
                return parts
            case _:
                raise MalformedMessage("the sandbox stated a wrong number of calls")

    def _ask(self) -> None:
        """Sends a PING after the replies that are being made."""
        self._ping_due = self._corked = True
        self._wake()

    def _take_pong(self, frame: Frame) -> None:
        match self._stated(frame):
            case [int() as ping] if self._pongs < ping <= self._pings:
                self._pongs = ping
            case _:
                raise MalformedMessage("the sandbox sent a PONG without a PING")
        if ping == self._pings and not self._ping_due and self._journal is not None:
            self._journal.idle(self._state)

    def _save(self) -> None:
        """Asks the guest, which is idle, for its state."""
        most = self._bounds[FrameKind.SAVED] = min(self._job.limits.journal_bytes, _MOST_SAVED_BYTES)
        self._replies += encode_frame(FrameKind.SAVE, b"[%d]" % most, NO_NONCE)
        self._corked = True
        self._wake()

    def _take_saved(self, frame: Frame) -> None:
        del self._bounds[FrameKind.SAVED]
        assert self._journal is not None
        if self._journal.stored is not None and self._restored is None:
            self._restored = bool(frame.payload)
            self._wake()
            return
        # Items of streams, an early outcome and parts of a console entry are not worth a place in the state.
        is_simple = bool(frame.payload) and not self._streams and self.held is None and not self._lines
        self._journal.saved(SavedGuest(frame.payload, self._session_state()) if is_simple else None)

    def _session_state(self) -> dict[str, object]:
        calls = [call for call in self._serving.values() if call.tool != TIMER or call.sequence in self._timers]
        return {
            "called": self.seen.called,
            "failures": [*self.seen.failures],
            "printed": self.seen.printed,
            "log_room": self._log_room,
            "cancels": self._cancels,
            "calls": [
                [call.sequence, call.tool, call.encoded.text.decode(), call.encoded.tagged]
                for call in sorted(calls, key=lambda call: call.sequence)
                if call.encoded is not None
            ],
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Continues with the state of another session. Calls without a reply are answered again."""
        called: list[str] = state["called"]
        self.seen.called, self.seen.failures = [*map(sys.intern, called)], {*state["failures"]}
        self.seen.printed, self._log_room, self._cancels = state["printed"], state["log_room"], state["cancels"]
        services = sum(name in self._service_names for name in called)
        self._service_calls_room -= services
        self._calls_room -= len(called) - services
        self._received = len(called)
        for sequence, tool, text, tagged in state["calls"]:
            self._again.add(sequence)
            if tool == TIMER:
                self._timers.add(sequence)
            else:
                self._unanswered += 1
            payload = b"[%d,%b,%b]" % (sequence, to_json(tool), text.encode())
            self._unassigned.append(Frame(FrameKind.CALL, tagged, payload))
            if self._journal is not None:
                self._journal.arrived()

    def _cancel(self, frame: Frame) -> None:
        self._cancels += 1
        if self._cancels > self._received:
            raise MalformedMessage("the sandbox cancelled a timer twice")
        match decode_value(frame.payload, tagged=False):
            case [int() as sequence] if 1 <= sequence <= self._received and sequence not in self._streams:
                assert self._journal is not None
                self._timers.discard(sequence)
                self._journal.cleared(sequence)
            case _:
                self._stream_of(frame).cancel()

    def _wake(self) -> None:
        attention, self._attention = self._attention, None
        if attention is not None:
            attention.set(None)

    def _violated(self, violation: BridgeError) -> None:
        self._outcome = violation  # raised by `run`
        self._over = True

    def _queue(self, frame: Frame) -> None:
        """Queues a call without decoding it, because its input can become 25 times as large."""
        if self._ending:
            raise MalformedMessage("the sandbox sent a call after the program had ended")
        name = _name_in(frame) if self._services else b""
        if name in self._services:
            self._service_calls_room -= 1
        else:
            self._calls_room -= 1
        self._received += 1
        if self._journal is None or name != _TIMER:
            self._unanswered += 1
        elif len(frame.payload) > _NAME_BYTES:
            raise MalformedMessage("the sandbox sent a malformed timer")
        else:
            self._timers.add(self._received)
        room = min(self._calls_room, self._service_calls_room)
        if room < 0 or self._unanswered > self._job.limits.calls_in_flight or len(self._timers) > _MAX_TIMERS:
            raise MalformedMessage("the sandbox sent more calls than allowed")
        self._unassigned.append(frame)
        if self._journal is not None:
            self._journal.arrived()

    async def _attend(self, tasks: TaskGroup) -> None:
        """Does everything that requires a task: starts further workers, and writes the replies of a busy turn."""
        granted = False
        while not self._over:
            if self._ending and not granted:
                granted = True
                tasks.start_soon(self._grant, tasks)
            if self._unassigned:
                self._summon(tasks)
            if self._unsent_streams:
                self._send_chunks(tasks)
            if self._corked:
                await anyio.lowlevel.checkpoint()  # all calls of one turn run to their first wait
                self._corked = False
                if self._ping_due:
                    self._ping_due = False
                    self._pings += 1
                    self._replies += encode_frame(FrameKind.PING, b"[%d]" % self._pings, NO_NONCE)
                self._flush(tasks)
            else:
                self._attention = self._make_one_shot()
                await self._attention.wait()

    async def _grant(self, tasks: TaskGroup) -> None:
        """Gives the calls of an ended program a grace period, then makes the guest exit without the remaining ones."""
        await (anyio.sleep(GRACE_SECONDS) if self._journal is None else self._journal.grace())
        self.cut_short += self._cut_short()
        await self._wait_for_workers()
        if self._journal is not None:
            self._journal.finishing()
        self._replies += encode_frame(FrameKind.FINISH, b"[]", NO_NONCE)
        self._flush(tasks)

    async def _finish_calls(self) -> None:
        """After the guest has exited, cancels its calls, except those that must finish, for which it waits."""
        if not self._busy or isinstance(self._outcome, BridgeError):
            return
        self._cut_short()
        self.held = self._outcome or self.held  # in case of a deadline before they finish
        await self._wait_for_workers()

    def _cut_short(self) -> list[str]:
        """Cancels the calls that need not finish, and returns their tools. Ends all streams."""
        self._unassigned.clear()
        cut = {
            scope: call.tool
            for scope, call in self._serving.items()
            if call.sequence not in self._must_finish and call.sequence not in self._streams
        }
        for scope in cut:
            scope.cancel()
        self._unread = True
        for stream in self._streams.values():
            stream.abandon()
        return [name for name in cut.values() if name not in self._service_names]

    # --- streams

    def _open_stream(self, sequence: int, abandon: Callable[[], object]) -> _FramedStream:
        stream = self._streams[sequence] = _FramedStream(
            sequence, self._stream_ready, abandon, self._make_one_shot, whole=self._journal is not None
        )
        if self._unread:
            stream.abandon()
        return stream

    def _stream_of(self, frame: Frame) -> _FramedStream:
        match decode_value(frame.payload, tagged=False):
            case [int() as sequence] if type(sequence) is int and sequence in self._streams:
                return self._streams[sequence]
            case _:
                raise MalformedMessage("the sandbox named a stream that it does not have")

    def _stream_ready(self, stream: _FramedStream) -> None:
        """Sends a stream's items in the next turn, with those added until then. In a durable execution, sends them with
        the reply."""
        if self._journal is not None:
            return
        self._unsent_streams.append(stream)
        self._wake()

    def _send_chunks(self, tasks: TaskGroup) -> None:
        for stream in self._unsent_streams:
            self._append_chunk(stream)
        self._unsent_streams.clear()
        self._flush(tasks)

    def _append_chunk(self, stream: _FramedStream) -> None:
        if (chunk := stream.take()) is not None:
            self._replies += encode_frame(FrameKind.CHUNK, chunk[0], NO_NONCE, tagged=chunk[1])

    def _end_stream(self, sequence: int) -> None:
        stream = self._streams[sequence]
        self._append_chunk(stream)
        stream.end()

    async def _wait_for_workers(self) -> None:
        if self._busy:
            self._answered = self._answered or anyio.Event()  # both the grace period and the end of the guest may wait
            await self._answered.wait()

    def _summon(self, tasks: TaskGroup) -> None:
        """Starts enough workers that no queued call waits behind a busy worker.

        The number of workers at most doubles in a turn. The first ones answer all calls that do not wait, and after a
        few turns there are enough for the others.
        """
        missing = min(len(self._unassigned), self._busy + 1)
        while self._summoned < missing:
            self._summoned += 1
            if self._idle:
                self._idle.pop().set(None)
            else:
                tasks.start_soon(self._work, tasks)

    async def _work(self, tasks: TaskGroup) -> None:
        """Answers calls, one after another, until the session ends or the current call is cancelled."""
        with anyio.CancelScope() as scope:
            await self._answer(tasks, scope)
        if scope.cancelled_caught:
            self._leave(scope)

    def _leave(self, scope: anyio.CancelScope) -> None:
        """Marks a worker as having no call."""
        self._serving.pop(scope, None)
        self._busy -= 1
        if self._busy == 0 and self._answered is not None:
            self._answered.set()

    async def _answer(self, tasks: TaskGroup, scope: anyio.CancelScope) -> None:
        while True:
            if self._over:
                return
            self._summoned -= 1
            self._busy += 1
            while self._unassigned and self._has_room(self._unassigned[0]):
                frame = self._unassigned.popleft()
                if self._unassigned:
                    self._summon(tasks)
                size = len(frame.payload)
                self._input_bytes += size
                try:
                    call = self._serving[scope] = self._call(frame)
                    reply = await self._handler(call)
                except MalformedMessage as violation:
                    self._violated(violation)
                    self._wake()
                    return
                if call.sequence in self._streams:
                    self._end_stream(call.sequence)
                self._replies += self._encoded(call, reply)  # two statements: `+=` reads its left side before an await
                if call.tool == TIMER:
                    self._timers.discard(call.sequence)
                else:
                    self._unanswered -= 1
                del frame, call, reply  # because this worker can be idle for a long time
                self._input_bytes -= size
                self._unsent += 1
                if not self._corked or self._unsent >= _BURST:
                    self._flush(tasks)
                del self._serving[scope]
            self._leave(scope)
            if scope.cancel_called:
                return  # cancelled too late: the next wait would raise, and this worker would leave twice
            wake = self._make_one_shot()
            self._idle.append(wake)
            await wake.wait()

    def _has_room(self, frame: Frame) -> bool:
        """True if there is room for a call next to those that are being answered, and their replies."""
        if len(self._replies) > _REPLY_BYTES:
            return False  # `_drain` will check again
        return self._input_bytes == 0 or self._input_bytes + len(frame.payload) <= _INPUT_BYTES

    def _call(self, frame: Frame) -> CallRequest:
        match decode_value(frame.payload, tagged=frame.tagged):
            case [sequence, str() as tool, value] if len(tool) <= MAX_TOOL_PATH:
                is_again = type(sequence) is int and sequence in self._again
                if not is_again and (type(sequence) is not int or sequence != len(self.seen.called) + 1):
                    raise MalformedMessage("the sandbox sent a call that is out of sequence")
                name = _name_in(frame) if self._services else b""
                if (name in self._services) != (tool in self._service_names):
                    raise MalformedMessage("the sandbox sent a malformed call")
                if is_again:
                    self._again.discard(sequence)
                else:
                    self.seen.called.append(sys.intern(tool))
                size = len(frame.payload) - len(tool) - len(str(sequence)) - _AROUND_BYTES
                reread = partial(_input_of, frame) if size > _LARGE else None
                encoded = None if self._journal is None else _encoded_input(frame, name, value)
                return CallRequest(tool, value, sequence, size, reread, partial(self._open_stream, sequence), encoded)
            case _:
                raise MalformedMessage("the sandbox sent a malformed call")

    def _encoded(self, call: CallRequest, reply: Reply) -> bytes:
        if reply.parked:
            return b""
        stamp = b"" if reply.stamp is None else b",%.3f,%.3f" % reply.stamp
        if (error := reply.error) is not None:
            self.seen.failures.add(error.code)
            parts: list[object] = [error.code, error.name, error.message]
            if error.retry_after_seconds is not None:
                parts.append(error.retry_after_seconds)
            return self._reply(b"[%d,false,%b%b]" % (call.sequence, to_json(parts), stamp), tagged=False)
        if reply.nothing:
            return self._reply(b"[%d,true%b]" % (call.sequence, stamp and b",null%b,1" % stamp), tagged=False)
        value = reply.encoded or encode_value(reply.value)
        return self._reply(b"[%d,true,%b%b]" % (call.sequence, value.text, stamp), tagged=value.tagged)

    def _reply(self, payload: bytes, *, tagged: bool) -> bytes:
        # Without the nonce, which the guest does not need, and which must not be in data that the program can reach.
        return encode_frame(FrameKind.REPLY, payload, NO_NONCE, tagged=tagged)

    def _flush(self, tasks: TaskGroup) -> None:
        """Writes pending output. If the guest does not accept all of it at once, a task writes the remainder."""
        if self._writing:
            return
        self._unsent = 0
        if self._replies:
            del self._replies[: self._channel.write_now(self._replies)]
        if self._replies:
            self._writing = True
            tasks.start_soon(self._drain)
        elif self._unassigned:
            self._wake()

    async def _drain(self) -> None:
        while self._replies:
            ready, self._replies = self._replies, bytearray()
            await self._channel.write(ready)
        self._writing = False
        if self._unassigned:
            self._wake()

    def _has_log_room(self, size: int) -> bool:
        self._log_room -= size
        return self._log_room >= 0

    def _log(self, frame: Frame) -> None:
        match decode_value(frame.payload, tagged=False):
            case [str() as level, str() as text] if level in _LEVELS and self._has_log_room(len(text.encode()) + 1):
                self._say(level, text)
            case [str() as level, str() as text, True] if (
                text and level in _LEVELS and self._has_log_room(len(text.encode()))
            ):
                self._lines.setdefault(level, []).append(text)
            case _:
                raise MalformedMessage("the sandbox sent malformed console output, or more than allowed")

    def _say(self, level: LogLevel, text: str) -> None:
        """Emits the entry that ends with this text."""
        parts = self._lines.pop(level, None)
        self.seen.printed = True
        self._job.on_log(LogEntry(level=level, text=text if parts is None else "".join([*parts, text])))


def _name_in(frame: Frame) -> bytes:
    """Returns the name of a call: its first string."""
    start = frame.payload.find(b'"') + 1
    return frame.payload[start : frame.payload.find(b'"', start)]


def _encoded_input(frame: Frame, name: bytes, value: object) -> EncodedValue:
    """Returns the input of a call as it arrived, which is what follows its name."""
    payload = frame.payload
    if b"\\" in name or payload[-1:] != b"]":  # our guests only escape what no tool is called
        try:
            return encode_value(value)
        except UnencodableValue as error:
            raise MalformedMessage(f"the sandbox sent an input that cannot be recorded: {error}") from error
    return EncodedValue(payload[payload.index(b",", payload.index(b'"') + len(name) + 2) + 1 : -1], frame.tagged)


def _input_of(frame: Frame) -> object:
    return decode_value(frame.payload, tagged=frame.tagged)[2]


def _outcome(content: Any) -> tuple[GuestExit, bool]:
    """Returns an outcome in the form of an EXIT, and True if all of the program's calls are still to be answered."""
    match content:
        case ["value" | "error" as kind, content, bool() as lasts]:
            return [kind, content, [], 0, []], lasts
        case _:
            raise MalformedMessage("the sandbox sent a malformed outcome")


def _exit(content: Any) -> GuestExit:
    match content:
        case ["value" | "error" | "rejected", _, list(), int(), list()] if (
            len(content[2]) <= _MAX_UNAWAITED and len(content[4]) <= _MAX_REMARKS
        ):
            return list(content)
        case _:
            raise MalformedMessage("the sandbox sent a malformed result")
