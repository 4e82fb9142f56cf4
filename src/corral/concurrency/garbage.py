"""Cyclic garbage collection, switched off while large values are made.

The collector runs after every few hundred new containers and sometimes visits all of them: of half a million lists,
reading the JSON takes 30 ms and the collector 200.
"""

from __future__ import annotations

import gc
from types import TracebackType

__all__ = ["gc_disabled"]


class gc_disabled:  # noqa: N801  # a block, as `contextlib.suppress` is one
    """Disables the collector within the block, for work that makes one value and ends soon."""

    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._was_enabled:
            gc.enable()
