"""The collector of cyclic garbage, kept from looking at large values again and again while they are made.

It runs with every few hundred containers that are new, and now and then over all that there are: of half a million
lists, reading the JSON takes 30 ms and the collector 200.
"""

from __future__ import annotations

import gc
from types import TracebackType

__all__ = ["uncollected"]


class uncollected:  # noqa: N801  # a block, as `contextlib.suppress` is one
    """A block without it, for work that makes a value and ends soon."""

    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._was_enabled:
            gc.enable()
