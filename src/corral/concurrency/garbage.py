"""Control of cyclic garbage collection, which is disabled while large values are created and modules are loaded.

The collector runs after every few hundred new containers, and sometimes visits them all: parsing half a million lists
from JSON takes 30 ms, and the collector another 200. A new large value is also exempted from the next collections,
which would visit every object of the process twice.
"""

from __future__ import annotations

import gc
from importlib import import_module
from types import ModuleType, TracebackType

_LARGE = 20_000
"""Number of new objects since the last collection above which all are moved to the oldest generation uncollected."""
_MOST_SPARED = 100
"""Number of large values between full collections, which free cycles among the objects created in between."""
_spared = 0


class gc_disabled:  # noqa: N801  # a block, as `contextlib.suppress` is one
    """Disables the collector during the block, which should be short and create one value without cycles."""

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
    """Moves all objects to the oldest generation, uncollected. Call it after creating many long-lived objects.

    Otherwise about ten thousand of them would make the collector visit every object of the process.
    """
    global _spared
    _spared += 1
    _spare_all()


def import_uncollected(name: str) -> ModuleType:
    """Imports a module, and moves it and its imports straight into the oldest generation, since none of it is garbage.

    Otherwise the next two collections would visit all of it, which takes 45 ms for corral.
    """
    with gc_disabled():
        module = import_module(name)
        _spare_all()
    return module


def _spare_all() -> None:
    """Moves all objects to the oldest generation."""
    if gc.get_freeze_count() == 0:  # unfreezing would also thaw objects that others have frozen
        gc.freeze()
        gc.unfreeze()
