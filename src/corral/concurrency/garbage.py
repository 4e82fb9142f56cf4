"""Cyclic garbage collection, switched off while large values are made and modules are loaded.

The collector runs after every few hundred new containers and sometimes visits all of them: of half a million lists,
reading the JSON takes 30 ms and the collector 200. Nor does it look at a large value as soon as that is made: it would
look at all objects of the process, twice.
"""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType, TracebackType

_LARGE = 20_000
"""Objects made since the last collection, above which all go to the oldest generation uncollected."""
_MOST_SPARED = 100
"""Large values until a full collection, without which cycles among younger objects would stay for ever."""
_spared = 0


class gc_disabled:  # noqa: N801  # a block, as `contextlib.suppress` is one
    """Disables the collector within the block, for work that makes one value, without cycles, and ends soon."""

    __slots__ = ("_was_enabled",)

    def __enter__(self) -> None:
        global _spared
        self._was_enabled = gc.isenabled()
        if self._was_enabled:
            gc.disable()
            if _spared >= _MOST_SPARED:
                _spared = 0
                gc.collect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._was_enabled:
            if gc.get_count()[0] > _LARGE:
                spare_young()
            gc.enable()


def spare_young() -> None:
    """Puts all objects into the oldest generation, uncollected, as many were made that stay for a while.

    Else some ten thousands of them would have the collector visit all objects of the process.
    """
    global _spared
    _spared += 1
    _spare_all()


def import_uncollected(name: str) -> ModuleType:
    """Imports a module, nothing of which is garbage, with all that it imports.

    All goes straight to the oldest generation. Else the next two collections would look at it, 45 ms for corral.
    """
    with gc_disabled():
        module = import_module(name)
        _spare_all()
    return module


def _spare_all() -> None:
    """Puts all objects into the oldest generation."""
    if gc.get_freeze_count() == 0:  # else what others have frozen would thaw
        gc.freeze()
        gc.unfreeze()
