"""Errors of Python programs are reported at the line and column that the model wrote."""

from __future__ import annotations

import pytest

from corral.errors import ProgramRejected
from corral.programs import prepare_python
from corral.types import Position
from tests.programs.running import run_python

# `⌖` marks where the error is; it is removed from the source.
FAILING = [
    "⌖boom()",
    "x = ⌖boom()",
    "x: int = ⌖boom()",
    "x = 1\n\nif x:\n    ⌖boom()",
    "x = 1; ⌖boom(); y = 2",
    "é = '😀'; ⌖boom()",
    "x = ('😀é', ⌖boom)",
    "# 😀é\u2028\nx = 1; ⌖boom()",
    "a, b = ⌖boom()",
    "x = [\n    1,\n    ⌖boom(),\n]",
    "return ⌖boom()",
    "if False:\n    return 1\nx = 1\n⌖boom()",
    "if False:\n    return 1\nif True:\n    '😀'; x = ⌖boom()\nreturn x",
    "if False:\n    return 1\nx: int = ⌖boom()",
    "x = 1\nif False:\n    return 1\nx = '''\n'''; ⌖boom()",
    "async def main():\n    return ⌖boom()",
    "import asyncio\nasync def main():\n    ⌖boom()\nasyncio.run(main())",
    "import asyncio\nasyncio.run(⌖boom())",
    "import sys\nsys.exit(⌖boom())",
    "from tools import a, b as c; ⌖boom()",
    "import tools; ⌖boom()",
    "main = lambda: ⌖boom()",
    "Here it is:\n```py\nx = 1\n⌖boom(x)\n```",
    "- Here:\n  ```py\n  x = 1\n  ⌖boom(x)\n  ```",
    "> ```py\n> ⌖boom()\n> ```",
    ">>> x = 1\n>>> ⌖boom()",
    "In [1]: if True:\n   ...:     ⌖boom()",
    "%time\n⌖boom()",
    "    x = 1\n    ⌖boom(x)",
    "x = “é😀”; ⌖boom()",
    "x = 2 − 1; ⌖boom()",
    "x = …; ⌖boom()",
    "\ufeffx = 1; ⌖boom()",
    "\ufeff⌖boom()",
    "x = 1\r\n⌖boom()",
    "x = 1\r⌖boom()",
    "x = 1\x0c\n\x0c⌖boom()",
    "assert True, 'x'\n⌖raise ValueError('boom')",
]


def _marked(source: str) -> tuple[str, Position]:
    before, _, after = source.partition("⌖")
    lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return before + after, Position(line=len(lines), column=len(lines[-1].encode("utf-16-le")) // 2 + 1)


@pytest.mark.parametrize("source", FAILING)
def test_an_error_is_located_in_the_source(source: str) -> None:
    marked, position = _marked(source)
    ran = run_python(marked)
    assert "boom" in str(ran.error), ran.program.code
    assert ran.position == position


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = = 1", 1),
        ("x = 1\nif x\n    y", 2),
        ("```py\nx = 1\nx +\n```", 3),
        ("    x = 1\n    y = )", 2),
        (">>> x = )", 1),
    ],
)
def test_a_syntax_error_is_located_in_the_source(source: str, line: int) -> None:
    ran = run_python(source)
    assert isinstance(ran.error, SyntaxError)
    assert ran.position is not None
    assert ran.position.line == line


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n⌖\0b", "NUL character at line 2, column 1"),
        ("x = " + "(" * 200 + "⌖(" + ")" * 201, "The program is nested too deeply at line 1, column 205."),
        ("tools.a()\n".replace("tools", "⌖tools"), "`await tools.a(...)`"),
        ("'😀'; ⌖tools.a()", "tools.a(...) at line 1, column 7 is not awaited"),
        ("- x\n  ```py\n  if True:\n      ⌖tools.a()\n  ```", "at line 4, column 7 is not awaited"),
        (">>> x = ⌖tools.a()['b']", "at line 1, column 9 is not awaited"),
    ],
)
def test_a_rejection_says_what_and_where(source: str, message: str) -> None:
    marked, position = _marked(source)
    with pytest.raises(ProgramRejected) as caught:
        prepare_python(marked)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (position.line, position.column)


def test_places_in_what_was_added_belong_to_the_source_next_to_it() -> None:
    program = prepare_python("x = 1\nif x: return x\ny = 2\nx, y")
    lines = program.code.split("\n")
    assert lines[1:3] == ["async def _corral_program():", "        global _corral_result, y"]
    assert program.locate(2, 1) == Position(line=2, column=1)
    assert program.locate(3, 9) == Position(line=2, column=1)
    assert program.locate(4, 9) == Position(line=2, column=1)
    assert program.locate(len(lines), 1) == Position(line=4, column=5)
