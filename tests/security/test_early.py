"""A guest that is ended at any moment of its start, as a cancelled execution is, leaves no process behind."""

from __future__ import annotations

import json

import pytest

from tests.security.modes import Tier
from tests.security.namespace import run_inside


@pytest.mark.matrix("guests that end with their server, host or execution are in the gate; at chance moments")
@pytest.mark.parametrize(
    "tier",
    [
        "namespaces",
        pytest.param("landlock", marks=pytest.mark.matrix("fewer processes make this jail than that of `namespaces`")),
    ],
)
def test_a_guest_that_is_ended_while_it_starts_leaves_nothing(tier: Tier) -> None:
    done = run_inside(["early", tier], "", seconds=120)
    assert done.returncode == 0, done.stderr
    left = json.loads(done.stdout)["left"]
    assert not left, f"{len(left)} processes, such as {left[0]}"
