"""Imports and large values that garbage collection passes over."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from uuid import uuid4

import pytest

from corral.concurrency import garbage
from corral.concurrency.garbage import gc_disabled, import_uncollected


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that makes many lists."""
    name = f"module_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("import gc\nenabled = gc.isenabled()\nlists = [[] for _ in range(10_000)]\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return name


def test_what_has_been_imported_is_old(module: str) -> None:
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    try:
        imported = import_uncollected(module)
        assert (imported.enabled, gc.isenabled(), gc.get_freeze_count()) == (False, True, 0)
        assert {id(each) for each in imported.lists} <= {id(each) for each in gc.get_objects(generation=2)}
    finally:
        if frozen:
            gc.freeze()


def test_what_others_have_frozen_stays_frozen(module: str) -> None:
    earlier = gc.get_freeze_count()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        import_uncollected(module)
        assert gc.get_freeze_count() > frozen // 2  # some may have gone meanwhile
    finally:
        if not earlier:
            gc.unfreeze()


class Node:
    """Object that can be in a cycle."""

    def __init__(self) -> None:
        self.itself = self


def test_a_large_value_is_not_collected_and_cycles_are_collected_after_many(monkeypatch: pytest.MonkeyPatch) -> None:
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    frozen = gc.get_freeze_count()
    gc.unfreeze()
    gc.collect()  # the next collection is 700 objects away
    monkeypatch.setattr(garbage, "_spared", 0)  # as if no test before had large values
    node = weakref.ref(Node())
    gc.callbacks.append(note)
    try:
        with gc_disabled():
            values = [[number] for number in range(21_000)]
        made = [[number] for number in range(10)]
        assert (len(values), len(made), generations) == (21_000, 10, [])
        for _ in range(100):
            values.clear()
            with gc_disabled():
                values = [[number] for number in range(21_000)]
        assert generations == [2]
    finally:
        gc.callbacks.remove(note)
        if frozen:
            gc.freeze()
    assert node() is None
