"""Nothing gets out of a jail: every attack, in every mode and tier, and the next execution works.

Each tier is tested where it is there; where it is not, these tests fail and say what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.security.attacks import Attack, corpus, own
from tests.security.batches import parameters, run_batch, uncontained
from tests.security.modes import ATTACKED, Mode, Tier, Verdict

KNOWN_OPEN: dict[tuple[str, Mode, Tier], str] = {
    # Landlock does not cover stat(2), and a system call filter cannot see a path: the names of files can be guessed.
    ("own-stat-host-files", "raw", "landlock"): "LEAKED which files exist",
    ("own-stat-host-files", "native", "landlock"): "LEAKED which files exist",
}
"""What a tier is known not to keep in."""
ALSO_LEGAL: dict[tuple[str, Mode], str] = {
    # 100,000 stacks fill V8's heap to its brim, those of code made from strings, or beside what earlier programs left; it
    # may collect garbage until its time is over.
    ("ts-flood-07", "granted"): "timeout",
    # A hundred thousand errors, each with a stack, take this engine longer than the time that the attack has.
    ("ts-flood-07", "wasm"): "timeout",
    # Each promise waits for the next one, so it is a bomb as well as a loop; which limit it meets first, is chance.
    ("ts-hang-03", "product"): "died",
    ("ts-hang-03", "granted"): "died",
}
"""Outcomes that the corpus does not name, and why they are as good."""
NATIVE = "own-native-code-runs"
"""All our attacks begin as this one does, and do no more where it fails: so it stands for them in every mode."""


@pytest.mark.parametrize(("mode", "tier", "kinds"), parameters(ATTACKED))
def test_every_attack_is_contained_and_nothing_is_left(mode: Mode, tier: Tier, kinds: frozenset[str]) -> None:
    batch = run_batch(mode, tier, [each for each in (*corpus(), *own()) if each.kind in kinds or each.id == NATIVE])
    wrong = batch.wrong(partial(judged, mode, tier))
    assert not wrong, wrong
    assert (batch.status, batch.left) == (0, []), batch.errors
    assert batch.strange == (None if mode == "raw" else [])


def judged(mode: Mode, tier: Tier, attack: Attack, verdict: Verdict) -> Iterator[str]:
    if attack.id == NATIVE:
        yield from native_code_runs_only_where_there_is_no_guest(mode, verdict)
    elif mode == "raw":
        # What is not a body but a whole module may not even start; all else must have run to mean anything.
        if not (verdict.began or attack.kind == "module"):
            yield "the attack itself never ran"
        attack = Attack(id=attack.id, kind=attack.kind, code=attack.code, expect="contained")
    yield from uncontained(attack, verdict, KNOWN_OPEN.get((attack.id, mode, tier)), ALSO_LEGAL.get((attack.id, mode)))


def native_code_runs_only_where_there_is_no_guest(mode: Mode, verdict: Verdict) -> Iterator[str]:
    if mode == "raw":
        if "Native code runs." not in verdict.detail:
            yield "native code does not run, so the attacks mean nothing"
    elif mode == "native":
        if "not a frame" not in verdict.detail:
            yield "native code does not run: its bytes would come where frames are expected"
    elif verdict.outcomes != ["error"]:
        yield f"native code may have run: {verdict.outcomes}"
