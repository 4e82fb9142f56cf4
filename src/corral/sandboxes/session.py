"""One execution over a guest's pipes: frames in, handler calls, frames out. Every engine with our guest shares it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, cast

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from pydantic_core import to_json

from corral.errors import BridgeError, MalformedMessage
from corral.guest import Frame, FrameKind, FrameReader, decode_value, encode_frame, encode_value
from corral.sandboxes.base import Job
from corral.sandboxes.loops import Hand, hand_maker
from corral.sandboxes.process import GuestProcess
from corral.types import Call, Handler, LogEntry, LogLevel, Reply

__all__ = ["GuestExit", "GuestSession"]

_NAME_BYTES = 1_000
"""Room in a CALL for the sequence number and the tool's path."""
_EXIT_BYTES = 300_000
"""Room in an EXIT beside the value: an error's texts, a hundred unawaited calls, twenty remarks."""
_JSON_ESCAPE = 6
"""A control character of one byte takes six as a JSON escape."""
_LEVELS: frozenset[LogLevel] = frozenset({"debug", "log", "info", "warn", "error"})

GuestExit = list[Any]
"""EXIT as it came: `[kind, value or error, unawaited, dropped log bytes, remarks]`, checked for its outer shape only."""


class GuestSession:
    """Runs one job in a guest that has said READY.

    Calls run concurrently. Tasks that have answered a call wait for the next one instead of ending, because starting a
    task costs more than all guards together; replies that become ready in one turn leave in one write.
    """

    def __init__(self, process: GuestProcess, job: Job, handler: Handler) -> None:
        self._process = process
        self._job = job
        self._handler = handler
        self._nonce = secrets.token_bytes(16)
        limits = job.limits
        self._frames = FrameReader(
            self._nonce,
            {
                FrameKind.CALL: limits.tool_input_bytes + _NAME_BYTES,
                FrameKind.LOG: limits.log_bytes * _JSON_ESCAPE + _NAME_BYTES,
                FrameKind.EXIT: limits.value_bytes + _EXIT_BYTES,
            },
        )
        self._log_room = limits.log_bytes
        self._calls_room = limits.calls
        self._replies = bytearray()
        self._writing = False
        self._corked = False
        self._idle: list[Hand[Call]] = []
        self._ended = anyio.Event()
        self._outcome: GuestExit | BridgeError | None = None

    async def run(self, start: dict[str, object]) -> GuestExit | None:
        """Sends START and serves the guest until its EXIT, which is returned, or its end, for which None stands.

        Raises:
            MalformedMessage, MessageTooLarge: the guest broke the protocol and must not be used further.
        """
        await self._process.write(encode_frame(FrameKind.START, to_json([start]), self._nonce))
        async with anyio.create_task_group() as tasks:
            async with self._process.reading(lambda data: self._receive(data, tasks)):
                await self._ended.wait()
            tasks.cancel_scope.cancel()
        if isinstance(self._outcome, BridgeError):
            raise self._outcome
        return self._outcome

    def _receive(self, data: bytes, tasks: TaskGroup) -> None:
        """Takes what the guest wrote; `b""` is its end."""
        if self._ended.is_set():
            return
        try:
            if not data:
                self._ended.set()
                return
            frames = self._frames.feed(data)
            for frame in frames:
                if frame.kind == FrameKind.CALL:
                    self._assign(self._call(frame), tasks)
                elif frame.kind == FrameKind.LOG:
                    self._log(frame)
                else:
                    self._outcome = _exit(frame)
                    self._ended.set()
                    return
            if len(frames) > 1 and not self._corked:
                self._corked = True
                tasks.start_soon(self._uncork)
        except BridgeError as violation:
            self._outcome = violation
            self._ended.set()

    def _assign(self, call: Call, tasks: TaskGroup) -> None:
        if self._idle:
            self._idle.pop().give(call)
        else:
            tasks.start_soon(self._work, call)

    async def _work(self, call: Call) -> None:
        """Answers calls, one after another, until the session ends."""
        make_hand: Callable[[], Hand[Call]] = hand_maker()
        while True:
            reply = self._encoded(call, await self._handler(call))
            if self._corked or self._writing:
                self._replies += reply
            elif (written := self._process.write_now(reply)) < len(reply):
                self._replies += reply[written:]
                await self._flush()
            hand = make_hand()
            self._idle.append(hand)
            call = await hand.take()

    async def _uncork(self) -> None:
        """Lets all calls of one turn run to their first wait before their replies are written."""
        await anyio.lowlevel.checkpoint()
        self._corked = False
        if not self._writing:
            await self._flush()

    def _call(self, frame: Frame) -> Call:
        self._calls_room -= 1
        match decode_value(frame.payload, tagged=frame.tagged):
            case [int() as sequence, str() as tool, value] if self._calls_room >= 0:
                return Call(tool, value, sequence, self._job.execution_id, self._job.context)
            case _:
                raise MalformedMessage("the sandbox sent a call that is not well formed, or more calls than allowed")

    async def _answer(self, call: Call) -> None:
        self._replies += self._encoded(call, await self._handler(call))
        if not self._corked:
            await self._flush()

    def _encoded(self, call: Call, reply: Reply) -> bytes:
        if reply.error is not None:
            parts = to_json([reply.error.code, reply.error.name, reply.error.message])
            return self._reply(b"[%d,false,%b]" % (call.sequence, parts), tagged=False)
        if reply.nothing:
            return self._reply(b"[%d,true]" % call.sequence, tagged=False)
        value = reply.encoded or encode_value(reply.value)
        return self._reply(b"[%d,true,%b]" % (call.sequence, value.text), tagged=value.tagged)

    def _reply(self, payload: bytes, *, tagged: bool) -> bytes:
        return encode_frame(FrameKind.REPLY, payload, self._nonce, tagged=tagged)

    async def _flush(self) -> None:
        """Writes what is ready. One task writes at a time; the others leave their replies to it."""
        self._writing = True
        try:
            while self._replies:
                ready, self._replies = self._replies, bytearray()
                await self._process.write(ready)
        finally:
            self._writing = False

    def _log(self, frame: Frame) -> None:
        match decode_value(frame.payload, tagged=False):
            case [str() as level, str() as text] if level in _LEVELS and self._log_room >= 0:
                self._log_room -= len(text.encode("utf-8")) + 1
                self._job.on_log(LogEntry(level=cast("LogLevel", level), text=text))
            case _:
                raise MalformedMessage("the sandbox sent console output that is not well formed, or more than allowed")


def _exit(frame: Frame) -> GuestExit:
    match decode_value(frame.payload, tagged=frame.tagged):
        case ["value" | "error", _, list(), int(), list()] as content:
            return cast("GuestExit", content)
        case _:
            raise MalformedMessage("the sandbox sent a result that is not well formed")
