"""Quotas of directories on disk, which no kernel holds: the host looks, and ends programs that go over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import anyio
import anyio.to_thread

from corral.sessions.tree import FileTree, Usage

__all__ = ["Quota", "watch_quotas"]

_BYTES_PER_SECOND = 4e9
_FILES_PER_SECOND = 200_000.0
"""Writers are no faster than this, so that the next look comes before what is left is used up."""
_ALL = Usage(1 << 62, 1_000_000)
_DYING_SECONDS = 0.1
"""A program that was ended for it may write until its process is killed."""
_LEAST_SECONDS, _MOST_SECONDS = 0.005, 0.25


class Quota(NamedTuple):
    """Bytes and files that a directory may hold."""

    mount: str
    files: FileTree
    most: Usage


async def watch_quotas(quotas: Sequence[Quota], over: Callable[[str], None]) -> None:
    """Calls `over` with the reason once a directory holds more than it may, and more than it did at first."""
    most = [await _most(quota) for quota in quotas]
    while True:
        wait = _MOST_SECONDS
        for quota, allowed in zip(quotas, most, strict=True):
            try:
                used = await anyio.to_thread.run_sync(quota.files.measure, allowed)
            except OSError as error:
                over(f"{quota.mount} cannot be measured: {error.strerror or error}")
                return
            if used.bytes > allowed.bytes or used.files > allowed.files:
                over(f"{quota.mount} holds {quota.most.bytes:,} bytes and {quota.most.files:,} files at most")
                return
            left = (allowed.bytes - used.bytes) / _BYTES_PER_SECOND, (allowed.files - used.files) / _FILES_PER_SECOND
            wait = min(wait, *left)
        await anyio.sleep(max(_LEAST_SECONDS, wait))


async def _most(quota: Quota) -> Usage:
    """Amount that it may hold from now on: one that is over keeps what it has, so that a program can make room."""
    found = await anyio.to_thread.run_sync(quota.files.measure, _ALL)
    if found.bytes > quota.most.bytes or found.files > quota.most.files:
        await anyio.sleep(_DYING_SECONDS)
        found = await anyio.to_thread.run_sync(quota.files.measure, _ALL)
    return Usage(*map(max, quota.most, found))
