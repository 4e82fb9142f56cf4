"""What the documentation shows was really printed; what it claims of values, limits, errors and frames holds."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import inspect
import ipaddress
import json
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

import corral.errors
from corral import Corral, ExecutionResult, Limits, Tool, define_tool, tool
from corral.errors import CorralError
from corral.guest import ArrayBuffer, FrameKind, FrameReader, decode_value
from corral.guest.frames import NO_NONCE
from corral.sandboxes import CPythonSandbox
from corral.sandboxes.monty import MontySandbox
from tests.docs.markdown import ROOT, Block, anchors, blocks, links, pages, table

pytestmark = pytest.mark.anyio

DOCS = ROOT / "docs"
# Its examples are of a command line that is tried in tests/cli.
OTHERS = {DOCS / "cli.md"}

ALL = [block for page in pages() if page not in OTHERS for block in blocks(page)]
PYTHON = [block for block in ALL if block.language == "python"]
SHOWN = sorted({block.title for block in PYTHON if block.title})


def following(block: Block) -> Block:
    """The next block of the same page."""
    return next(each for each in ALL if each.page == block.page and each.line > block.line)


# --- programs in Python


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_a_python_block_is_a_file_or_a_fragment(block: Block) -> None:
    if block.title is None:
        assert block.info.split() == ["python", "fragment"]
        compile(block.text, block.place, "exec", flags=0x2000)  # top-level await is allowed
    else:
        assert block.text == (ROOT / block.title).read_text(encoding="utf-8")


def test_every_file_of_docs_src_is_shown_somewhere() -> None:
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "docs_src").glob("*.py")}
    assert files <= set(SHOWN)
    assert "examples/quickstart.py" in SHOWN


@pytest.fixture(scope="module")
def printed() -> dict[str, list[Any]]:
    """The exit code, stdout and stderr of each file that is shown."""
    command = [
        sys.executable,
        "-X",
        "utf8",
        "-W",
        "error",
        "-m",
        "tests.docs.forks",
        *(str(ROOT / file) for file in SHOWN),
    ]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8", timeout=60 * len(SHOWN), check=True
    )
    return dict(zip(SHOWN, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("block", [block for block in PYTHON if block.title], ids=lambda block: block.place)
def test_a_file_prints_what_stands_below_it(block: Block, printed: dict[str, list[Any]]) -> None:
    code, stdout, stderr = printed[block.title or ""]
    assert (code, stderr) == (0, "")
    output = following(block)
    assert output.language == "text"
    assert output.text == stdout


EXTRAS = {
    "corral.bridges.http": "corral[http]",
    "corral.bridges.rates_redis": "corral[redis]",
    "corral.egress": "corral[egress]",
    "corral.integrations.mcp": "corral[mcp]",
    "corral.sources.mcp": "corral[mcp]",
    "corral.sources.openapi": "corral[openapi]",
    "fastapi": "pip install fastapi",
    "langchain_core": "corral[langchain]",
    "numpy": "pip install numpy",
    "mcp": "corral[mcp]",
    **{
        f"corral.integrations.{name.replace('-', '_')}": f"corral[{name}]"
        for name in ("anthropic", "google-adk", "langchain", "openai", "openai-agents", "pydantic-ai")
    },
}
_IMPORT = re.compile(r"^ *(?:from|import) ([\w.]+)", re.MULTILINE)
OF_PAGES = sorted({block.page for block in PYTHON if block.page.parent == DOCS} - {DOCS / "model.md"})


@pytest.mark.parametrize("page", OF_PAGES, ids=lambda page: page.name)
def test_a_page_says_what_its_examples_need_before_they_need_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block in (each for each in PYTHON if each.page == page):
        before = text[: text.index(block.text)].replace(",", "] corral[")
        for module in _IMPORT.findall(block.text):
            assert EXTRAS.get(module, "") in before, f"{block.place}: {module}"


def test_the_table_of_extras_has_them_all() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert sorted(row[0] for row in table(ROOT / "README.md", "extra")) == sorted(project["optional-dependencies"])


# --- programs in TypeScript


def stations() -> list[Tool]:
    spec = importlib.util.spec_from_file_location("stations", ROOT / "docs_src" / "stations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.TOOLS)


PROGRAMS = [block for block in ALL if block.page.name == "programs.md" and block.language in {"typescript", "markdown"}]


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.place)
async def test_a_program_gives_what_stands_below_it(block: Block) -> None:
    result = await Corral(tools=stations(), check=False).execute(block.text)
    expected = following(block)
    if expected.language == "json":
        assert (result.error, result.value) == (None, json.loads(expected.text))
    else:
        assert expected.language == "text"
        assert result.model_text() == expected.text.removesuffix("\n")


def test_programs_are_written_where_they_are_tested() -> None:
    assert {block.page.name for block in ALL if block.language in {"typescript", "ts"}} == {"programs.md"}


# --- values

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
VALUES = DOCS / "values.md"
LEAVING = table(VALUES, "in the program | in Python")
AWAITED = table(VALUES, "in the program's value | in Python")
REFUSED = table(VALUES, "in the program | message")
ARRIVING = table(VALUES, "a tool returns")


def python(expression: str) -> Any:
    return eval(expression, dict(NAMES))  # noqa: S307 - our own documentation


def described(value: Any) -> str:
    """Tells types, the sign of zero and NaN."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {described(each)}' for key, each in cast('dict[Any, Any]', value).items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(described, cast('list[Any]', value)))}]"
    return f"{type(value).__name__}({value!r})"


@pytest.fixture(scope="module")
def left() -> tuple[list[Any], list[Any]]:
    """What became of the values in the table: of a program, and as inputs of calls."""
    received: list[Any] = []
    expressions = ",\n".join(f"(() => ({row[0]}))" for row in LEAVING)
    result = Corral([define_tool(name="accept", execute=received.append)], check=False).execute_sync(
        f"const all = [\n{expressions}\n];\n"
        "for (const each of all) await tools.accept([each()]);\n"
        "return all.map((each) => each())"
    )
    return result.raise_for_error().value, [value for [value] in received]


@pytest.mark.parametrize("number", range(len(LEAVING)), ids=[row[0] for row in LEAVING])
def test_a_value_leaves_as_the_table_says(number: int, left: tuple[list[Any], list[Any]]) -> None:
    expected = described(python(LEAVING[number][1]))
    assert [described(values[number]) for values in left] == [expected, expected]


def test_promises_in_a_value_are_awaited_as_the_table_says() -> None:
    rows = ", ".join(row[0] for row in AWAITED)
    values = Corral(check=False).execute_sync(f"return [{rows}]").raise_for_error().value
    assert [described(value) for value in values] == [described(python(row[1])) for row in AWAITED]


@pytest.mark.parametrize("row", REFUSED, ids=[row[0] for row in REFUSED])
async def test_a_value_is_refused_as_the_table_says(row: list[str]) -> None:
    result = await Corral(check=False).execute(f"return ({row[0]})")
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("program_failed", row[1])


def ask(give: Tool) -> ExecutionResult:
    pairs = ",\n".join(f"() => [{row[1]}]" for row in ARRIVING)
    return Corral([give], check=False).execute_sync(
        f"const all = [\n{pairs}\n];\n"
        "for (const [number, expected] of all.entries()) {\n"
        "  console.log([await tools.give({ number })]);\n"
        "  console.log(expected());\n"
        "}"
    )


@pytest.fixture(scope="module")
def arrived() -> list[str]:
    @tool
    async def give(number: int):
        return python(ARRIVING[number][0])

    return [entry.text for entry in ask(give).raise_for_error().logs]


@pytest.mark.parametrize("number", range(len(ARRIVING)), ids=[row[0] for row in ARRIVING])
def test_a_value_arrives_as_the_table_says(number: int, arrived: list[str]) -> None:
    assert arrived[2 * number] == arrived[2 * number + 1]


async def test_none_is_undefined_only_where_nothing_is_declared() -> None:
    @tool
    async def nothing() -> None: ...

    @tool
    async def maybe() -> str | None: ...

    result = await Corral([nothing, maybe], check=False).execute(
        "return [typeof await tools.nothing(), await tools.maybe() === null]"
    )
    assert result.value == ["undefined", True]


# --- values of programs in Python

LEAVING_PYTHON = table(VALUES, "in a Python program | in Python")
REFUSED_PYTHON = table(VALUES, "in a Python program | message")
ARRIVING_PYTHON = table(VALUES, "of a tool")
LEAVING_SCIENCE = table(VALUES, "of NumPy or pandas | in Python")
REFUSED_SCIENCE = table(VALUES, "of NumPy or pandas | message")

[CLASSES] = [block.text for block in ALL if block.page == VALUES and block.heading == "From a Python program"]
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
CASES_LEAVING = [
    *((row, FULL, "cpython") for row in LEAVING_PYTHON),
    *((row, COMMON, "monty") for row in LEAVING_PYTHON if not row[2].startswith("CPython")),
    *((row, SCIENCE, "science") for row in LEAVING_SCIENCE),
]


class Engines:
    """An open Corral for each engine, in a thread with an event loop of its own; with what their programs sent."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        sandboxes: dict[str, Any] = {
            "cpython": CPythonSandbox(),
            "monty": MontySandbox(pool_size=1),
            "science": CPythonSandbox(packages=["numpy", "pandas"]),
        }
        tools = [define_tool(name="accept", execute=self.received.append), define_tool(name="give", execute=_give)]
        tools.append(define_tool(name="echo", execute=print))
        limits = Limits(memory_mb=128)
        self.corrals = {
            name: Corral(tools, sandbox=each, limits=limits, check=False) for name, each in sandboxes.items()
        }

    def run(self, engine: str, program: str) -> ExecutionResult:
        return self.corrals[engine].execute_sync(program, language="python")

    def left(self, engine: str, preamble: str, expressions: list[str]) -> tuple[list[Any], list[Any]]:
        """What becomes of values as the program's own, and as inputs of calls."""
        self.received.clear()
        made = "".join(f"    lambda: ({each}),\n" for each in expressions)
        program = (
            f"{preamble}\nmade = [\n{made}]\nfor each in made:\n"
            "    try:\n        await tools.accept([each()])\n"
            "    except ValueError as error:\n        await tools.accept([str(error)])\n"
            "result = [each() for each in made]\n"
        )
        return self.run(engine, program).raise_for_error().value, [value for [value] in self.received]


def _give(input: Any) -> Any:
    number: int = input["number"]
    return python(ARRIVING_PYTHON[number][0])


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    engines = Engines()
    with ExitStack() as stack:
        for each in engines.corrals.values():
            stack.enter_context(each)
        yield engines


@pytest.fixture(scope="module")
def left_python(engines: Engines) -> dict[str, dict[str, tuple[Any, Any]]]:
    """By engine and expression."""
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    for engine in engines.corrals:
        rows = [(row[0], preamble) for row, preamble, of in CASES_LEAVING if of == engine]
        expressions = [expression for expression, _ in rows]
        values, inputs = engines.left(engine, rows[0][1], expressions)
        found[engine] = dict(zip(expressions, zip(values, inputs, strict=True), strict=True))
    return found


@pytest.mark.parametrize("case", CASES_LEAVING, ids=lambda case: f"{case[2]}: {case[0][0]}")
def test_a_value_leaves_a_python_program_as_the_table_says(
    case: tuple[list[str], str, str], left_python: dict[str, dict[str, tuple[Any, Any]]]
) -> None:
    row, _, engine = case
    expected = described(python(row[1]))
    value, input = left_python[engine][row[0]]
    assert described(value) == expected
    if engine == "monty" and row[-1].startswith("Monty: not as an input"):
        assert input.startswith("InvalidArguments")
    else:
        assert described(input) == expected


CASES_REFUSED = [
    *((row, FULL, "cpython") for row in REFUSED_PYTHON),
    *((row, COMMON, "monty") for row in REFUSED_PYTHON if ".__iter__" not in row[0]),
    *((row, SCIENCE, "science") for row in REFUSED_SCIENCE),
]


@pytest.mark.parametrize("case", CASES_REFUSED, ids=lambda case: f"{case[2]}: {case[0][0]}")
def test_a_value_is_refused_of_a_python_program_as_the_table_says(
    case: tuple[list[str], str, str], engines: Engines
) -> None:
    row, preamble, engine = case
    error = engines.run(engine, f"{preamble}\nresult = {row[0]}\nresult").error
    assert error is not None
    assert (error.code, error.message) == ("program_failed", row[1])


@pytest.mark.parametrize("engine", ["cpython", "monty"])
def test_values_arrive_in_a_python_program_as_the_table_says(engine: str, engines: Engines) -> None:
    lines = [f"print(repr(await tools.give(number={number})))" for number in range(len(ARRIVING_PYTHON))]
    lines += [f"print(repr({row[1]}))" for row in ARRIVING_PYTHON]
    logs = [entry.text for entry in engines.run(engine, "\n".join(lines)).raise_for_error().logs]
    assert logs[: len(ARRIVING_PYTHON)] == logs[len(ARRIVING_PYTHON) :]
    assert len(logs) == 2 * len(ARRIVING_PYTHON)


# --- declarations, limits, errors, frames, links

SCHEMAS = table(DOCS / "declarations.md", "a schema")


@pytest.mark.parametrize("row", SCHEMAS, ids=[row[0] for row in SCHEMAS])
def test_a_schema_becomes_the_type_in_the_table(row: list[str]) -> None:
    schema = {"type": "object", "properties": {"v": json.loads(row[0])}, "required": ["v"]}
    declared = Corral([define_tool(name="t", input_schema=schema, execute=print)], check=False).declarations()
    without_comments = re.sub(r" *//.*", "", declared)
    assert re.search(rf"v: {re.escape(row[1])};? }}\): Promise", " ".join(without_comments.split()))


def test_every_limit_stands_in_the_table_with_its_default() -> None:
    shown = {row[0]: row[1] for row in table(DOCS / "limits.md", "limit")}
    defaults = {name: field.default for name, field in Limits.model_fields.items()}
    assert {name: type(defaults[name])(value) for name, value in shown.items()} == defaults


def test_the_memory_that_is_added_is_what_the_page_says() -> None:
    text = (DOCS / "limits.md").read_text(encoding="utf-8")
    deno, cpython = (
        (ROOT / "src/corral/sandboxes" / name).read_text(encoding="utf-8") for name in ("deno.py", "cpython.py")
    )
    options = (ROOT / "src/corral/sandboxes/framed/guest_files.py").read_text(encoding="utf-8")
    assert "_GARBAGE_MB = 96\n" in deno
    assert "VmData at ready + memory_mb + 96 MB" in text
    assert "_HEAP_RESERVE_MB = 32\n" in options
    assert "`memory_mb` + 32 MB" in text
    assert "_GARBAGE_MB = 8\n" in cpython
    assert "VmData of the server at ready + memory_mb + 8 MB" in text


def test_every_error_stands_in_the_table_with_its_code_and_its_branch() -> None:
    classes = [getattr(corral.errors, name) for name in corral.errors.__all__ if name != "error_class"]
    rows = [(row[0].removeprefix("— ").strip("`"), row[1]) for row in table(DOCS / "errors.md", "class")]
    assert sorted(rows) == sorted((each.__name__, each.code) for each in classes)
    branch = CorralError
    for row, (name, _) in zip(table(DOCS / "errors.md", "class"), rows, strict=True):
        found: type[CorralError] = getattr(corral.errors, name)
        if not row[0].startswith("—"):
            branch = found
        assert issubclass(found, branch)


def test_errors_in_a_python_program_are_also_the_classes_of_the_table() -> None:
    rows = table(DOCS / "errors.md", "a call raises")
    checks = [
        f"issubclass({name}, {each})"
        for name, also in rows
        if name != "NotAwaited"
        for each in re.findall(r"\w+Error", also)
    ]
    program = f"""
forgotten = tools.nothing(a=1)
try:
    forgotten + 1
except Exception as error:
    forgotten = type(error).__name__, isinstance(error, TypeError), isinstance(error, AttributeError)
[forgotten, {", ".join(checks)}]
"""
    assert Corral(sandbox="cpython", check=False).execute_sync(program, language="python").value == [
        ["NotAwaited", True, True],
        *([True] * len(checks)),
    ]


def test_monty_has_the_modules_of_the_page_and_no_others() -> None:
    [listed] = re.findall(r"In Monty: parts of (.*?)\. What", (DOCS / "python.md").read_text("utf-8"), re.DOTALL)
    names = [name for name in sorted(sys.stdlib_module_names) if not name.startswith("_")]
    tries = "".join(
        f"try:\n    import {name}\n    found.append('{name}')\nexcept ImportError:\n    pass\n" for name in names
    )
    result = Corral(sandbox="monty", check=False).execute_sync(f"found = []\n{tries}found", language="python")
    assert result.raise_for_error().value == re.findall(r"`(\w+)`", listed)
    assert f"{len(result.value)} modules of the standard library" in (DOCS / "python.md").read_text("utf-8")


def test_every_option_of_a_corral_is_described() -> None:
    options = [row[0] for row in table(DOCS / "quickstart.md", "option of `Corral`")]
    assert options == list(inspect.signature(Corral).parameters)


def test_every_field_of_a_result_is_described() -> None:
    text = (DOCS / "quickstart.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(ExecutionResult):
        assert f"`{field.name}`" in text


HEX = [block for block in ALL if block.language == "hex"]


@pytest.mark.parametrize("block", HEX, ids=lambda block: block.place)
def test_an_example_of_a_frame_is_one(block: Block) -> None:
    kind = next(kind for kind in FrameKind if kind == bytes.fromhex(block.text)[4])
    nonce = NO_NONCE if kind == FrameKind.READY else bytes(range(16))
    [frame] = FrameReader(nonce, {kind: 1000}).feed(bytes.fromhex(block.text))
    expected = following(block)
    assert expected.language == "json"
    assert frame.payload == expected.text.strip().encode()
    assert decode_value(frame.payload, tagged=frame.tagged) is not None
    assert frame.tagged == ("$" in expected.text)


def test_there_are_examples_of_frames_and_every_kind_is_named() -> None:
    assert len(HEX) >= 4
    rows = table(DOCS / "frames.md", "kind")
    assert {(int(row[0]), row[1]) for row in rows} == {(int(kind), kind.name) for kind in FrameKind}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [(page.parent / path).resolve() for link in links(page) if (path := link.partition("#")[0])]
    assert set(pages()) <= reached
