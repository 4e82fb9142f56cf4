"""Errors are reported at the line and column that the model wrote."""

from __future__ import annotations

import pytest

from corral.errors import ProgramRejected
from corral.programs import edits, prepare_typescript
from corral.types import Position
from tests.programs.conftest import Outcome, Run

# `⌖` marks where the error is; it is removed from the source.
FAILING = [
    "⌖boom()",
    "const a: number = 1; ⌖boom()",
    "const x = ⌖boom()",
    "const x = 1\n\n  ⌖boom()",
    "const f = <T,>(x: T): T => ⌖boom()\nf<string>('a')",
    "const é = '😀' as string; ⌖boom()",
    "type 😀 = 1".replace("😀", "X") + "; /* 😀é */ ⌖boom()",
    "import { b as c } from 'm'; ⌖boom(c)",
    "import a, { b } from 'm'; ⌖boom(a, b)",
    "export default async () => ⌖boom()",
    "export const f = 1; ⌖boom()",
    "Here it is:\n```ts\n  const a = 1;\n  ⌖boom(a)\n```",
    "> ```ts\n> ⌖boom()\n> ```",
    "if (true) { ⌖boom() }",
    "enum A { B }\nconst a: A = ⌖boom()",
    "enum A { B }\nfunction f(x: string): A { ⌖return boom() }\n\nf('a')",
    "const a = 1\r\n  ⌖boom()",
    "const a = 1\r  ⌖boom()",
    "const a = <any>1; ⌖boom()",
    "throw ⌖new TypeError('boom is not defined')",
    "module.exports = () => ⌖boom()",
    "let a = 1; a<!--a; a-->0; ⌖boom()",
    "'é😀'; let a = 1; a<!--a; ⌖boom()",
]


def _marked(source: str) -> tuple[str, Position]:
    before, _, after = source.partition("⌖")
    lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return before + after, Position(line=len(lines), column=len(lines[-1].encode("utf-16-le")) // 2 + 1)


@pytest.fixture(scope="module")
def outcomes(run: Run) -> dict[str, Outcome]:
    return dict(zip(FAILING, run([_marked(source)[0] for source in FAILING]), strict=True))


@pytest.mark.parametrize("source", FAILING)
def test_an_error_is_located_in_the_source(source: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[source]
    assert outcome.error is not None
    assert "boom is not defined" in outcome.error
    assert outcome.position == _marked(source)[1]


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [("const a = ⌖;", 1, 11), ("const a = 1\n  const 1b = ⌖2", 2, 9), ("\n\nreturn 1 +", 3, 11)],
)
def test_a_syntax_error_is_located_in_the_source(source: str, line: int, column: int, run: Run) -> None:
    (outcome,) = run([source.replace("⌖", "")])
    assert outcome.error is not None
    assert outcome.position is not None
    assert outcome.position.line == line


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("⌖}", "The `}` at line 1, column 1 closes nothing"),
        ("if (x) {\n  f(⌖]\n}", "The `]` at line 2, column 5 does not close the parenthesis `(` at line 2, column 4"),
        ("const é = ⌖{ a: [1, 2]", "The brace `{` at line 1, column 11 is never closed. Add the missing `}`."),
        ("```ts\nf⌖(1\n```", "The parenthesis `(` at line 2, column 2 is never closed"),
        ("const a = ⌖`x", "The template literal at line 1, column 11 is never closed. Add the missing backtick."),
        ("const a = `x⌖${1", "The template substitution `${` at line 1, column 13 is never closed"),
        ("1\n⌖/* open", "The comment `/*` at line 2, column 1 is never closed"),
        ("a\n⌖\0b", "NUL character at line 2, column 1"),
        ("{ ⌖import x from 'y' }", "The `import` at line 1, column 3"),
    ],
)
def test_a_rejection_says_what_and_where(source: str, message: str) -> None:
    marked, position = _marked(source)
    with pytest.raises(ProgramRejected) as caught:
        prepare_typescript(marked)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (position.line, position.column)


def test_places_in_what_was_added_belong_to_the_source_next_to_it() -> None:
    program = prepare_typescript("async () => 1")
    assert program.locate(1, 1) == Position(line=1, column=1)
    assert program.locate(99, 1) == Position(line=1, column=14)


LINES = ["f(1);", "'é😀' as string;", "", "// 😀é\u2028", "let x: Map<'é', 1>; f(x);"]


@pytest.mark.matrix("places are right in the gate; the work for a large text")
def test_a_text_is_read_once_however_many_places_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    program = prepare_typescript("f(1 as any); // é😀\n" * 24_000 + "f('é😀');" * 20_000)
    read: list[int] = []

    class Counting(edits.TextIndex):
        def __init__(self, text: bytes, line_end: bytes) -> None:
            read.append(len(text))
            super().__init__(text, line_end)

    monkeypatch.setattr(edits, "TextIndex", Counting)
    for line in range(2, 24_000, 5):
        assert program.locate(line, 3) == Position(line=line, column=3)
    for column in range(1, 100_000, 20):
        assert program.locate(24_001, column) == Position(line=24_001, column=column)
    assert len(read) <= 2


def test_lines_and_columns_and_offsets_agree() -> None:
    text = "\r\n".join(LINES)
    index = edits.TextIndex(text.encode())
    for at in range(len(text) + 1):
        offset = len(text[:at].encode())
        if text[at - 1 : at + 1] != "\r\n":
            position = index.position(offset)
            assert position == edits.Places(text.encode()).at(offset)
            assert index.offset(position.line, position.column) == offset
            assert index.units(offset) == len(text[:at].encode("utf-16-le")) // 2
    assert index.offset(1, 99) == len("f(1);\r\n")
    assert index.offset(99, 1) == len(text.encode())
