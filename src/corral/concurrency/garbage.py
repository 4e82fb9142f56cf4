"""Cyclic garbage collection, disabled while large values are made and modules are loaded.

The collector runs after every few hundred new containers and sometimes visits all of them: for half a million lists,
reading the JSON takes 30 ms and the collector 200. A new large value is also exempt from the next collections, which
would visit all objects of the process, twice.
"""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType, TracebackType

_LARGE = 20_000
"""Number of objects made since the last collection above which all move to the oldest generation uncollected."""
_MOST_SPARED = 100
"""Number of large values between full collections, which free cycles among younger objects."""
_spared = 0


class gc_disabled:  # noqa: N801  # a block, as `contextlib.suppress` is one
    """Disables the collector within the block, for short work that makes one value without cycles."""

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
    """Moves all objects to the oldest generation, uncollected, after many long-lived ones were made.

    Otherwise ten thousand of them or so would make the collector visit all objects of the process.
    """
    global _spared
    _spared += 1
    _spare_all()


def import_uncollected(name: str) -> ModuleType:
    """Imports a module and its imports, none of which is garbage, straight into the oldest generation.

    Otherwise the next two collections would visit them, which takes 45 ms for corral.
    """
    with gc_disabled():
        module = import_module(name)
        _spare_all()
    return module


def _spare_all() -> None:
    """Moves all objects to the oldest generation."""
    if gc.get_freeze_count() == 0:  # otherwise objects that others have frozen would thaw
        gc.freeze()
        gc.unfreeze()
