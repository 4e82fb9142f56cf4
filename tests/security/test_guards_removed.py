"""Every denial is made by one guard: without it, the checks of that denial fail; with it, all hold."""

from __future__ import annotations

import pytest

from corral.calls import Handler, guards
from tests.security.denials import DENIALS, checks_that_fail

pytestmark = pytest.mark.anyio


def absent(handler: Handler, *_: object) -> Handler:
    """Stands where a guard was, and guards nothing."""
    return handler


async def test_all_denials_hold_with_all_guards() -> None:
    assert await checks_that_fail() == {}


@pytest.mark.parametrize("guard", DENIALS)
async def test_a_denial_does_not_hold_without_its_guard(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, guard, absent)  # where `pipeline` finds it
    assert {check.__name__ for check in DENIALS[guard]} <= {*await checks_that_fail()}
