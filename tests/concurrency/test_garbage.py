"""Imports and large values that garbage collection passes over.

Each case is a process of its own: in that of the tests, a full collection looks at all that they have imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

IMPORTED = """
from corral.concurrency.garbage import import_uncollected
imported = import_uncollected("made")
assert (imported.enabled, gc.isenabled(), gc.get_freeze_count()) == (False, True, 0)
assert {id(each) for each in imported.lists} <= {id(each) for each in gc.get_objects(generation=2)}
"""
FROZEN = """
from corral.concurrency.garbage import import_uncollected
gc.freeze()
frozen = gc.get_freeze_count()
import_uncollected("made")
assert gc.get_freeze_count() > frozen // 2  # some may have gone meanwhile
"""
LARGE = """
import weakref
from corral.concurrency.garbage import gc_disabled
class Node:
    def __init__(self):
        self.itself = self  # a cycle
generations = []
gc.collect()  # the next collection is 700 objects away
node = weakref.ref(Node())
gc.callbacks.append(lambda phase, info: generations.append(info["generation"]) if phase == "start" else None)
with gc_disabled():
    values = [[number] for number in range(21_000)]
made = [[number] for number in range(10)]
assert (len(values), len(made), generations) == (21_000, 10, [])
for _ in range(100):
    values.clear()
    with gc_disabled():
        values = [[number] for number in range(21_000)]
assert generations == [2]
assert node() is None
"""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(IMPORTED, id="what has been imported is old"),
        pytest.param(FROZEN, id="what others have frozen stays frozen"),
        pytest.param(LARGE, id="a large value is not collected, and cycles are after many"),
    ],
)
def test_the_collector_passes_over(case: str, tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text("import gc\nenabled = gc.isenabled()\nlists = [[] for _ in range(10_000)]\n")
    path = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", f"import gc, sys\nsys.path.append({path!r})\n{case}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
