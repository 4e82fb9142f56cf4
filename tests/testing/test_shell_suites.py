"""Cases of the suites of shells: what they are let off for is declared, and so in the table of the reference."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from corral.isolation import Isolation
from corral.shells import ShellCapabilities
from corral.testing import FilesSuite, ShellSuite
from corral.testing.behaviours import behaviours

CASES = [case for suite in (ShellSuite, FilesSuite) for name, case in vars(suite).items() if name.startswith("test_")]
NO_DIFFERENCES = {"isolation"}
SAID_OTHERWISE = {"test_on_output_may_be_asynchronous_and_names_the_stream"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_case_asks_for_no_capability_that_it_does_not_declare(case: Callable[..., Any]) -> None:
    asked = set(re.findall(r"(?:capabilities|has)\.(\w+)", inspect.getsource(case))) - NO_DIFFERENCES
    declared = {*getattr(case, "_corral_differences", {})}
    assert asked == declared or case.__name__ in SAID_OTHERWISE


def test_a_shell_that_lacks_everything_differs_in_all_that_is_declared() -> None:
    lacking: dict[str, Any] = {each.name: False for each in fields(ShellCapabilities) if each.type == "bool"}
    nothing = ShellCapabilities(isolation=Isolation.of_tier("none"), **lacking)
    everything = ShellCapabilities(isolation=Isolation.of_tier("none"))
    differing = 0
    for suite in (ShellSuite, FilesSuite):
        assert {*behaviours(suite, everything).values()} == {"yes"}
        differing += sum(text != "yes" for text in behaviours(suite, nothing).values())
    assert differing == sum(hasattr(case, "_corral_differences") for case in CASES)
    assert len(CASES) > 60
