"""What a Python program's value is, in every shape that models write."""

from __future__ import annotations

from typing import Any

import pytest

from corral.programs import prepare_python
from tests.programs.running import failures, run_python

VALUE_42 = [
    # expressions
    "42",
    "42;",
    "x = 41\nx + 1",
    "x = 41\nx + 1  # the end",
    "x = 41; x + 1",
    "await tools.answer()",
    "await codemode.answer()",
    "(await tools.answer())",
    "(\n    40\n    + 2\n)",
    "42\n\n\ndef later():\n    return 1\n",
    "42\nimport os\n",
    "42\npass",
    "42\n'''The answer.'''",
    "'''The answer.'''\n42",
    "x = [41]\nx[0] + 1",
    "sum(x for x in (20, 22))",
    "42 if True else 0",
    "(lambda: 42)()",
    "import asyncio\n(await asyncio.gather(tools.answer(), tools.answer()))[0]",
    # assignments
    "x = 42",
    "x = y = 42",
    "x: int = 42",
    "x = 40\nx += 2",
    "result = 42",
    "result = await tools.answer()",
    "result = await tools.answer()\nprint(result)",
    "result = 42\nfor x in range(3):\n    pass",
    "for x in range(43):\n    result = x",
    "while True:\n    result = 42\n    break",
    "result = 0\nfor x in [42]:\n    if x:\n        result = x",
    "result = 42\nprint('done')",
    "result = 42\nprint('done')\n'''The end.'''",
    "output = 42\nprint(output)",
    "answer = 42\nfor x in []:\n    pass",
    "with open('/dev/null') as f:\n    result = 42",
    "total = 0\nfor x in [20, 22]:\n    total += x\ntotal",
    "class A:\n    x = 0\na = A()\na.x = 42",
    "result = 42\nif False:\n    print('x')",
    "result = 42\nif False:\n    result = 41",
    "_ = 1\nresult = 42\n_ = 2",
    "(x := 42)",
    "result = 42\nx = 1\ndel x",
    # branches
    "if True:\n    42\nelse:\n    0",
    "if 0:\n    1\nelif 1:\n    42\nelse:\n    3",
    "if True: 42",
    "if True:\n    x = 1\n    if x:\n        42\n    else:\n        0\nelse:\n    1",
    "try:\n    42\nexcept Exception:\n    0",
    "try:\n    await tools.fail()\nexcept Exception as error:\n    42",
    "try:\n    await tools.fail()\nexcept ValueError as error:\n    x = 42",
    "try:\n    x = 1\nexcept Exception:\n    0\nelse:\n    42",
    "try:\n    42\nfinally:\n    0",
    "try:\n    raise ExceptionGroup('x', [TypeError()])\nexcept* TypeError as e:\n    result = 42",
    "with open('/dev/null') as f:\n    42",
    "import contextlib\nasync with contextlib.AsyncExitStack() as stack:\n    42",
    "match 1:\n    case 1:\n        42\n    case _:\n        0",
    "match {'a': 42}:\n    case {'a': x}: x",
    "result = 42\nmatch 3:\n    case 1:\n        0",
    "result = 0\ntry:\n    result = 42\nexcept Exception as e:\n    print(e)",
    "if __name__ == '__main__':\n    42",
    # return
    "return 42",
    "x = 41\nreturn x + 1",
    "return(42)",
    "return 42\n",
    "if True:\n    return 42\nelse:\n    return 0",
    "if True:\n    return 42\nx = 1\nreturn x",
    "for x in [1, 42]:\n    if x > 1:\n        return x\nreturn 0",
    "try:\n    return await tools.answer()\nexcept Exception:\n    return 0",
    "try:\n    return 42\nexcept Exception:\n    x = 1\nelse:\n    x = 2",
    "try:\n    return 42\nfinally:\n    x = 1",
    "with open('/dev/null') as f:\n    return 42",
    "if False:\n    return 0\n42",
    "if False:\n    return 0\nx = 42",
    "if False:\n    return 0\nresult = 42\nprint('x')",
    "if False:\n    return 0\nresult = 42\nfor x in []: pass",
    "return 42\ndef later():\n    pass",
    "if False:\n    return 1\ncount = 0\ndef add():\n    global count\n    count += 42\nadd()\nreturn count",
    "if False: return 1\nx: int = 42\ndef f():\n    return x\nreturn f()",
    "if False: return 1\nx: int\nx = 42\nreturn globals()['x']",
    "from math import *\nif False:\n    return 1\nreturn int(sqrt(1764))",
    "from __future__ import annotations\nif False:\n    return 1\nreturn 42",
    "if False:\n    return 1\nclass A:\n    x = 42\n    def get(self):\n        return A.x\nreturn A().get()",
    "if False:\n    return 1\nimport os.path, json as j\ndef f():\n    return os.path and j and 42\nreturn f()",
    "if False:\n    return 1\ntext = '''a\nb\n'''\nreturn 42 if text == 'a\\nb\\n' else text",
    'if False:\n    return 1\ntext = f"""a\n{1 + 41}\n"""\nreturn int(text.split()[1])',
    "if False:\n\treturn 1\nif True:\n\tx = 42\nreturn x",
    "if False:\n    return 1\nx = [\n1,\n  42,\n]\nreturn x[-1]",
    "if False:\n    return 1\nx = 40 + \\\n2\nreturn x",
    "if False:\n    return 1\n# a comment\n\n   # another\nreturn 42",
    "if False:\n    return 1\nfor i, (a, *b) in enumerate([(1, 41)]):\n    pass\ndef f():\n    return a + b[0] + i\nreturn f()",
    "if False:\n    return 1\nwith open('/dev/null') as f, open('/dev/null') as g:\n    pass\ndef h():\n    return f.closed and g.closed and 42\nreturn h()",
    "if False:\n    return 1\nif (n := 42) > 1:\n    pass\ndef h():\n    return n\nreturn h()",
    "if False:\n    return 1\nmatch [41, 1]:\n    case [a, b]:\n        pass\ndef h():\n    return a + b\nreturn h()",
    "if False:\n    return 1\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n    x = 42\nreturn x",
    "x = 1; y = 41\nif x: return x + y\nreturn 0",
    "x = 1; return 42\ny = 2",
    # functions
    "async def main():\n    return 42",
    "def main():\n    return 42",
    "async def main():\n    return await tools.answer()",
    "async def main():\n    return 42\nmain()",
    "async def main():\n    return 42\nmain",
    "async def main():\n    return 42\nawait main()",
    "async def main():\n    return 42\nx = await main()",
    "async def main():\n    return 42\nx = main()",
    "async def main(tools):\n    return await tools.answer()",
    "async def main(api):\n    return await api.answer()",
    "async def main(tools=None):\n    return await tools.answer()",
    "async def main(limit=42):\n    return limit",
    "async def main(*, tools):\n    return await tools.answer()",
    "async def main(*args):\n    return 42",
    "def main(tools):\n    return tools.answer()",
    "async def solve_it():\n    return 42",
    "LIMIT = 42\nasync def solve_it():\n    return LIMIT",
    "import json\nLIMIT = 42\n\nasync def main():\n    return LIMIT\n",
    "async def helper():\n    return 41\nasync def main():\n    return await helper() + 1",
    "async def run():\n    return await helper() + 1\nasync def helper():\n    return 41",
    "async def collect():\n    return await helper() + 1\nasync def helper():\n    return 41",
    "print('start')\nasync def main():\n    return 42",
    "main = lambda: 42",
    "main = lambda tools: tools.answer()",
    "lambda: 42",
    "lambda tools: tools.answer()",
    "(lambda: 42)",
    "@staticmethod\ndef main():\n    return 42",
    # event loops
    "import asyncio\nasync def main():\n    return 42\nasyncio.run(main())",
    "import asyncio\nasync def main():\n    return 42\nasyncio.run(main(), debug=True)",
    "import asyncio\nasync def main():\n    return 42\nresult = asyncio.run(main())",
    "import asyncio\nasync def main():\n    return 42\nresult = asyncio.run(main())\nprint(result)",
    "import asyncio\nasync def main():\n    return [42]\nasyncio.run(main())[0]",
    "import asyncio\nasync def main():\n    return 42\nif __name__ == '__main__':\n    asyncio.run(main())",
    "import asyncio\nasync def main():\n    return 42\nif __name__ == '__main__':\n    result = asyncio.run(main())\n    print(result)",
    "import asyncio\nasync def main():\n    return 42\nif '__main__' == __name__: asyncio.run(main())",
    "from asyncio import run\nasync def main():\n    return 42\nrun(main())",
    "import asyncio\nasync def main():\n    return 42\nawait asyncio.run(main())",
    "import asyncio\nasync def main():\n    return 42\nloop = asyncio.get_event_loop()\nloop.run_until_complete(main())",
    "import asyncio\nasync def main():\n    return 42\nloop = asyncio.get_event_loop()\nx = loop.run_until_complete(main())\nloop.close()\nx",
    "import asyncio\nasync def main():\n    return 42\nasyncio.get_event_loop().run_until_complete(main())",
    "import anyio\nasync def main():\n    return 42\nanyio.run(main)",
    "import trio\nasync def main(n):\n    return n\ntrio.run(main, 42)",
    "import asyncio\nasync def main():\n    return 42\ntry:\n    asyncio.run(main())\nexcept Exception as e:\n    print(e)",
    "import sys\nasync def main():\n    return 42\nif __name__ == '__main__':\n    sys.exit(main())",
    "import sys\ndef main():\n    return 42\nif __name__ == '__main__':\n    sys.exit(main())",
    "def main():\n    return 42\nraise SystemExit(main())",
    "import asyncio\nasyncio.run(tools.answer())",
    "import asyncio\nasync def f(): return 42\nawait asyncio.create_task(f())",
    "import asyncio\nimport nest_asyncio\nnest_asyncio.apply()\nasync def main():\n    return 42\nasyncio.run(main())",
    # imports of the tools
    "import tools\nawait tools.answer()",
    "import tools, json\njson.loads('42')",
    "import tools as t\nawait t.answer()",
    "from codemode import tools\nawait tools.answer()",
    "from tools import answer\nawait answer()",
    "from tools import answer as a, echo\nawait a()",
    "from tools import (\n    answer,\n    echo,\n)\nawait answer()",
    "async def main():\n    from tools import answer\n    return await answer()",
    "import codemode\nawait codemode.answer()",
]  # fmt: skip

OTHER_VALUES: list[tuple[str, Any]] = [
    ("", None),
    ("  \n\t\n", None),
    ("# nothing", None),
    ('"hello"', "hello"),
    ('"""hello"""', "hello"),
    ('x = 1\n"""the end"""', 1),
    ("{'a': 1}", {"a": 1}),
    ("{'a': 1}\n", {"a": 1}),
    ("1, 2", (1, 2)),
    ("1,", (1,)),
    ("a, b = 1, 2", (1, 2)),
    ("a, *b = 1, 2, 3", (1, 2, 3)),
    ("(a, b) = 1, 2", (1, 2)),
    ("[a, b] = 1, 2", [1, 2]),
    ("a = 1, 2", (1, 2)),
    ("d = {}\nd['a'] = 1", {"a": 1}),
    ("d = {'a': {}}\nd['a']['b'] = 1", {"a": {"b": 1}}),
    ("d = {'a': 1}\nd['a'] += 1", {"a": 2}),
    ("if 1: a, b = 1, 2", (1, 2)),
    ("print('hi')\n3", 3),
    ("print('hi')", None),
    ("def f(a, b): return a", None),
    ("items = []\nfor x in range(2): items.append(x)", None),
    ("result = []\nfor x in range(2): result.append(x)", [0, 1]),
    ("result = []\nresult.append(1)", [1]),
    ("result = {}\nresult.update(a=1)", {"a": 1}),
    ("result = {}\nresult['a'] = 1", {"a": 1}),
    ("if False:\n    result = 1", None),
    ("for result in []:\n    pass", None),
    ("None", None),
    ("result = 1\nNone", None),
    ("return", None),
    ("return None", None),
    ("return 1, 2", (1, 2)),
    ("if True:\n    return\nx = 1", None),
    ("result = 1\nx = 2", 2),
    ("result = 1\nawait tools.log(x=1)", {"x": 1}),
    ("f'{1 + 1}'", "2"),
    ("...", None),
    ("x: int", None),
    ("assert True", None),
    ("import math", None),
    ("class A: pass", None),
    ("await tools.github.list_issues(repo='a')", {"repo": "a"}),
    ("await tools.echo({'a': 1})", {"a": 1}),
    ("[await tools.echo(n=n) for n in range(2)]", [{"n": 0}, {"n": 1}]),
    ("async def main():\n    print('ran')\nmain()\n7", 7),
    ("async def main():\n    return 7\nprint(main())", None),
]


def test_a_program_of_any_shape_has_its_value() -> None:
    assert failures(dict.fromkeys(VALUE_42, 42)) == {}


def test_a_value_is_what_the_source_says() -> None:
    assert failures(dict(OTHER_VALUES)) == {}


def test_a_coroutine_that_is_printed_is_awaited() -> None:
    assert run_python("async def main():\n    return 7\nprint(main())").printed == "7\n"


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("print(1)", "call of print"),
        ("x = [1]\nfor a in x:\n    print(a)", "it ends with a loop"),
        ("# nothing", "no statement"),
        ("import os", "no statement"),
        ("assert True", "a statement without a value"),
        ("items = []\nitems.append(1)", "a statement without a value"),
    ],
)
def test_a_program_without_a_result_says_how_to_have_one(source: str, advice: str) -> None:
    (diagnostic,) = prepare_python(source).diagnostics
    assert (diagnostic.severity, diagnostic.code) == ("info", "no_result")
    assert advice in diagnostic.message


@pytest.mark.parametrize(
    "source",
    [
        "return 1",
        "if x:\n    return 1\nfor y in z: pass",
        "raise ValueError('x')",
        "f()",
        "x = 1",
        "result = 1\nprint(1)",
    ],
)
def test_a_program_with_a_result_gets_no_advice(source: str) -> None:
    assert prepare_python(source).diagnostics == ()


def test_names_that_a_wrapped_program_binds_stay_those_of_the_module() -> None:
    source = "if False:\n    return 1\nseen = []\ndef note(x):\n    seen.append(x)\nnote(1)\nexec('note(2)', globals())\nseen"
    assert run_python(source).value == [1, 2]


def test_code_in_a_string_keeps_its_indentation() -> None:
    source = 'if False:\n    return 1\ncode = """\ndef f():\n    return 7\n"""\nexec(code, globals())\nreturn f()'
    assert run_python(source).value == 7


def test_imports_are_listed_without_those_of_the_tools() -> None:
    source = "import os.path, json as j\nfrom math import sqrt\nimport tools\nfrom . import x\ndef f():\n    import re\nimport json"
    assert prepare_python(source).imports == ("os", "json", "math", "re")
