"""A program as a function: which literals become parameters, and what stays as it is."""

from __future__ import annotations

import pytest

from corral.errors import ConfigError
from corral.programs.parameters import as_function
from corral.types import Language

TYPESCRIPT = """\
import { sumBy } from "lodash";
const days = "days"; // 7 days
const text = `
7 days`;
const rows = await tools.rows({ days: 7, "unit": "days", id: 77, low: -7, all: true, name: "7" });
for (const row of rows as { unit: "kg" }[]) await tools.send({ to: 'ann@acme.com', row, unit: "kg" });
const { "kg": weight } = { "kg"() { return 1; } };
sumBy(rows, "days")"""
AS_FUNCTION = """\
import { sumBy } from "lodash";
export async function week_report({ last, to, low, all, unit }: { last: number; to: string; low: number; all: boolean; \
unit: string }) {
    const days = "days"; // 7 days
    const text = `
7 days`;
    const rows = await tools.rows({ days: last, "unit": "days", id: 77, low: low, all: all, name: "7" });
    for (const row of rows as { unit: "kg" }[]) await tools.send({ to: to, row, unit: unit });
    const { "kg": weight } = { "kg"() { return 1; } };
    return sumBy(rows, "days")
}
"""
PYTHON = '''\
text = """
7 days"""
rows = await tools.rows(days=7, unit="days", low=-7, share=0.5, all=True)
for row in rows:
    if row["unit"] == "kg" "s":
        await tools.send(to="ann@acme.com", row=row, note=f"{row} kg")
    match row:
        case {"days": 7} | Row(days=7):
            pass

len(rows)
'''
PYTHON_FUNCTION = '''\
async def report(tools, *, last: int, to: str, low: int, share: float, all_: bool):
    text = """
7 days"""
    rows = await tools.rows(days=last, unit="days", low=low, share=share, all=all_)
    for row in rows:
        if row["unit"] == "kg" "s":
            await tools.send(to=to, row=row, note=f"{row} kg")
        match row:
            case {"days": 7} | Row(days=7):
                pass

    return len(rows)
'''
LAST, TO = {"last": "7"}, {"to": "ann@acme.com"}


@pytest.mark.parametrize(
    ("language", "name", "source", "inputs", "function", "call"),
    [
        (
            "typescript",
            "week-report",
            TYPESCRIPT,
            {**LAST, **TO, "low": "-7", "all": "true", "unit": "kg"},
            AS_FUNCTION,
            'await week_report({"last": 7, "to": "ann@acme.com", "low": -7, "all": true, "unit": "kg"})',
        ),
        (
            "python",
            "report",
            PYTHON,
            {**LAST, **TO, "low": "-7", "share": "0.5", "all_": "true"},
            PYTHON_FUNCTION,
            "await report(tools, last=7, to='ann@acme.com', low=-7, share=0.5, all_=True)",
        ),
        (
            "typescript",
            "new",
            "return 1;",
            {},
            "export async function run_new() {\n    return 1;\n}\n",
            "await run_new()",
        ),
        ("python", "9", "1", {}, "async def run_9(tools):\n    return 1\n", "await run_9(tools)"),
        (
            "python",
            "x",
            "```python\n7\n```",
            {"a": "7"},
            "async def x(tools, *, a: int):\n    return a\n",
            "await x(tools, a=7)",
        ),
    ],
)
def test_literals_become_parameters(
    language: Language, name: str, source: str, inputs: dict[str, str], function: str, call: str
) -> None:
    module = as_function(source, language, name, inputs)
    assert (module.source, module.call) == (function, call)


@pytest.mark.parametrize(
    ("source", "inputs", "problem"),
    [
        ("return 7", {"last": "8"}, "it has no text, number or truth value '8' for last"),
        ("const last = 7; return last", LAST, "it has a variable last; choose another name"),
        ("return 7 +", LAST, "does not parse"),
    ],
)
def test_a_program_without_the_literal_is_a_clear_error(source: str, inputs: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        as_function(source, "typescript", "x", inputs)
