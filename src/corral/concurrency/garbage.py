"""Cyclic garbage collection, switched off while large values are made and modules are loaded.

The collector runs after every few hundred new containers and sometimes visits all of them: of half a million lists,
reading the JSON takes 30 ms and the collector 200.
"""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType, TracebackType

__all__ = ["gc_disabled", "import_uncollected"]


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


def import_uncollected(name: str) -> ModuleType:
    """Imports a module, nothing of which is garbage, with all that it imports.

    All goes straight to the oldest generation. Else the next two collections would look at it, 45 ms for corral.
    """
    with gc_disabled():
        module = import_module(name)
        if gc.get_freeze_count() == 0:  # else what others have frozen would thaw
            gc.freeze()
            gc.unfreeze()  # puts all into the oldest generation
    return module
