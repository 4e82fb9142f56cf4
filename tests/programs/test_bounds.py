"""No source is too deep or too odd to be answered, and in reasonable time."""

from __future__ import annotations

import random

import pytest

from corral.errors import ProgramRejected
from corral.programs import prepare_typescript
from tests.programs.conftest import Run

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


@pytest.mark.parametrize("name", DEEP)
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


@pytest.mark.parametrize("seed", range(300))
def test_garbage_is_prepared_or_rejected(seed: int) -> None:
    chosen = random.Random(seed)  # noqa: S311
    source = "".join(chosen.choices(PIECES, k=chosen.randrange(1, 200)))
    try:
        program = prepare_typescript(source)
    except ProgramRejected:
        return
    place = program.locate(chosen.randrange(1, 20), chosen.randrange(1, 200))
    assert place.line >= 1
    assert place.column >= 1
