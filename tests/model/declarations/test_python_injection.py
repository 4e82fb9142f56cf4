"""Whatever a schema's texts and names contain, they stay texts and names in Python too."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from io import StringIO
from tokenize import COMMENT
from tokenize import generate_tokens as tokenize

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.model import declare_python
from corral.types import ToolName
from tests.model.declarations.checker import declare, errors_of
from tests.model.declarations.compiler import Shape
from tests.model.declarations.test_injection import EVIL, schema_full_of
from tests.work import examples

EVIL_IN_PYTHON = [
    *EVIL,
    '"""',
    '""""',
    '"""""""',
    'ends with "',
    'ends with ""',
    '"""\nevil: int\n"""',
    '\\"""',
    "ends with \\",
    "\\N{BULLET} \\x41 \\u0041",
    "'''",
    "# type: ignore",
    "type: ignore",
    "pyright: basic, reportUndefinedVariable=false",
    "see # pyright: ignore",
    "##type:ignore[x]",
    "ty: ignore",
    "\x0cevil: int",
    "\revil: int",
    "\nevil: int",
    "{evil}",
    "evil: int\nclass tools: ...",
    "__import__('os')",
    "class",
    "None",
    "self",
    "__mangled",
    "ﬁ",
    "str",
    "Literal",
    "tools",
    "🦀\U000e0001",
]


def everything_full_of(text: str) -> Shape:
    return Shape(description=text, input_schema=schema_full_of(text), output_schema=schema_full_of(text))


def test_no_text_breaks_out_of_its_place() -> None:
    stubs = declare(**{f"t{position}": everything_full_of(text) for position, text in enumerate(EVIL_IN_PYTHON)})
    in_stubs, in_program = errors_of(f"{stubs}evil\n", "from stubs import tools\nevil\ntools.evil\n")
    assert list(in_stubs) == [stubs.count("\n") + 1]
    assert list(in_program) == [2, 3]
    assert not any(character in stubs for character in "\u2028\u2029\u202e\u2066\x00\x07\x0c\x1b\x7f\x85\r\U000e0001")


def definitions(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ImportFrom(module=str(module)):
                yield f"from {module}"
            case ast.ClassDef() | ast.AsyncFunctionDef():
                yield type(node).__name__
            case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
                yield "TypeAlias"
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypedDict"))):
                yield "TypedDict"
            case _:
                yield ast.unparse(node)


def test_descriptions_are_docstrings_to_the_letter() -> None:
    for text in EVIL_IN_PYTHON:
        tree = ast.parse(declare(tool=Shape(description=text, output_schema={"type": "null", "description": text})))
        [method] = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]
        found = ast.get_docstring(method) or ""
        visible = [
            "".join(each if each.isprintable() else " " for each in line)
            for line in inspect.cleandoc(text).splitlines()
        ]
        for line in visible:
            assert line.strip() in found


def test_no_comment_directs_a_type_checker() -> None:
    stubs = declare(tool=everything_full_of("x # type: ignore"), other=everything_full_of("pyright: basic"))
    comments = [token.string[1:] for token in tokenize(StringIO(stubs).readline) if token.type == COMMENT]
    assert len(comments) > 10
    assert [each for each in comments if not each.startswith(":") or "# type:" in each] == []


ANY_TEXT = st.text(st.characters() | st.sampled_from("\"'\\#:\n\r\x0c{}()[] =,.$_abc"), max_size=12)


@given(ANY_TEXT)
@settings(max_examples=examples(150), deadline=None)
def test_any_text_leaves_the_syntax_alone(text: str) -> None:
    tree = ast.parse(declare(tool=everything_full_of(text)))
    allowed = {"from typing", "from typing_extensions", "ClassDef", "TypeAlias", "TypedDict", "codemode = tools"}
    assert set(definitions(tree.body)) <= allowed
    [tools] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "tools"]
    assert list(definitions(tools.body)) == ["AsyncFunctionDef"]


@given(ANY_TEXT, ANY_TEXT)
@settings(max_examples=examples(60), deadline=None)
def test_any_names_of_tools_leave_the_syntax_alone(namespace: str, name: str) -> None:
    stubs = declare_python({ToolName(namespace or None, name): Shape(description=name), ToolName(None, "t"): Shape()})
    tree = ast.parse(stubs)
    assert set(definitions(tree.body)) == {"from typing", "ClassDef", "codemode = tools"}
