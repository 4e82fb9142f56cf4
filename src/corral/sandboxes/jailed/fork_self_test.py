"""Self-test of a TypeScript fork server, which relies on internals of the engine that a release can change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import anyio

from corral.containment import Tier
from corral.errors import BridgeError, StartFailed
from corral.guest import FrameKind, FrameReader, encode_frame
from corral.sandboxes.jailed.fork_server import fork
from corral.sandboxes.jailed.guest_starter import GuestProcess, StartedGuest
from corral.types import SandboxConfig

_SECONDS = 10.0
"""Maximum seconds for the whole test, which takes a tenth of a second."""
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
"""Program that uses timers, threads of the engine, garbage collection, errors and random numbers."""
_SOME_PARTS = """
    await new Promise((done) => setTimeout(done, 1));
    await crypto.subtle.digest("SHA-256", new Uint8Array(1));
    return [crypto.randomUUID(), Math.random()];
"""
_RANDOM = "return [crypto.randomUUID(), Math.random()];"
_ENDLESS = "for (;;);"


_passed: set[tuple[Hashable, Tier]] = set()
"""Engines that have passed the test in this process, each with its tier."""


class SelfTestedStart:
    """Starts guests, and tests the first one of an `engine` in this process. Thread-safe.

    Once the test has failed, it starts no more guests, unless the failure was that the guest was killed from outside.
    """

    def __init__(self, start: Callable[[SandboxConfig, bool], StartedGuest], engine: Callable[[], Hashable]) -> None:
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
        """Reason why it starts no more guests."""
        return self._failure

    def __call__(self, config: SandboxConfig, in_advance: bool) -> StartedGuest:
        """Starts a guest.

        Raises:
            StartFailed: see `GuestStarter.start`, or guests do not fork here; the message has the reason.
        """
        if self._passed:
            return self._start(config, in_advance)
        with self._lock:  # other callers wait for the first one's test
            if self._failure is not None:
                raise StartFailed(self._failure)
            guest = self._start(config, in_advance)
            tested = self._engine(), guest.tier
            try:
                if tested not in _passed:
                    self_test(guest)
                    _passed.add(tested)
            except BaseException as error:
                if isinstance(error, StartFailed) and not _was_killed(guest):
                    self._failure = str(error)
                guest.close()
                raise
            self._passed = True
            return guest


def _was_killed(guest: StartedGuest) -> bool:
    """True if the guest was killed, as the kernel does when memory is short; the engine itself can still be fine.
    Blocks."""
    return not guest.process.alive and anyio.run(guest.process.wait, _SECONDS) == _KILLED


async def expect_health(guest: StartedGuest, *, writes: bool) -> None:
    """Checks that a server still forks processes that wait, compute, and draw their own random numbers.

    Raises:
        StartFailed: the server does not.
    """
    first, second = [_value(await _run(guest, _SOME_PARTS, writes=writes)) for _ in range(2)]
    if any(mine == others for mine, others in zip(first, second, strict=True)):
        raise StartFailed("forked processes draw the same random numbers")


def self_test(guest: StartedGuest) -> None:
    """Makes a server fork processes that use all features of the engine that a fork could break. Blocks.

    Raises:
        StartFailed: a fork behaved differently from a separate process.
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
        raise StartFailed(f"a forked process gives a wrong answer: {error}") from error


async def _run(guest: StartedGuest, code: str, *, writes: bool = False) -> list[Any]:
    """Returns the content of a program's EXIT."""
    return await run_in_fork(guest, _content(code), value_bytes=_VALUE_BYTES, writes=writes)


async def _end(guest: StartedGuest) -> None:
    """Ends a process that would otherwise never end."""
    process = forked(guest)
    try:
        await process.write(_start_frame(_content(_ENDLESS), process))
        status = await process.wait(0)
        if status != _KILLED:
            raise StartFailed(f"a forked process that was killed ended with status {status}")
    finally:
        process.close()


def _content(code: str) -> dict[str, object]:
    program = f"(async (load, enter) => enter(await (async () => {{ {code} }})(), false))"
    return {"code": program, "tools": [], "env": None, "limits": _LIMITS}


def _value(exit: list[Any]) -> list[Any]:
    kind, content, *_ = exit
    if kind != "value":
        raise StartFailed(f"a forked process fails: {content}")
    return content


_EXIT_SECONDS = 1.0


async def run_in_fork(
    guest: StartedGuest, start: Mapping[str, object], *, value_bytes: int, writes: bool = False
) -> list[Any]:
    """Returns the content of a program's EXIT. Always ends its process.

    Raises:
        StartFailed: the process ended first.
    """
    process = forked(guest, writes=writes)
    try:
        await process.write(_start_frame(start, process))
        frames = FrameReader(process.nonce, {FrameKind.EXIT: value_bytes})
        while True:
            await anyio.wait_readable(process.output)
            data = process.read_now()
            if data == b"":
                status = await process.wait(_EXIT_SECONDS)
                reason = process.last_words() or guest.process.last_words()
                raise StartFailed(f"a forked process ended with status {status} {reason}".strip())
            for frame in frames.feed(data or b""):
                return json.loads(frame.payload)
    finally:
        process.close()


def forked(guest: StartedGuest, *, writes: bool = False) -> GuestProcess:
    """Returns a new process of a server.

    Raises:
        StartFailed: the server has ended.
    """
    process = fork(guest, writes=writes)
    if process is None:
        raise StartFailed(f"the engine ended instead of forking: {guest.process.last_words()}")
    return process


def _start_frame(content: Mapping[str, object], process: GuestProcess) -> bytes:
    """Returns the first message to a process."""
    return encode_frame(FrameKind.START, json.dumps([content]).encode(), process.nonce)
