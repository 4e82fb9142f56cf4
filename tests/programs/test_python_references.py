"""Which tools a Python program may call, as its source tells: named where that is sure, computed where it is not."""

from __future__ import annotations

import pytest

from corral.errors import ProgramRejected
from corral.guest.python.failures import failure_classes
from corral.programs import prepare_python
from corral.programs.python.imports import ERRORS
from corral.types import ToolReference

SURE = {
    "await tools.add(a=1)": "add",
    "await codemode.github.list_issues()": "github.list_issues",
    "await tools.b(); await tools.a(); await tools.b()": "b a",
    "await tools . a()": "a",
    "x = tools.add\nawait x()": "add",
    "gh = tools.github\nawait gh.list()": "github",
    "list(map(tools.add, [1]))": "add",
    "f'{await tools.add()}'": "add",
    "await tools.a.b.c()": "a.b",
    "async def main():\n    return await tools.add()": "add",
    "async def main(tools):\n    return await tools.add()": "add",
    "async def main(api):\n    return await api.add()": "add",
    "lambda api: api.add()": "add",
    "from tools import add, sub as minus": "add sub",
    "from tools.github import list_issues": "github.list_issues",
    "import tools\nawait tools.add()": "add",
    "from tools import *\nprint(await add(), await github.list_issues())": "add github",
    "from tools import *\nx = sorted(await ls())\nawait open(), await asyncio.sleep(0)": "ls open",
    "from tools.github import *\ndef f(a: Issue) -> None: ...\nawait list_issues()": "github.list_issues",
    "from tools import *": "",
    "from corral import ToolError as E, tools\nawait tools.add()": "add",
    "import tools as t\nawait t.add()": "add",
    "from codemode import tools\nawait tools.add()": "add",
    "x = {'tools': 1}; x['tools']; 'tools.a'  # tools.b": "",
    "x = f(tools=1)": "",
    "a.tools.x": "",
    "import a.tools": "",
    "from a import b": "",
    "my_tools.x; tools_2.y": "",
    "def f(tools):\n    return tools.pop()\nawait tools.add(x=f([]))": "add",
    "f = lambda tools: tools.pop()\nawait tools.add(x=f([]))": "add",
    "[tools.x for tools in [1]]\nawait tools.add()": "add",
    "def f():\n    tools = []\n    tools.pop()\nf()\nawait tools.add()": "add",
    "[tools for tools in await tools.list()]": "list",
    "def f(tools=None, x=tools.add):\n    return tools.pop()\nf()": "add",
    "@tools.wrap\ndef f(tools):\n    return tools.pop()\nf()": "wrap",
    "if __name__ == '__main__':\n    await tools.add()": "add",
    "class A:\n    def __init__(self):\n        self.x = 1\nA()": "",
    "": "",
}
UNSURE = {
    "x = tools": "",
    "getattr(tools, 'a')": "",
    "tools['a']": "",
    "dir(tools)": "",
    "f(tools)": "",
    "[tools]": "",
    "tools()": "",
    "tools.__class__": "",
    "tools = 1\ntools.a": "",
    "for tools in []: pass\ntools.a": "",
    "del tools": "",
    "def f():\n    global tools\n    tools = 1\ntools.a": "",
    "class A:\n    tools = 1\n    def f(self): return tools.a": "",
    "def f(x=tools): return x.a": "",
    "import tools as t\nt": "",
    "globals()['tools']": "",
    "eval('tools')": "",
    "import sys\nsys.modules['__main__']": "",
    "import __main__\n__main__.x": "",
    "(lambda: 0).__globals__": "",
    "import inspect": "",
    "async def main(api):\n    return api": "",
    "async def main(api):\n    api = []\n    return api.add": "",
    "ｔools.add": "",
    "ｅval('x'); tools.add": "add",
}


def named(source: str) -> tuple[str, bool]:
    references = prepare_python(source).references
    assert references is not None
    return " ".join(each.path for each in references.named), references.computed


def test_what_is_spelled_out_is_named() -> None:
    assert {source: named(source) for source in SURE} == {source: (names, False) for source, names in SURE.items()}


def test_what_is_not_spelled_out_is_computed() -> None:
    assert {source: named(source) for source in UNSURE} == {source: (names, True) for source, names in UNSURE.items()}


def test_a_name_in_other_letters_is_the_same_name() -> None:
    assert named("await tools.ａdd()") == ("add", False)


def test_a_reference_is_where_it_first_stands() -> None:
    references = prepare_python("```py\nx = '😀', tools.b\nawait tools.a(x=tools.b)\n```").references
    assert references is not None
    assert references.named == (ToolReference("b", 2, 17), ToolReference("a", 3, 13))


@pytest.mark.parametrize("source", ["tools.a\n" * 30_000, "".join(f"tools.a{n}\n" for n in range(2_000))])
def test_a_program_that_is_too_large_to_be_looked_through_is_computed(source: str) -> None:
    references = prepare_python(source).references
    assert references is not None
    assert references.computed


def test_the_errors_that_programs_may_import_are_those_that_they_have() -> None:
    assert failure_classes().keys() == ERRORS


def test_a_second_star_is_refused_since_nothing_says_whose_a_name_is() -> None:
    with pytest.raises(ProgramRejected, match=r"A second `import \*` of tools at line 2"):
        prepare_python("from tools.a import *\nfrom tools.b import *\nawait x()")
