"""Quotas of directories on disk, which no kernel holds: the host looks, and ends programs that go over them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import anyio
import anyio.to_thread

from corral.sessions.tree import FileTree, Usage

__all__ = ["Quota", "QuotaWatch", "watch_quotas"]

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


class QuotaWatch:
    """Looks at quotas. Its methods block."""

    def __init__(self, quotas: Sequence[Quota]) -> None:
        self._quotas = quotas
        self._most = [_most(quota) for quota in quotas]

    def look(self) -> tuple[str | None, float]:
        """The reason why a directory holds more than it may, and more than it did at first, or the seconds to wait."""
        wait = _MOST_SECONDS
        for quota, allowed in zip(self._quotas, self._most, strict=True):
            try:
                used = quota.files.measure(allowed)
            except OSError as error:
                return f"{quota.mount} cannot be measured: {error.strerror or error}", wait
            if used.bytes > allowed.bytes or used.files > allowed.files:
                return f"{quota.mount} holds {quota.most.bytes:,} bytes and {quota.most.files:,} files at most", wait
            left = (allowed.bytes - used.bytes) / _BYTES_PER_SECOND, (allowed.files - used.files) / _FILES_PER_SECOND
            wait = min(wait, *left)
        return None, max(_LEAST_SECONDS, wait)


async def watch_quotas(watch: QuotaWatch, over: Callable[[str], None]) -> None:
    """Calls `over` with the reason once a directory holds more than it may, and more than it did at first."""
    while True:
        reason, wait = await anyio.to_thread.run_sync(watch.look)
        if reason is not None:
            over(reason)
            return
        await anyio.sleep(wait)


def _most(quota: Quota) -> Usage:
    """Amount that it may hold from now on: one that is over keeps what it has, so that a program can make room."""
    found = quota.files.measure(_ALL)
    if found.bytes > quota.most.bytes or found.files > quota.most.files:
        time.sleep(_DYING_SECONDS)
        found = quota.files.measure(_ALL)
    return Usage(*map(max, quota.most, found))
