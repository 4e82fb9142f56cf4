"""Nothing gets out of a jail: every attack, in every mode and tier, and the next execution works.

Each tier is tested where it is there; where it is not, these tests fail and say what is missing.
"""

from __future__ import annotations

import pytest

from tests.security.attacks import Attack, corpus, own
from tests.security.conftest import Batches
from tests.security.modes import ATTACKED, Mode, Tier

KNOWN_OPEN: dict[tuple[str, Mode, Tier], list[str]] = {
    # Landlock does not cover stat(2), and a system call filter cannot see a path: the names of files can be guessed.
    ("own-stat-host-files", "raw", "landlock"): ["it says LEAKED which files exist"],
    ("own-stat-host-files", "native", "landlock"): ["it says LEAKED which files exist"],
}
"""What a tier is known not to keep in. It must be seen to leak, or the documentation would say too little."""
ALSO_LEGAL: dict[tuple[str, Mode], str] = {
    # 100,000 stacks fill V8's heap to its brim, those of code made from strings, or beside what earlier programs left; it
    # may collect garbage until its time is over.
    ("ts-flood-07", "granted"): "timeout",
    # Each promise waits for the next one, so it is a bomb as well as a loop; which limit it meets first, is chance.
    ("ts-hang-03", "product"): "died",
    ("ts-hang-03", "granted"): "died",
}
"""Outcomes that the corpus does not name, and why they are as good."""

NATIVE = next(attack for attack in own() if attack.id == "own-native-code-runs")
everywhere = pytest.mark.parametrize(("mode", "tier"), ATTACKED, ids=["-".join(each) for each in ATTACKED])
MADE = [
    (mode, tier, attack)
    for (mode, tier), kinds in ATTACKED.items()
    for attack in [*corpus(), *own()]
    if attack.kind in kinds
]


@pytest.mark.parametrize(
    ("mode", "tier", "attack"), MADE, ids=[f"{mode}-{tier}-{attack.id}" for mode, tier, attack in MADE]
)
def test_an_attack_is_contained(batches: Batches, mode: Mode, tier: Tier, attack: Attack) -> None:
    verdict = batches(mode, tier).verdict(attack)
    known = KNOWN_OPEN.get((attack.id, mode, tier), [])
    found = [each for each in verdict.damage if not (known and each.startswith("it says {"))]  # the same, in the result
    assert found == known, verdict.detail
    if mode == "raw":
        # What is not a body but a whole module may not even start; all else must have run to mean anything.
        assert verdict.began or attack.kind == "module", f"the attack itself never ran: {verdict.detail}"
    elif attack.expect not in {"contained", "no-canary"}:
        legal = {*attack.expect.split("|"), ALSO_LEGAL.get((attack.id, mode))}
        assert legal & {*verdict.outcomes}, f"{verdict.outcomes}: {verdict.detail}"
    assert verdict.following == [], "the next execution works, and finds everything as it should be"


@everywhere
@pytest.mark.parametrize("attack", [NATIVE], ids=["native"])
def test_native_code_runs_only_where_there_is_no_guest(
    batches: Batches, mode: Mode, tier: Tier, attack: Attack
) -> None:
    verdict = batches(mode, tier).verdict(attack)
    if mode == "raw":
        assert "Native code runs." in verdict.detail, "or the attacks would mean nothing"
    elif mode == "native":
        assert "not a frame" in verdict.detail, "its bytes come where frames are expected"
    else:
        # None of our attacks gets past what it begins with, so that one stands for all of them.
        assert (verdict.outcomes, verdict.damage, verdict.following) == (["error"], [], []), verdict.detail


@everywhere
def test_nothing_is_left_after_all_attacks(batches: Batches, mode: Mode, tier: Tier) -> None:
    batch = batches(mode, tier)
    assert (batch.status, batch.left) == (0, []), batch.errors
    assert batch.strange == (None if mode == "raw" else [])
