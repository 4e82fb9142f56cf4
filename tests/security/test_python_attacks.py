"""Nothing gets out of a Python guest's jail, and the next execution of the same server finds nothing changed."""

from __future__ import annotations

import re

import pytest

from tests.security.attacks import Attack, python_corpus, python_own, science
from tests.security.conftest import Batches
from tests.security.modes import TIERS, Mode, Tier
from tests.security.python_own import CONTROL

KNOWN_OPEN: dict[tuple[str, Tier], str] = {
    # As in TypeScript: Landlock does not cover stat(2).
    ("own-stat-host-files", "landlock"): "LEAKED which files exist",
}
"""What a tier is known not to keep in. It must be seen to leak, or the documentation would say too little."""
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

everywhere = pytest.mark.parametrize("tier", TIERS)


@everywhere
@pytest.mark.parametrize("mode", ["python"])
@pytest.mark.parametrize("attack", [*python_corpus(), *python_own()], ids=lambda attack: attack.id)
def test_an_attack_is_contained(batches: Batches, mode: Mode, tier: Tier, attack: Attack) -> None:
    _contained(batches, mode, tier, attack)


@pytest.mark.parametrize("tier", ["namespaces"])
@pytest.mark.parametrize("mode", ["python-session"])
@pytest.mark.parametrize(
    "attack",
    [each for each in (*python_corpus(), *python_own()) if each.kind in {"escape", "module", "own"}],
    ids=lambda attack: attack.id,
)
def test_an_attack_in_a_session_is_contained(batches: Batches, mode: Mode, tier: Tier, attack: Attack) -> None:
    if (given := GIVEN_BY_SESSIONS.get(attack.id)) is None:
        _contained(batches, mode, tier, attack)
        return
    verdict = batches(mode, tier).verdict(attack)
    found = {said for damage in verdict.damage for said in re.findall(r"LEAKED (\w+|\.)", damage)}
    assert found
    assert {said for said in found if not any(name.startswith(said) for name in given)} == set()  # the last may be cut
    assert verdict.following == []


@everywhere
@pytest.mark.parametrize("mode", ["science"])
@pytest.mark.parametrize("attack", science(), ids=lambda attack: attack.id)
def test_an_attack_with_packages_is_contained(batches: Batches, mode: Mode, tier: Tier, attack: Attack) -> None:
    _contained(batches, mode, tier, attack)


@everywhere
@pytest.mark.parametrize("mode", ["python", "science"])
def test_nothing_is_left_after_all_attacks(batches: Batches, mode: Mode, tier: Tier) -> None:
    batch = batches(mode, tier)
    assert (batch.status, batch.left, batch.strange) == (0, [], []), batch.errors


@pytest.mark.parametrize("mode", ["python"])
@pytest.mark.parametrize("tier", ["none"])
@pytest.mark.parametrize(
    "attack", [each for each in (*python_corpus(), *python_own()) if each.id in CONTROL], ids=lambda attack: attack.id
)
def test_without_a_jail_it_gets_out(batches: Batches, mode: Mode, tier: Tier, attack: Attack) -> None:
    assert CONTROL[attack.id] in "\n".join(batches(mode, tier).verdict(attack).damage)


def _contained(batches: Batches, mode: Mode, tier: Tier, attack: Attack) -> None:
    verdict = batches(mode, tier).verdict(attack)
    known = KNOWN_OPEN.get((attack.id, tier))
    assert [each for each in verdict.damage if known is None or known not in each] == [], verdict.detail
    assert known is None or verdict.damage
    if attack.expect not in {"contained", "no-canary"}:
        legal = {*attack.expect.split("|"), ALSO_LEGAL.get(attack.id)}
        assert legal & {*verdict.outcomes}, f"{verdict.outcomes}: {verdict.detail}"
    assert verdict.following == [], "the next execution works, and finds everything as it should be"
