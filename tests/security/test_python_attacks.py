"""Nothing gets out of a Python guest's jail, and the next execution of the same server finds nothing changed."""

from __future__ import annotations

import re
from functools import partial

import pytest

from tests.security.attacks import Attack, python_corpus, python_own, science
from tests.security.batches import parameters, run_batch, uncontained
from tests.security.modes import ATTACKED_PYTHON, SESSIONS, Mode, Tier, Verdict

KNOWN_OPEN: dict[tuple[str, Tier], str] = {
    # As in TypeScript: Landlock does not cover stat(2).
    ("own-stat-host-files", "landlock"): "LEAKED which files exist",
}
"""What a tier is known not to keep in."""
ALSO_LEGAL: dict[str, str] = {
    "py-hang-09": "value",  # nothing asks the object for its text: it is sent as the members it has, which are none
}
"""Outcomes that the corpus does not name, and why they are as good."""

GIVEN_BY_SESSIONS: dict[str, set[str]] = {
    "own-write-anywhere": {"."},
    "own-dbm-and-temporary-files": {"a"},
    "own-limits-of-its-own": {"files"},  # the size of one is bounded, and not 0
    "own-kernel-surface": {"umask", "chdir"},
    # Locks, which sqlite needs, of the engine's files too: two programs that want to can talk by them.
    "own-channels-to-other-programs": {"fcntl"},
}
"""What these programs get at in a session, because it has a directory to write to, and nothing else."""


@pytest.mark.parametrize(("mode", "tier", "kinds"), parameters(ATTACKED_PYTHON))
def test_every_attack_is_contained_and_nothing_is_left(mode: Mode, tier: Tier, kinds: frozenset[str]) -> None:
    attacks = science() if mode == "science" else (*python_corpus(), *python_own())
    batch = run_batch(mode, tier, [each for each in attacks if each.kind in kinds])
    wrong = batch.wrong(partial(judged, mode, tier))
    assert not wrong, wrong
    assert (batch.status, batch.left, batch.strange) == (0, [], []), batch.errors


def judged(mode: Mode, tier: Tier, attack: Attack, verdict: Verdict) -> list[str]:
    given = GIVEN_BY_SESSIONS.get(attack.id) if mode in SESSIONS else None
    if given is None:
        return uncontained(attack, verdict, KNOWN_OPEN.get((attack.id, tier)), ALSO_LEGAL.get(attack.id))
    said = {said for damage in verdict.damage for said in re.findall(r"LEAKED (\w+|\.)", damage)}
    more = {each for each in said if not any(name.startswith(each) for name in given)}  # the last may be cut
    found = [f"it gets at {more or 'nothing'}, where a session gives {given}"] if more or not said else []
    return [*found, *(f"the next execution finds {each}" for each in verdict.following)]
