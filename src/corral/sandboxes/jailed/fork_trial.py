"""Runs Corral's own programs, such as self-tests, in processes of a fork server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio

from corral.errors import StartFailed
from corral.guest import FrameKind, FrameReader, encode_frame
from corral.sandboxes.jailed.fork_server import fork
from corral.sandboxes.jailed.guest_process import GuestProcess
from corral.sandboxes.jailed.guest_starter import StartedGuest

_GRACE_SECONDS = 1.0


async def run_in_fork(
    guest: StartedGuest, start: Mapping[str, object], *, value_bytes: int, writes: bool = False
) -> list[Any]:
    """Returns the content of a program's EXIT. Always ends its process.

    Raises:
        StartFailed: the process ended first.
    """
    process = forked(guest, writes=writes)
    try:
        await process.write(start_frame(start, process))
        frames = FrameReader(process.nonce, {FrameKind.EXIT: value_bytes})
        while True:
            await anyio.wait_readable(process.output)
            data = process.read_now()
            if data == b"":
                status = await process.wait(_GRACE_SECONDS)
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


def start_frame(content: Mapping[str, object], process: GuestProcess) -> bytes:
    """Returns the first message to a process."""
    return encode_frame(FrameKind.START, json.dumps([content]).encode(), process.nonce)
