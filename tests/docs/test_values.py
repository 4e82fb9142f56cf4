"""The tables of docs/values.md hold in each engine. A comparison that fails shows the expressions that differ."""

from __future__ import annotations

import datetime
import ipaddress
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from corral import Corral, define_tool, tool
from corral.guest import ArrayBuffer
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.sandboxes.monty import MontySandbox
from corral.sandboxes.wasm import WasmSandbox
from tests.docs.markdown import ROOT, blocks, table

pytestmark = pytest.mark.anyio

VALUES = ROOT / "docs/values.md"
NAMES: dict[str, Any] = {
    "nan": math.nan,
    "inf": math.inf,
    "ArrayBuffer": ArrayBuffer,
    "UTC": datetime.UTC,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "timezone": datetime.timezone,
    "Decimal": Decimal,
    "UUID": UUID,
    "Path": Path,
    "IPv4Address": ipaddress.IPv4Address,
    "HTTPStatus": HTTPStatus,
}


def python(expression: str) -> Any:
    return eval(expression, dict(NAMES))  # noqa: S307 - our own documentation


def described(value: Any) -> str:
    """Tells types, the sign of zero and NaN."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {described(each)}' for key, each in cast('dict[Any, Any]', value).items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(described, cast('list[Any]', value)))}]"
    return f"{type(value).__name__}({value!r})"


def by_expression(rows: list[list[str]], values: list[Any]) -> dict[str, str]:
    return {row[0]: described(value) for row, value in zip(rows, values, strict=True)}


def expected(rows: list[list[str]]) -> dict[str, str]:
    return by_expression(rows, [python(row[1]) for row in rows])


# --- programs in TypeScript


@pytest.fixture(params=["deno", "wasm"])
def typescript(request: pytest.FixtureRequest, warm_deno: DenoSandbox, warm_wasm: WasmSandbox) -> SandboxProvider:
    return warm_deno if request.param == "deno" else warm_wasm


async def test_values_leave_a_typescript_program_as_the_table_says(typescript: SandboxProvider) -> None:
    rows = table(VALUES, "in the program | in Python")
    if typescript.name == "wasm":
        rows = [row for row in rows if "Temporal" not in row[0]]  # the engine has none
    received: list[Any] = []
    accept = define_tool(name="accept", execute=received.append)
    expressions = ",\n".join(f"(() => ({row[0]}))" for row in rows)
    result = await Corral([accept], sandbox=typescript, check=False).execute(
        f"const all = [\n{expressions}\n];\n"
        "for (const each of all) await tools.accept([each()]);\n"
        "return all.map((each) => each())"
    )
    assert by_expression(rows, result.raise_for_error().value) == expected(rows)
    assert by_expression(rows, [value for [value] in received]) == expected(rows)


async def test_promises_in_a_value_are_awaited_as_the_table_says(typescript: SandboxProvider) -> None:
    rows = table(VALUES, "in the program's value | in Python")
    result = await Corral(sandbox=typescript, check=False).execute(f"return [{', '.join(row[0] for row in rows)}]")
    assert by_expression(rows, result.raise_for_error().value) == expected(rows)


async def test_values_are_refused_of_a_typescript_program_as_the_table_says(typescript: SandboxProvider) -> None:
    rows = table(VALUES, "in the program | message")
    found: dict[str, object] = {}
    async with Corral(sandbox=typescript, check=False) as corral:
        for [expression, _] in rows:
            error = (await corral.execute(f"return ({expression})")).error
            found[expression] = error and (error.code, error.message)
    assert found == {expression: ("program_failed", message) for expression, message in rows}


async def test_values_arrive_in_a_typescript_program_as_the_table_says(typescript: SandboxProvider) -> None:
    rows = table(VALUES, "a tool returns")

    @tool
    async def give(number: int):
        return python(rows[number][0])

    pairs = ",\n".join(f"() => [{row[1]}]" for row in rows)
    result = await Corral([give], sandbox=typescript, check=False).execute(
        f"const all = [\n{pairs}\n];\n"
        "for (const number of all.keys()) console.log([await tools.give({ number })]);\n"
        "for (const expected of all) console.log(expected());\n"
    )
    printed = [entry.text for entry in result.raise_for_error().logs]
    assert by_expression(rows, printed[: len(rows)]) == by_expression(rows, printed[len(rows) :])


async def test_none_is_undefined_only_where_nothing_is_declared(typescript: SandboxProvider) -> None:
    @tool
    async def nothing() -> None: ...

    @tool
    async def maybe() -> str | None: ...

    result = await Corral([nothing, maybe], sandbox=typescript, check=False).execute(
        "return [typeof await tools.nothing(), await tools.maybe() === null]"
    )
    assert result.value == ["undefined", True]


# --- programs in Python

LEAVING = table(VALUES, "in a Python program | in Python")
REFUSED = table(VALUES, "in a Python program | message")
ARRIVING = table(VALUES, "of a tool")

[CLASSES] = [block.text for block in blocks(VALUES) if block.heading == "From a Python program"]
COMMON = f"""
import re
from collections import Counter, defaultdict, deque, namedtuple
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
{CLASSES}
"""
FULL = f"""
from collections import OrderedDict
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from pathlib import PurePosixPath
from types import SimpleNamespace
from uuid import UUID
{COMMON}
"""
SCIENCE = """
import numpy as np
import pandas as pd
frame = pd.DataFrame({"city": ["Oslo", None], "n": [1, 2]})
"""


@dataclass
class Engine:
    """An open Corral in which programs begin with `preamble`, what they sent, and the rows that are of the engine."""

    name: str
    corral: Corral
    received: list[Any]
    preamble: str
    leaving: list[list[str]]
    refused: list[list[str]]


def _give(input: Any) -> Any:
    number: int = input["number"]
    return python(ARRIVING[number][0])


@pytest.fixture(scope="module", params=["cpython", "monty", "science"])
async def engine(request: pytest.FixtureRequest, warm_cpython: CPythonSandbox) -> AsyncIterator[Engine]:
    match request.param:
        case "cpython":
            sandbox, preamble, leaving, refused = warm_cpython, FULL, LEAVING, REFUSED
        case "monty":
            sandbox, preamble, refused = MontySandbox(pool_size=1), COMMON, REFUSED
            leaving = [row for row in LEAVING if not row[2].startswith("CPython")]
        case _:
            sandbox, preamble = CPythonSandbox(packages=["numpy", "pandas"]), SCIENCE
            leaving, refused = (table(VALUES, f"of NumPy or pandas | {of}") for of in ("in Python", "message"))
    received: list[Any] = []
    tools = [
        define_tool(name="accept", execute=received.append),
        define_tool(name="give", execute=_give),
        define_tool(name="echo", execute=print),
    ]
    async with Corral(tools, sandbox=sandbox, check=False) as corral:
        yield Engine(request.param, corral, received, preamble, leaving, refused)


async def test_values_leave_a_python_program_as_the_table_says(engine: Engine) -> None:
    rows = engine.leaving
    made = "".join(f"    lambda: ({row[0]}),\n" for row in rows)
    result = await engine.corral.execute(
        f"{engine.preamble}\nmade = [\n{made}]\nfor each in made:\n"
        "    try:\n        await tools.accept([each()])\n"
        "    except ValueError as error:\n        await tools.accept([str(error)])\n"
        "result = [each() for each in made]\n",
        language="python",
    )
    assert by_expression(rows, result.raise_for_error().value) == expected(rows)
    sent = {row[0]: value for row, [value] in zip(rows, engine.received, strict=True)}
    if engine.name == "monty":
        refused = {row[0]: sent.pop(row[0]) for row in rows if row[2].startswith("Monty: not as an input")}
        assert {expression: error[:16] for expression, error in refused.items()} == dict.fromkeys(
            refused, "InvalidArguments"
        )
        rows = [row for row in rows if row[0] in sent]
    assert by_expression(rows, [*sent.values()]) == expected(rows)


async def test_values_are_refused_of_a_python_program_as_the_table_says(engine: Engine) -> None:
    found: dict[str, object] = {}
    for [expression, _] in engine.refused:
        program = f"{engine.preamble}\nresult = {expression}\nresult"
        error = (await engine.corral.execute(program, language="python")).error
        found[expression] = error and (error.code, error.message)
    assert found == {expression: ("program_failed", message) for expression, message in engine.refused}


@pytest.mark.parametrize("engine", ["cpython", "monty"], indirect=True)
async def test_values_arrive_in_a_python_program_as_the_table_says(engine: Engine) -> None:
    lines = [f"print(repr(await tools.give(number={number})))" for number in range(len(ARRIVING))]
    lines += [f"print(repr({row[1]}))" for row in ARRIVING]
    result = await engine.corral.execute("\n".join(lines), language="python")
    printed = [entry.text for entry in result.raise_for_error().logs]
    assert by_expression(ARRIVING, printed[: len(ARRIVING)]) == by_expression(ARRIVING, printed[len(ARRIVING) :])


async def test_tools_return_values_of_numpy_and_pandas_as_programs_do(warm_cpython: CPythonSandbox) -> None:
    rows = table(VALUES, "of NumPy or pandas | in Python")
    names = {**NAMES, "np": np, "pd": pd, "frame": pd.DataFrame({"city": ["Oslo", None], "n": [1, 2]})}
    values = [eval(row[0], dict(names)) for row in rows]  # noqa: S307 - our own documentation

    def of_number(input: dict[str, int]) -> Any:
        return values[input["number"]]

    give = define_tool(name="give", execute=of_number)
    program = f"await asyncio.gather(*[tools.give(number=each) for each in range({len(rows)})], return_exceptions=True)"
    async with Corral([give], sandbox=warm_cpython, check=False) as corral:
        received: Any = (await corral.execute(program, language="python")).raise_for_error().value
    wanted = expected(rows)
    differ = {row: said for row, said in by_expression(rows, received).items() if said != wanted[row]}
    assert list(differ) == ['pd.DataFrame({("a", "b"): [1]})']  # its keys are no texts, which a tool's have to be
