"""No source is too deep or too odd to be answered, and in reasonable time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_sitter import Node, Tree

from corral.errors import ProgramRejected
from corral.programs import prepare_typescript
from corral.programs.syntax.typescript import parse, walk
from corral.programs.typescript import prepare as typescript
from corral.programs.typescript import strip
from tests.census import with_rest
from tests.programs.conftest import Run
from tests.work import examples

DEEP = {
    "parentheses": "(" * 100_000 + ")" * 100_000,
    "open parentheses": "(" * 100_000,
    "brackets": "[" * 100_000 + "]" * 100_000,
    "operators": "!" * 100_000 + "1",
    "arrows": "a=>" * 50_000 + "1",
    "templates": "`${" * 30_000,
    "sums": "1" + "+1" * 50_000,
    "chains": "a" + ".b()" * 30_000,
    "else if": "if(0){}" + "else if(0){}" * 20_000,
    "compiled": "enum A {}\n" + "(" * 5_000 + "1" + ")" * 5_000,
    "arrows in a broken program": "# " + "a=>" * 5_000 + "1",
    "operators in a broken program": "# " + "!" * 9_000 + "1",
    "new in a broken program": "# " + "new " * 9_000 + "a",
    "tags in a broken program": "<a>" * 30_000,
    "fences": "```ts\nfoo(\n```\n" * 3_000,
}


GATE = (
    "open parentheses",
    "arrows",
    "templates",
    "chains",
    "else if",
    "compiled",
    "operators in a broken program",
    "fences",
)


@pytest.mark.parametrize(
    "name", with_rest(DEEP, GATE, "the gate has each pass that bounds depth; the same with other syntax")
)
def test_a_source_that_is_too_deep_is_rejected(name: str) -> None:
    with pytest.raises(ProgramRejected) as caught:
        prepare_typescript(DEEP[name])
    assert caught.value.line is not None


def test_depth_that_programs_have_is_accepted(run: Run) -> None:
    sources = ["(" * 600 + "42" + ")" * 600, "enum A {}\n" + "(" * 600 + "42" + ")" * 600, "1" + "+1" * 600]
    assert [outcome.value for outcome in run(sources)] == [42, 42, 601]


PIECES = [
    *"(){}[]`\"'/\\<>=;,:!?@#$\n\r\t \u2028\u200bé😀x1",
    *("/*", "*/", "//", "```", "```ts\n", "=>", "${", "..."),
    *("import ", "export ", "default ", "as ", "enum ", "class ", "function ", "return ", "type "),
]


def test_the_type_of_an_assertion_is_looked_at_without_its_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    walked = 0

    def counting(root: Node) -> Iterator[Node]:
        nonlocal walked
        for node in walk(root):
            walked += 1
            yield node

    monkeypatch.setattr(strip, "walk", counting)
    prepare_typescript("const x = [" + "\n[1]," * 2_000 + "]" + " as any" * 300 + ";")
    assert walked < 1_000


FENCES = ["```ts\nx\n", "```\nx\n", "```ts\nfoo(\n```\n", "~~~ts\nx\n```\n", "```json\n{}\n```\n"]


@pytest.mark.parametrize(
    "fence",
    [
        pytest.param(
            fence,
            marks=[pytest.mark.matrix("open and broken fences are in the gate; other languages and marks")]
            if number in (1, 3, 4)
            else [],
        )
        for number, fence in enumerate(FENCES)
    ],
)
def test_fences_are_parsed_a_bounded_number_of_times(fence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def counting(text: bytes) -> Tree:
        parsed.append(len(text))
        return parse(text)

    monkeypatch.setattr(typescript, "parse", counting)
    source = fence * (40_000 // len(fence))
    with suppress(ProgramRejected):
        prepare_typescript(source)
    assert len(parsed) < 120
    assert sum(parsed) < 5 * len(source)


def test_a_word_before_many_slashes_is_read_once() -> None:
    assert prepare_typescript("// import " + "/" * 900 + "\n42").code.count("/") > 900


# The length is drawn first: lists alone are mostly short.
GARBAGE = st.integers(1, 199).flatmap(
    lambda length: st.lists(st.sampled_from(PIECES), min_size=length, max_size=length)
)


@given(GARBAGE.map("".join), st.integers(1, 20), st.integers(1, 200))
@settings(max_examples=examples(300))
def test_garbage_is_prepared_or_rejected(source: str, line: int, column: int) -> None:
    try:
        program = prepare_typescript(source)
    except ProgramRejected:
        return
    place = program.locate(line, column)
    assert place.line >= 1
    assert place.column >= 1
