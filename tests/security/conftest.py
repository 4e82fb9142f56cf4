"""Batches of attacks: each is run once, when the first test asks for one of its verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.security.attacks import Attack
from tests.security.modes import Mode, Tier, Verdict
from tests.security.namespace import run_inside

_BATCH_SECONDS = 240.0
"""A batch takes up to 15 s on two quiet cores."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What came of a batch: verdicts by attack, and processes that outlived it."""

    verdicts: Mapping[str, Verdict]
    strange: list[str] | None
    """How what a program found after all attacks differs from what one found before. None without programs of Corral."""
    left: list[str] | None
    """None if the worker did not get to its end."""
    status: int
    errors: str
    """The last that the worker wrote to its standard error."""

    def verdict(self, attack: Attack) -> Verdict:
        assert attack.id in self.verdicts, f"the worker ended before this attack did: {self.status}\n{self.errors}"
        return self.verdicts[attack.id]


class Batches:
    """Runs the attacks that this test session asks for, a batch for each mode and tier."""

    def __init__(self, items: list[pytest.Item]) -> None:
        self._wanted: dict[tuple[Mode, Tier], dict[str, Attack]] = {}
        for item in items:
            parameters: dict[str, Any] = (
                item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
            )
            if isinstance(attack := parameters.get("attack"), Attack):
                self._wanted.setdefault((parameters["mode"], parameters["tier"]), {})[attack.id] = attack
        self._done: dict[tuple[Mode, Tier], Batch | Exception] = {}

    def __call__(self, mode: Mode, tier: Tier) -> Batch:
        """The batch of this mode and tier.

        Raises:
            NoNamespace: nothing may run here; every test says so.
        """
        key = mode, tier
        if key not in self._done:
            try:
                self._done[key] = _run(mode, tier, list(self._wanted.get(key, {}).values()))
            except Exception as error:
                self._done[key] = error
        done = self._done[key]
        if isinstance(done, Exception):
            raise done
        return done


def _run(mode: Mode, tier: Tier, attacks: list[Attack]) -> Batch:
    data = json.dumps([attack.to_json() for attack in attacks])
    done = run_inside([mode, tier], data, seconds=_BATCH_SECONDS)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    verdicts = [Verdict(**line) for line in lines if "id" in line]
    rest: dict[str, list[str]] = {name: found for line in lines if "id" not in line for name, found in line.items()}
    return Batch(
        {verdict.id: verdict for verdict in verdicts},
        rest.get("strange"),
        rest.get("left"),
        done.returncode,
        done.stderr[-2000:],
    )


@pytest.fixture(scope="session")
def batches(request: pytest.FixtureRequest) -> Batches:
    return Batches(request.session.items)
