"""No Python source is too deep, too odd or too large to be answered, and the work grows with its length."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from unittest.mock import AsyncMock

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.errors import ProgramRejected
from corral.jail.workers import WorkerError
from corral.programs import parsing_within, prepare_python
from corral.running import runtime
from corral.types import Language, Limits
from tests.census import with_rest
from tests.programs.running import run_python
from tests.work import calls_of, examples

CASES = Path(__file__).parents[1] / "cases"
ATTACKS = {
    case["id"]: case["code"].replace("${PORT}", "1").replace("${HOSTPID}", "1")
    for case in json.loads((CASES / "attacks.json").read_text(encoding="utf-8"))["attacks"]
    if case["language"] == "py"
}

DEEP = {
    "parentheses": "(" * 100_000 + ")" * 100_000,
    "open parentheses": "(" * 100_000,
    "brackets": "x = " + "[" * 100_000 + "]" * 100_000,
    "not": "not " * 50_000 + "1",
    "signs": "-" * 100_000 + "1",
    "lambdas": "lambda:" * 30_000 + "1",
    "sums": "1" + "+1" * 50_000,
    "chains": "a" + ".b()" * 30_000,
    "conditions": "1 if 1 else " * 20_000 + "1",
    "awaits": "await " * 30_000 + "x",
}


DEEP_IN_GATE = ("open parentheses", "signs", "sums", "chains", "conditions")


@pytest.mark.parametrize(
    "name", with_rest(DEEP, DEEP_IN_GATE, "the gate has each pass that bounds depth; the same with other syntax")
)
def test_a_source_that_is_too_deep_is_rejected(name: str) -> None:
    with pytest.raises(ProgramRejected, match="nested too deeply") as caught:
        prepare_python(DEEP[name])
    assert caught.value.line == 1


@pytest.mark.parametrize("source", ["(" * 199 + "42" + ")" * 199, "1" + "+1" * 41, "x = 42\n" + "if x:\n  x\n" * 500])
def test_depth_that_programs_have_is_accepted(source: str) -> None:
    assert run_python(source).value == 42


LARGE = {
    "lines": "x\n",
    "fences": "```py\nx\n```\n",
    "broken fences": "```py\nfoo(]\n```\n",
    "backslashes": "\\\n",
    "backslashes and a string with parts": "f''\\\n",
    "names of characters": "\\N{",
    "commands": "%a\n",
    "prompts": ">>> x\n",
    "typography": "“a” – ",
    "spaces": "a\u00a0\n",
    "early returns": "if x: return 1\n",
    "suites": "if x:\n\ty\n        z\n",
    "tools": "await tools.a()\n",
    "bindings": "for tools in x: tools.a\n",
    "imports": "from tools import a\n",
    "runners": "asyncio.run(x)\n",
    "functions": "async def f(): x\nf()\n",
    "arrows": "->await ",
    "tags": "<code>",
}


IN_THE_GATE = {"fences", "commands", "spaces", "tools", "functions", "tags"}


@pytest.mark.parametrize(
    "name",
    with_rest(LARGE, IN_THE_GATE, "a source for each pass is in the gate; more sources for the same passes"),
)
def test_the_work_grows_with_the_length_of_a_source_and_hardly_faster(name: str) -> None:
    """Calls grow fourfold. What parsers and regular expressions do shows in time only: the square is sixteenfold."""

    def prepare(characters: int) -> None:
        with suppress(ProgramRejected):
            prepare_python(LARGE[name] * (characters // len(LARGE[name].encode())))

    def seconds_of(characters: int) -> float:
        started = time.thread_time()
        prepare(characters)
        return time.thread_time() - started

    assert calls_of(lambda: prepare(12_000)) < 5 * calls_of(lambda: prepare(3_000))
    assert seconds_of(16_000) < 64 * seconds_of(4_000)


def test_a_source_that_takes_too_long_to_parse_is_rejected() -> None:
    with parsing_within(0.0), pytest.raises(ProgramRejected, match="takes too long to parse"):
        prepare_python("x = 1\n" * 1_000)


@pytest.mark.parametrize(
    ("language", "usual"),
    [
        ("python", "total = await tools.get(order_id=row['id'])\n"),
        ("typescript", "const total = await tools.get({orderId: 'x'})\n"),
    ],
)
def test_a_short_source_of_very_many_parts_is_read_by_a_worker(
    language: Language, usual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "run_in_worker", AsyncMock(side_effect=WorkerError("elsewhere")))
    for source in ("a;" * 1_000, usual * 150):
        anyio.run(runtime.prepare, source, language, Limits())
    with pytest.raises(ProgramRejected, match="elsewhere"):
        anyio.run(runtime.prepare, "a;" * 3_000, language, Limits())


def test_attacks_are_prepared_and_their_results_found() -> None:
    programs = {name: prepare_python(source) for name, source in ATTACKS.items()}
    told = {(name, each.code) for name, program in programs.items() for each in program.diagnostics}
    assert told <= {(name, "no_result") for name in ATTACKS}
    without_result = [name for name, program in programs.items() if "_corral_result = " not in program.code]
    assert [name for name in without_result if "result=" in ATTACKS[name]] == []


PIECES = [
    *"(){}[]`\"'/\\<>=;,:!?@#$%\n\r\t \x0c\u2028\u200bé😀x1“”‘’–…",
    *("'''", '"""', "```", "```py\n", ">>> ", "... ", "In [1]: ", "\n    ", "\n\t", "\\\n", ":=", "f'", "{x}"),
    *("import ", "from tools import ", "as ", "class A:", "def f():", "async ", "await ", "return ", "if x:", "else:"),
    *(
        "tools",
        "tools.a",
        "tools.a()",
        "asyncio.run(",
        "result = ",
        "main()",
        "lambda ",
        "for x in ",
        "print",
        "global ",
    ),
]


# The length is drawn first: lists alone are mostly short.
GARBAGE = st.integers(1, 119).flatmap(
    lambda length: st.lists(st.sampled_from(PIECES), min_size=length, max_size=length)
)


@given(GARBAGE.map("".join), st.integers(1, 20), st.integers(1, 200))
@settings(max_examples=examples(400))
def test_garbage_is_prepared_or_rejected(source: str, line: int, column: int) -> None:
    try:
        program = prepare_python(source)
    except ProgramRejected:
        return
    place = program.locate(line, column)
    assert place.line >= 1
    assert place.column >= 1


@given(st.text(max_size=200))
@settings(max_examples=examples(150))
def test_any_text_is_prepared_or_rejected(source: str) -> None:
    with suppress(ProgramRejected):
        assert prepare_python(source).source == source


NAMES = st.sampled_from(["a", "b", "größe", "result", "main"])
ATOMS = st.one_of(st.integers(0, 9).map(str), NAMES, st.text("ab \n'\"`“–#>", max_size=6).map(repr))
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"[{pair[0]}, {pair[1]}]"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} if {pair[1]} else 0)"),
        inner.map(lambda each: f"(lambda: {each})()"),
        inner.map(lambda each: f"[x for x in [{each}]]"),
    ),
    max_leaves=6,
)


def _indented(block: str) -> str:
    return "".join(f"    {line}\n" for line in block.splitlines())


SIMPLE = st.one_of(
    st.tuples(NAMES, EXPRESSIONS).map(lambda pair: f"{pair[0]} = {pair[1]}\n"),
    st.tuples(NAMES, EXPRESSIONS).map(lambda pair: f"note({pair[1]}); {pair[0]} = 1\n"),
    EXPRESSIONS.map(lambda each: f"note({each})\n"),
)
BLOCKS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(EXPRESSIONS, inner, inner).map(
            lambda part: f"if {part[0]}:\n{_indented(part[1])}else:\n{_indented(part[2])}"
        ),
        inner.map(lambda block: f"for x in [1, 2]:\n{_indented(block)}"),
        st.tuples(inner, inner).map(lambda part: f"try:\n{_indented(part[0])}except Exception:\n{_indented(part[1])}"),
        st.tuples(NAMES, inner).map(lambda part: f"def f_{part[0]}():\n{_indented(part[1])}f_{part[0]}()\n"),
    ),
    max_leaves=8,
)


CALLED = "from tools import a{}\nawait a{}()\n"


@pytest.mark.parametrize(
    "line",
    with_rest(
        ["from tools import a\n", "import tools.a as b{}\n", CALLED],
        [CALLED],
        "imports that are called are in the gate; other forms of imports",
    ),
)
def test_the_work_grows_with_the_number_of_imports_of_tools_and_no_faster(line: str) -> None:
    few, many = ("".join(line.replace("{}", str(each)) for each in range(count)) for count in (250, 1_000))
    assert calls_of(lambda: prepare_python(many)) < 5 * calls_of(lambda: prepare_python(few))


@given(BLOCKS, EXPRESSIONS, st.booleans())
@settings(max_examples=examples(150))
def test_a_program_without_anything_to_recover_keeps_its_meaning(block: str, last: str, returns: bool) -> None:
    head = "notes = []\ndef note(x):\n    notes.append(repr(x))\na = b = größe = result = main = 0\n"
    early = "if notes:\n    return None\n" if returns else ""
    value = f"[{last}, notes, a, b]"
    expected: dict[str, object] = {}
    error: Exception | None = None
    try:
        exec(compile(f"{head}{block}value = {value}", "x", "exec"), expected)  # noqa: S102
    except Exception as raised:
        error = raised
    ran = run_python(f"{head}{early}{block}{value}")
    assert type(ran.error) is type(error), ran.program.code
    if error is None:
        assert repr(ran.value) == repr(expected["value"]), ran.program.code
    assert ran.program.diagnostics == ()
