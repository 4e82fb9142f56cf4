"""An event loop whose clock stands while anything runs, and leaps to the next timer once nothing does."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

from typing_extensions import override


class _Leaping(selectors.DefaultSelector):
    now = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0 if timeout else timeout)
        if timeout and not ready:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For tests without processes and threads, which take time of the real clock."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    @override
    def time(self) -> float:
        return self._leaping.now


VIRTUAL_TIME = "asyncio", {"loop_factory": VirtualTimeLoop}
"""For `anyio_backend`."""
