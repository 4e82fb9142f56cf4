"""Batches of attacks: a worker makes all those of a mode in a tier, and the harness says what is wrong with how they went."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest
from _pytest.mark import ParameterSet

from tests.security.attacks import Attack
from tests.security.modes import Attacked, Mode, Tier, Verdict
from tests.security.namespace import run_inside

__all__ = ["Batch", "parameters", "run_batch", "uncontained"]

_BATCH_SECONDS = 240.0
"""A batch takes up to 15 s on two quiet cores."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What came of a batch: verdicts by attack, and processes that outlived it."""

    attacks: Sequence[Attack]
    verdicts: Mapping[str, Verdict]
    strange: list[str] | None
    """How what a program found after all attacks differs from what one found before. None without programs of Corral."""
    left: list[str] | None
    """None if the worker did not get to its end."""
    status: int
    errors: str
    """The last that the worker wrote to its standard error."""

    def wrong(self, judge: Callable[[Attack, Verdict], Iterable[str]]) -> str:
        """A line for all that is wrong with an attack by `judge`, which begins with the attack's name; empty if nothing is."""
        found = [
            f"{attack.id}: {each}; {verdict.detail}"
            for attack in self.attacks
            if (verdict := self.verdicts.get(attack.id)) is not None
            for each in judge(attack, verdict)
        ]
        if missing := [attack.id for attack in self.attacks if attack.id not in self.verdicts]:
            found.append(f"the worker ended before these did: {self.status} {', '.join(missing)}\n{self.errors}")
        return "\n".join(found)


def parameters(attacked: Iterable[Attacked]) -> list[ParameterSet]:
    """A test's mode, tier and kinds of attacks."""
    return [
        pytest.param(
            each.mode,
            each.tier,
            each.kinds,
            id=f"{each.mode}-{each.tier}{'-matrix' if each.matrix else ''}",
            marks=[pytest.mark.matrix(each.matrix)] if each.matrix else [],
        )
        for each in attacked
    ]


def run_batch(mode: Mode, tier: Tier, attacks: Sequence[Attack]) -> Batch:
    """Makes the attacks.

    Raises:
        NoNamespace: nothing may run here.
    """
    data = json.dumps([attack.to_json() for attack in attacks])
    done = run_inside([mode, tier], data, seconds=_BATCH_SECONDS)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    verdicts = [Verdict(**line) for line in lines if "id" in line]
    rest: dict[str, list[str]] = {name: found for line in lines if "id" not in line for name, found in line.items()}
    return Batch(
        attacks,
        {verdict.id: verdict for verdict in verdicts},
        rest.get("strange"),
        rest.get("left"),
        done.returncode,
        done.stderr[-2000:],
    )


def uncontained(attack: Attack, verdict: Verdict, known: str | None, also_legal: str | None) -> list[str]:
    """What an attack got at beside what is `known`, an end that is not legal, and what it did to the next execution.

    What is known to leak must be seen to, or the documentation would say too little.
    """
    found = [each for each in verdict.damage if known is None or known not in each]
    if known is not None and not verdict.damage:
        found.append(f"this is known to leak, and did not: {known}")
    if attack.expect not in {"contained", "no-canary"} and not {*attack.expect.split("|"), also_legal} & {
        *verdict.outcomes
    }:
        found.append(f"it ended as {verdict.outcomes}")
    return [*found, *(f"the next execution finds {each}" for each in verdict.following)]
