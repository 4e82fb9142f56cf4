"""A tool that is called without `await` where that is surely a mistake is refused before the program runs."""

from __future__ import annotations

import pytest

from corral.errors import ProgramRejected
from corral.programs import prepare_python
from tests.programs.running import run_python

FORGOTTEN = [
    "⌖tools.send(to='a')",
    "⌖tools.send(to='a')\nreturn 1",
    "x = 1\n⌖codemode.send(\n    to='a',\n)",
    "⌖tools.github.close(n=1); x = 1",
    "async def main():\n    ⌖tools.send()\n    return 1",
    "def f():\n    ⌖tools.send()\nf()",
    "if True:\n    ⌖tools.send()",
    "(⌖tools.send())",
    "for x in ⌖tools.list():\n    print(x)",
    "[x for x in ⌖tools.list()]",
    "{x: 1 for x in ⌖tools.list()}",
    "x = ⌖tools.get()['a']",
    "x = ⌖tools.get().a",
    "x = ⌖tools.get().items()",
    "x = (⌖tools.get())['a']",
    "len(⌖tools.list())",
    "print(⌖tools.list())",
    "sorted(⌖tools.list(), key=len)",
    "import json\njson.dumps(⌖tools.get())",
    "x = ⌖tools.get() + 1",
    "x = 1 - ⌖tools.get()",
    "x = -⌖tools.get()",
    "if ⌖tools.get() > 1:\n    pass",
    "if ⌖tools.get():\n    pass",
    "while ⌖tools.get():\n    pass",
    "x = 1 if ⌖tools.get() else 2",
    "x = not ⌖tools.get()",
    "x = 'a' in ⌖tools.list()",
    "f'{⌖tools.get()}'",
    "a, b = ⌖tools.pair()",
    "x = 1\nx += ⌖tools.get()",
    "x = [*⌖tools.list(), 1]",
    "x = {**⌖tools.get()}",
    "f(*⌖tools.list())",
    "with ⌖tools.open() as f:\n    pass",
    "from tools import send\n⌖send(to='a')",
    "from tools import send as s\n⌖s(to='a')",
    "send = tools.send\n⌖send(to='a')",
    "async def main(tools):\n    ⌖tools.send()",
    "async def main(api):\n    ⌖api.send()",
]

KEPT = [
    "await tools.send()",
    "x = tools.get()\nawait x",
    "x = await tools.get()",
    "import asyncio\nawait asyncio.gather(tools.a(), tools.b())",
    "import asyncio\nawait asyncio.gather(*[tools.a(n=n) for n in range(3)])",
    "import asyncio\nx = asyncio.create_task(tools.a())\nawait x",
    "import asyncio\nasync with asyncio.TaskGroup() as group:\n    group.create_task(tools.a())",
    "import asyncio\nfor done in asyncio.as_completed([tools.a(), tools.b()]):\n    await done",
    "import asyncio\nawait asyncio.wait_for(tools.a(), 5)",
    "pending = []\npending.append(tools.a())\nfor each in pending:\n    await each",
    "pending = {'a': tools.a()}\nawait pending['a']",
    "pending = (tools.a(), tools.b())\nfor each in pending: await each",
    "def start():\n    return tools.a()\nawait start()",
    "start = lambda: tools.a()\nawait start()",
    "x = tools.a() if True else tools.b()\nawait x",
    "x = None or tools.a()\nawait x",
    "x = tools.a()\nx is not None\nawait x",
    "async def main():\n    return await tools.a()\nawait main()",
    "(await tools.a()).upper()",
    "[await x for x in [tools.a()]]",
    "def len(x):\n    return x\nawait len(tools.a())",
    "tools = ['a']\ntools.append('b')\ntools",
    "def f(tools):\n    tools.append('b')\n    return tools\nf([])",
    "for tools in [[1]]:\n    tools.append(2)",
    "from tools import send\nsend = print\nsend('a')",
    "await (tools.a())",
    "await tools.a(n=await tools.answer())",
    "x = {}\nx['a'] = tools.a()\nawait x['a']",
]


@pytest.mark.parametrize("source", FORGOTTEN)
def test_a_forgotten_await_is_refused(source: str) -> None:
    before, _, after = source.partition("⌖")
    with pytest.raises(ProgramRejected, match=r"is not awaited, so it .*: write `\(?await ") as caught:
        prepare_python(before + after)
    lines = before.split("\n")
    assert (caught.value.line, caught.value.column) == (len(lines), len(lines[-1]) + 1)


def test_what_may_be_awaited_later_is_kept() -> None:
    found = {source: run_python(source) for source in KEPT}
    assert {source: ran for source, ran in found.items() if ran.error is not None} == {}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("sum((await tools.a(n=n))['n'] for n in [1, 2])", 3),
        ("sum(((await tools.a(n=n))['n'] for n in [1, 2]), 4)", 7),
        ("dict((n, await tools.answer()) for n in 'a')", {"a": 42}),
        ("', '.join([await tools.a('b')][0] for _ in range(2))", "b, b"),
        ("found = [0]\nfound.extend(await tools.a(n) for n in [1, 2])\nfound", [0, 1, 2]),
        ("[*(await tools.a(n) for n in [1, 2]), 3]", [1, 2, 3]),
        ("[m for m in (await tools.a(n) for n in [1, 2])]", [1, 2]),
        ("found = []\nfor m in (await tools.a(n) for n in [1, 2]):\n    found.append(m)\nfound", [1, 2]),
        ("async def main():\n    return max(await tools.a(n) for n in [1, 2] if await tools.a(n))\nmain()", 2),
        ("sum(n for n in [await tools.answer()])", 42),
        ("async def lines():\n    yield 1\n    yield 2\n\nsum(n async for n in lines())", 3),
        ("each = (await tools.a(n) for n in [1, 2])\n[n async for n in each]", [1, 2]),
        ("def sum(each):\n    return type(each).__name__\nsum(await tools.a(n) for n in [1])", "async_generator"),
    ],
)
def test_a_generator_that_awaits_is_made_a_list_where_it_is_gone_through(source: str, value: object) -> None:
    ran = run_python(source)
    assert (ran.value, ran.error) == (value, None)


def test_a_generator_that_is_made_a_list_keeps_its_places() -> None:
    ran = run_python("x = 1\ny = sum(1 + await tools.fail() for _ in [1])")
    assert ran.position is not None
    assert (ran.position.line, ran.position.column) == (2, 13)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("class tools:\n    @staticmethod\n    async def a(*, n: int) -> dict: ...\n\nawait tools.a(n=1)", {"n": 1}),
        ("class tools:\n    class b:\n        def c(n: int = 1):\n            'Does.'\n\nawait tools.b.c(n=1)", {"n": 1}),
    ],
)  # fmt: skip
def test_a_declaration_of_the_tools_in_a_program_is_left_out(source: str, value: object) -> None:
    ran = run_python(source)
    assert (ran.value, ran.error) == (value, None)


def test_a_refusal_shows_what_to_write() -> None:
    with pytest.raises(ProgramRejected) as caught:
        prepare_python("x = 1\ntools.send_email(to='a')")
    assert str(caught.value) == (
        "tools.send_email(...) at line 2, column 1 is not awaited, so it would not run:"
        " write `await tools.send_email(...)`."
    )
    with pytest.raises(ProgramRejected) as caught:
        prepare_python("x = tools.get()['a']")
    assert str(caught.value) == (
        "tools.get(...) at line 1, column 5 is not awaited, so it has no value yet: write `(await tools.get(...))`."
    )


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        ("for x in tools.lines():\n    pass", "`async for ... in tools.lines(...)`"),
        ("[x for x in tools.lines()]", "`async for ... in tools.lines(...)`"),
        ("list(tools.lines())", "`[each async for each in tools.lines(...)]`"),
    ],
)
def test_what_is_gone_through_may_be_a_stream(source: str, fix: str) -> None:
    with pytest.raises(ProgramRejected) as caught:
        prepare_python(source)
    assert f"write `await tools.lines(...)`, or {fix} if it returns a stream." in str(caught.value)
