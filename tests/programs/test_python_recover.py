"""Finding the Python program in what a model wrote, and mending what is no Python in it."""

from __future__ import annotations

import pytest

from corral.errors import ProgramRejected
from corral.programs import prepare_python
from tests.programs.running import failures, run_python


def fenced(code: str, info: str = "python", run: str = "```") -> str:
    return f"{run}{info}\n{code}\n{run}\n"


LABELS = [
    *("python", "py", "python3", "py3", "ipython", "pycon", "none", ""),
    *("Python", " py", 'py title="main.py"', "{.python}", "py:main.py", "language-python", "python3.12"),
]

SOURCES = {
    # fences
    **{f"label {label!r}": fenced("return 42", label) for label in LABELS},
    "tildes": fenced("return 42", "py", "~~~"),
    "bare expression": fenced("40 + 2"),
    "prose around": f"Here:\n{fenced('x = 42')}Hope it helps!",
    "emoji around": f"Here 🎉:\n{fenced('return 42')}🎉",
    "in a numbered list": "1. Do it:\n\n   ```python\n   x = 41\n   if x:\n       x += 1\n   x\n   ```\n\n2. Done",
    "behind a bullet": "- ```py\n  return 42\n  ```",
    "quoted": "> ```py\n> a = 42\n> a\n> ```",
    "unclosed": "Here\n```py\nreturn 42",
    "closed on the last line of code": "```py\nreturn 42```\n",
    "longer fence": fenced("'''\n```\n'''\n42", "py", "````"),
    "fence in a docstring in a fence": fenced("'''\n```py\nfoo()\n```\n'''\n42"),
    "fence in a comment in a fence": fenced("# ```py\n# foo()\n# ```\n42"),
    "inside a markdown fence": fenced(f"hello\n{fenced('42')}", "markdown"),
    "in a tag": f"<code>\n{fenced('42')}</code>",
    "blank lines": "\n\n" + fenced("\n\nx = 42\n\n") + "\n\n",
    # several fences
    "two fences": f"{fenced('a = 41')}then\n{fenced('a + 1')}",
    "two fences and a parenthesis": f"{fenced('a = 42')}then\n{fenced('(a)')}",
    "functions in one, their call in the other": fenced("async def f():\n    return 42") + fenced("await f()"),
    "the same name twice": f"{fenced('a = 1')}{fenced('a = 42')}",
    "a fence that goes on with a suite": fenced("for a in [41]:\n    a += 1") + fenced("    result = a"),
    "two indented fences": "- a\n  ```py\n  a = 41\n  ```\n- b\n  ```py\n  a + 1\n  ```\n",
    "fences of two margins": "- a\n  ```py\n  a = 41\n  ```\n    - b\n      ```py\n      a + 1\n      ```\n",
    "a fence that was never closed before the next": "```py\na = 41\n```py\na + 1\n```",
    "other languages": fenced('{"a": 1}', "json")
    + fenced("42")
    + "Output:\n"
    + fenced("43", "")
    + fenced("ls", "bash"),
    "unlabelled output": "Look:\n" + fenced("return 42", "") + "Output:\n" + fenced("Result: 42 items!", ""),
    "program outside fences": "Input:\n" + fenced('{"a": 1}', "json") + "a = 42\na",
    # no Markdown at all
    "fence in a docstring": '"""\n```py\nreturn 1\n```\n"""\n42',
    "fence in a comment": "# ```py\n# return 1\n# ```\n42",
    # prose
    "paragraphs around": "Here is the program:\n\nasync def main():\n    return 42\n\nHope it helps!",
    "lines around": "Sure! Here's the code:\nx = 41\nx + 1\nThis returns the answer.",
    "comments that look like headings": "# Plan\n## Details\nx = 42\n# done\nx",
    "Markdown around": "# Plan\n\n1. First do it\n2. Then `return` it\n\na = 42\na\n\n**Note:** it works.",
    "language on the first line": "python\nreturn 42",
    "language and colon on the first line": "Python:\nreturn 42",
    "shebang": "#!/usr/bin/env python3\nreturn 42",
    "shebang and encoding": "#!/usr/bin/env python3\n# -*- coding: latin-1 -*-\nlen('é') + 41",
    "code tag": "<code>\nreturn 42\n</code>",
    "python tag": "<python>return 42</python>",
    "nested tags": "<pre><code>return 42</code></pre>",
    "tag in prose": "Here you go:\n<execute_python>\na = 42\na\n</execute_python>\nDone!",
    "inline code": "`return 42`",
    "inline code with three backticks": "```return 42```",
    "inline code with a label": "```python return 42```",
    # prompts and commands
    "prompts": ">>> a = 41\n>>> a + 1\n42\n",
    "prompts in a fence": fenced(">>> a = 41\n>>> if a:\n...     a += 1\n...\n>>> a\n42", "pycon"),
    "prompts and what was printed": ">>> print(1)\n1\n>>> 42",
    "prompts of IPython": "In [1]: a = 41\n\nIn [2]: if a:\n   ...:     a += 1\n\nIn [3]: a\nOut[3]: 42\n",
    "indented prompts": "    >>> a = 42\n    >>> a\n    42\n",
    "prompts with prose": "Try this:\n\n>>> a = 42\n>>> a\n42\n",
    "magic": "%matplotlib inline\n42",
    "cell magic": "%%time\n42",
    "shell": "!pip install requests\n42",
    "pip": "pip install requests\n42",
    "shell in a suite": "if True:\n    !ls\n42",
    "help": "?print\n42",
    # white space
    "CRLF": "```py\r\na = 41\r\nreturn a + 1\r\n```\r\n",
    "CRLF in a suite": "if True:\r\n    a = 42\r\na\r\n",
    "lone CR": "```py\ra = 41\rreturn a + 1\r```\r",
    "byte order mark": "\ufeffreturn 42",
    "byte order mark before a suite": "\ufeffif True:\n    a = 42\na",
    "byte order mark before a fence": "\ufeff" + fenced("return 42"),
    "form feed": "a = 41\n\x0c\nif a:\n    a += 1\n\x0ca",
    "indented as a whole": "    a = 41\n    if a:\n        a += 1\n    a\n",
    "indented by tabs as a whole": "\ta = 41\n\tif a:\n\t\ta += 1\n\ta\n",
    "indented in a fence": fenced("    a = 41\n\n    # a comment\n    a + 1"),
    "indented with a string": "    a = '''\n    b\n    '''\n    42 if a == '\\nb\\n' else a",
    "indented with a string that is not": "    a = '''\nb\n'''\n    42 if a == '\\nb\\n' else a",
    "tabs": "if True:\n\ta = 42\na",
    "tabs in one suite, spaces in the next": "if True:\n\ta = 41\nif a:\n    a += 1\na",
    "no-break space": "a\u00a0=\u00a042\na",
    "no-break spaces as indentation": "if True:\n\u00a0\u00a0\u00a0\u00a0a = 42\na",
    "zero-width space": "a =\u200b 42\u200b\na",
    "line separator": "a = 42;\u2028a",
    # typography
    "double quotes": "len(“é–’…”) + 38",
    "double quotes around others": "len(“it's “) + 37",
    "double quotes with quotes in them": 'len(“a"”) + 40',
    "single quotes": "len(‘ab’) + 40",
    "low quotes": "len(„ab”) + 40",
    "quotes with a prefix": "int(f“{42}”)",
    "minus sign": "43 − 1",
    "en dash": "43 – 1",
    "comparison": "42 if 1 ≤ 2 and 2 ≥ 1 and 1 ≠ 2 else 0",
    "ellipsis": "a = …\n42 if a is ... else 0",
    "an intact string beside a broken one": "len('a–b' + “c–d”) + 36",
    "full-width signs": "print（1，2）\n42",
}
KEPT = {
    "quotes in a string": ("'“a” – b…'", "“a” – b…"),
    "a comment": ("# “don't” – …\n'x'", "x"),
    "fences in a string": ("'''\n```py\n1\n```\n'''", "\n```py\n1\n```\n"),
    "prompts in a string": ("'''\n>>> 1\n1\n'''", "\n>>> 1\n1\n"),
    "commands in a string": ("'''\n!ls\n%time\n'''", "\n!ls\n%time\n"),
    "tabs in a string": ("'''\n\ta\n        b'''", "\n\ta\n        b"),
    "line separators in a string": ("'a\u2028b\u2029c\x85d'", "a\u2028b\u2029c\x85d"),
    "backticks in a string": ("'`a`'", "`a`"),
    "a letter beyond ASCII": ("größe = 1\ngröße", 1),
    "an f-string with its own quotes": ("a = {'b': 1}\nf'{a[\"b\"]}'", "1"),
    "a chained operator": ("3 % 2", 1),
    "an operator in the next line": ("(3\n% 2)", 1),
    "a program with an odd margin in brackets": ("a = [\n  1,\n 2]\na", [1, 2]),
    "an ellipsis": ("a = ...\na is ...", True),
}


def test_the_program_is_found() -> None:
    assert failures(dict.fromkeys(SOURCES.values(), 42)) == {}


def test_what_is_python_stays_as_it_is() -> None:
    assert failures(dict(KEPT.values())) == {}
    assert {name: prepare_python(source).diagnostics for name, (source, _) in KEPT.items()} == dict.fromkeys(KEPT, ())


@pytest.mark.parametrize("info", ["json", "typescript", "text"])
def test_a_source_with_only_other_languages_is_rejected(info: str) -> None:
    with pytest.raises(ProgramRejected, match=f"labelled {info}.*labelled python"):
        prepare_python(fenced("{}", info))


@pytest.mark.parametrize(
    ("source", "code", "line", "column"),
    [
        ("x = 1\n%matplotlib inline", "command_left_out", 2, 1),
        ("```py\nif True:\n    !ls -l\n```", "command_left_out", 3, 5),
        ("x = “a”", "typographic_characters", 1, 5),
        ("> ```py\n> x = 1 − 1\n> ```", "typographic_characters", 2, 9),
        ("return '\ud83d'", "lone_surrogate", None, None),
    ],
)
def test_a_repair_is_said(source: str, code: str, line: int | None, column: int | None) -> None:
    found = [each for each in prepare_python(source).diagnostics if each.severity == "warning"]
    assert [(each.code, each.line, each.column) for each in found] == [(code, line, column)]


BROKEN = [
    "x = ",
    "x = 1\n\ny = = 2\n\nz = 3",
    "if x:\npass",
    "def f(:\n    pass",
    "x = 'a",
    "f(1",
    "if True:\n    x = 1\n  y = 2",
    "x = 1\n    y = 2",
    "x = “a",
    "x² = 1",
    "print 'a'",
    "`a`",
    "x = 1 +\n# done",
    "Sorry, I cannot do that.",
    "async def f():\n    yield 1\n    return 2",
    "return 1\nyield 2",
    "x = '''a",
    "\\",
    "def f():\n    x = await y",
    "class A:\n    return 1",
]


@pytest.mark.parametrize("source", BROKEN)
def test_a_broken_program_is_left_to_the_engine(source: str) -> None:
    assert isinstance(run_python(source).error, SyntaxError)


def test_tabs_that_can_mean_two_things_are_left_to_the_engine() -> None:
    source = "if True:\n    if False:\n        x = 1\n\ty = 2"
    assert isinstance(run_python(source).error, TabError)


def test_a_broken_program_has_unknown_references() -> None:
    assert prepare_python("tools.a(").references == ((), True)
