"""Every denial is made by one guard: without it, the checks of that denial fail; with it, all hold."""

from __future__ import annotations

import inspect
import re

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


def test_every_guard_of_the_pipeline_that_denies_has_its_denials_here() -> None:
    lines = inspect.getsource(guards.pipeline).splitlines()
    of_pipeline = {match[1] for line in lines if (match := re.search(r"(?:handler =|return) (\w+)\(", line))}
    assert of_pipeline - {*DENIALS} == {"convert_errors", "dispatch", "record_calls", "sequence_calls", "trace_calls"}
