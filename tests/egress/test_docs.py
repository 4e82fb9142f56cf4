"""What docs/egress.md shows and claims."""

from __future__ import annotations

import re

import pytest

from corral.egress import EgressPolicy
from corral.egress.addresses import is_internal_name
from corral.egress.client import ClientOptions
from tests.docs.markdown import ROOT, blocks, table

PAGE = ROOT / "docs" / "egress.md"


def test_the_example_prints_what_stands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    program, output = [block for block in blocks(PAGE) if "asyncio.run" in block.text or block.language == "text"]
    exec(program.text, {"__name__": "example"})  # noqa: S102 - our own documentation
    assert capsys.readouterr() == (output.text, "")


def test_every_setting_stands_in_the_table_with_its_default() -> None:
    shown = {row[0]: row[1] for row in table(PAGE, "`EgressPolicy`")}
    defaults = {name: field.default for name, field in EgressPolicy.model_fields.items()}
    assert {name: eval(value) for name, value in shown.items()} == defaults  # noqa: S307 - our own documentation


def test_every_option_of_the_client_is_named() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in ClientOptions.__annotations__ if f"`{name}`" not in text] == []


def test_names_of_the_inside_are_those_that_are_listed() -> None:
    [row] = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| names |")]
    suffixes = set(re.findall("`([^`]+)`", row)) - {"hosts"}
    assert len(suffixes) == 11
    assert [suffix for suffix in suffixes if not is_internal_name(f"a.{suffix}")] == []
