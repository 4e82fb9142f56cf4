"""Every entry of the corpus is accounted for."""

from __future__ import annotations

import re
from collections import Counter

from tests.security.attacks import corpus, entries, own, python_corpus, python_own, science


def test_what_is_left_out_of_the_corpus_is_counted() -> None:
    everything = Counter((entry["language"], entry["class"] == "ssrf") for entry in entries())
    assert everything == {
        ("ts", False): 139,
        ("ts", True): 42,  # attacks on the host's own requests, which there are none of yet
        ("py", False): 80,
    }
    assert len(corpus()) == 139
    assert len(python_corpus()) == 80


def test_every_attack_has_a_name_of_its_own_and_known_placeholders() -> None:
    attacks = [*corpus(), *own()]
    python = [*python_corpus(), *python_own(), *science()]
    assert len({attack.id for attack in python}) == len(python)
    assert len({attack.id for attack in attacks}) == len(attacks)
    found = {name for attack in [*attacks, *python] for name in re.findall(r"\$\{([A-Z]+)\}", attack.code)}
    assert found == {"PORT", "SECRET", "SECRETJSON", "SOCKET", "HOSTPID"}


def test_every_expectation_is_one_that_can_be_judged() -> None:
    outcomes = {outcome for attack in [*corpus(), *own(), *python_corpus()] for outcome in attack.expect.split("|")}
    assert outcomes <= {"value", "value:real", "error", "timeout", "died", "contained", "no-canary"}
