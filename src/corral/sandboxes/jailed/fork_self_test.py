"""Self-test of a TypeScript fork server, which relies on internals of its engine that a release may change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable
from typing import Any

import anyio

from corral.errors import BridgeError, StartFailed
from corral.guest import FrameKind, FrameReader, encode_frame
from corral.sandboxes.jailed.fork_server import fork
from corral.sandboxes.jailed.guest_process import GuestProcess
from corral.sandboxes.jailed.guest_starter import GuestKind, StartedGuest
from corral.types import Tier

__all__ = ["SelfTestedStart"]

_SECONDS = 10.0
"""Deadline for all of it, which takes a tenth of a second."""
_VALUE_BYTES = 1000
_LOG_BYTES = 0
_KILLED = -9
_LIMITS = {
    "calls": 1,
    "calls_in_flight": 1,
    "value_bytes": _VALUE_BYTES,
    "tool_input_bytes": _VALUE_BYTES,
    "log_bytes": _LOG_BYTES,
}
_OBJECTS = 300_000
_ALL_PARTS = f"""
    await new Promise((done) => setTimeout(done, 1));
    const {{ byteLength }} = await crypto.subtle.digest("SHA-256", new Uint8Array(1));
    let dropped, kept = [];
    for (let index = 0; index < {_OBJECTS}; index++) kept.push({{ index, dropped: (dropped = [index]).length }});
    try {{ null.x; }} catch (error) {{ if (!error.stack.includes("corral:program.ts")) throw error; }}
    return [byteLength, kept.length, crypto.randomUUID(), Math.random()];
"""
"""Timers, threads of the engine, garbage collection, errors, random numbers."""
_RANDOM = "return [crypto.randomUUID(), Math.random()];"
_ENDLESS = "for (;;);"


_passed: set[tuple[Hashable, Tier]] = set()
"""Engines that have passed the test in this process, and the tier."""


class SelfTestedStart:
    """Starts guests, and tests the first one of an `engine` in this process. Any thread may call it.

    Once the test has failed, it starts no more.
    """

    def __init__(self, start: Callable[[GuestKind, bool], StartedGuest], engine: Callable[[], Hashable]) -> None:
        self._start = start
        self._engine = engine
        self._lock = threading.Lock()
        self._passed = False
        self._failure: str | None = None

    @property
    def passed(self) -> bool:
        return self._passed

    @property
    def failure(self) -> str | None:
        """Reason why it starts no more."""
        return self._failure

    def __call__(self, kind: GuestKind, in_advance: bool) -> StartedGuest:
        """Starts a guest.

        Raises:
            StartFailed: as `GuestStarter.start`, or with the reason that guests do not fork here.
        """
        if self._passed:
            return self._start(kind, in_advance)
        with self._lock:  # others wait for the first one's test
            if self._failure is not None:
                raise StartFailed(self._failure)
            guest = self._start(kind, in_advance)
            tested = self._engine(), guest.tier
            try:
                if tested not in _passed:
                    self_test(guest)
                    _passed.add(tested)
            except BaseException as error:
                guest.close()
                if isinstance(error, StartFailed):
                    self._failure = str(error)
                raise
            self._passed = True
            return guest


def self_test(guest: StartedGuest) -> None:
    """Has a server fork processes that use the parts of the engine which a fork could break. Blocks.

    Raises:
        StartFailed: one of them did something else than it would in a process of its own.
    """
    anyio.run(_test, guest)


async def _test(guest: StartedGuest) -> None:
    try:
        with anyio.fail_after(_SECONDS):
            size, count, *random = _value(await _run(guest, _ALL_PARTS))
            if (size, count) != (32, _OBJECTS):
                raise StartFailed(f"a forked process computes {size}, {count} instead of 32, {_OBJECTS}")
            other = _value(await _run(guest, _RANDOM))
            if any(mine == others for mine, others in zip(random, other, strict=True)):
                raise StartFailed("forked processes draw the same random numbers")
            await _end(guest)
    except TimeoutError:
        raise StartFailed(f"a forked process did not answer within {_SECONDS:g} s") from None
    except (BridgeError, ValueError) as error:
        raise StartFailed(f"a forked process does not answer as it should: {error}") from error


async def _run(guest: StartedGuest, code: str) -> list[Any]:
    """Content of the EXIT of a program."""
    process = _forked(guest)
    try:
        await process.write(_start(code, process))
        frames = FrameReader(process.nonce, {FrameKind.EXIT: _VALUE_BYTES})
        while True:
            await anyio.wait_readable(process.output)
            data = process.read_now()
            if data == b"":
                status = await process.wait(_SECONDS)
                said = process.last_words() or guest.process.last_words()
                raise StartFailed(f"a forked process ended with status {status} {said}".strip())
            for frame in frames.feed(data or b""):
                return json.loads(frame.payload)
    finally:
        process.close()


async def _end(guest: StartedGuest) -> None:
    """Ends a process that would never do so."""
    process = _forked(guest)
    try:
        await process.write(_start(_ENDLESS, process))
        status = await process.wait(0)
        if status != _KILLED:
            raise StartFailed(f"a forked process that was killed ended with status {status}")
    finally:
        process.close()


def _forked(guest: StartedGuest) -> GuestProcess:
    process = fork(guest)
    if process is None:
        raise StartFailed(f"the engine ended instead of forking: {guest.process.last_words()}")
    return process


def _start(code: str, process: GuestProcess) -> bytes:
    program = f"(async (load, enter) => enter(await (async () => {{ {code} }})(), false))"
    content: dict[str, object] = {"code": program, "tools": [], "env": None, "limits": _LIMITS}
    return encode_frame(FrameKind.START, json.dumps([content]).encode(), process.nonce)


def _value(exit: list[Any]) -> list[Any]:
    kind, content, *_ = exit
    if kind != "value":
        raise StartFailed(f"a forked process fails: {content}")
    return content
