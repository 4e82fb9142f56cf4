"""Awaits beside which nothing else runs are known by their places in the code, others are not among them."""

from __future__ import annotations

import pytest

from corral.programs import prepare_python

# `⌖` marks those that are found; it is removed from the source.
PROGRAMS = [
    "⌖await tools.add()",
    "x = ⌖await tools.add(a=1) + ⌖await codemode.github.sub()",
    "for i in range(3):\n    if ⌖await tools.add(a=i) > 1:\n        ⌖await tools.sub()",
    "x = [⌖await tools.add(a=i) for i in range(3)]",
    "x = f(\n    ⌖await tools.add(),\n)",
    "'😀é'; x = ('é', ⌖await  tools.add())",
    "import tools as t\n⌖await t.add()",
    "from tools import add\n⌖await add()",
    "if False:\n    return 1\nx = '😀'; y = ⌖await tools.add()\nreturn y",
    "Here it is:\n```py\nx = 1\n⌖await tools.add()\n```",
    "async def main():\n    return ⌖await tools.add()",
    "import asyncio\nasync def main():\n    return ⌖await tools.add()\nasyncio.run(main())",
    "async def main(api):\n    return ⌖await api.add()",
    "import asyncio\nasync def f():\n    return await tools.add()\n⌖await tools.sub()\nawait asyncio.gather(f(), f())",
    "x = tools.add()\nawait x",
    "await (tools.add())",
    "x = (await\n    tools.add())",
    "x = (⌖await tools.add()).get()",
    "f'{await tools.add()=}'",
    "f = lambda: await tools.add()",
    "def f():\n    return await tools.add()",
    "class A:\n    x = await tools.add()",
    "await own.add()",
    "tools = own\nawait tools.add()",
    "await getattr(tools, 'add')(); await tools.add()",
    "tools.add = own\nawait tools.add(); ⌖await tools.sub()",
    "tools.ａdd = own\nawait tools.add()",
    "tools.ns.add, x = own, 1\nawait tools.ns.add()",
    "setattr(tools.ns, 'add', own)\nawait tools.ns.add()",
    "x = await tools.add(",
    "x = 1",
]


@pytest.mark.parametrize("marked", PROGRAMS)
def test_awaits_that_run_alone_are_found_where_they_stand_in_the_code(marked: str) -> None:
    program = prepare_python(marked.replace("⌖", ""))
    code = program.code.encode()
    assert all(code.startswith(b"await", at) for at in program.sequential_awaits)
    found = [program.locate(*_place(code[:at].decode())) for at in program.sequential_awaits]
    parts = marked.split("⌖")
    expected = [_place("".join(parts[:number])) for number in range(1, len(parts))]
    assert [(position.line, position.column) for position in found] == expected


def _place(before: str) -> tuple[int, int]:
    """The line and column, in UTF-16 units, of what follows a text."""
    line = before.rpartition("\n")[2]
    return before.count("\n") + 1, len(line.encode("utf-16-le")) // 2 + 1
