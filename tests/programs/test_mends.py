"""What a program surely means is mended, and said; what has two readings is left alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from corral.errors import ProgramRejected
from corral.programs.mends import python, typescript
from corral.programs.mends.names import ToolNames
from corral.programs.mends.reading import (
    _AROUND_JSON,  # pyright: ignore[reportPrivateUsage]
    _AWAITED,  # pyright: ignore[reportPrivateUsage]
    read_meant,
)
from corral.programs.recover import without_thoughts
from corral.types import Language, Program
from tests.wrong import Wrong

SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"product_id": {}, "in_stock": {}, "inStock": {}, "max_price": {}},
    "required": ["product_id"],
}
NAMES = ToolNames(
    ["shop.get_product", "shop.search_products", "mail.send_email", "crm.find", "desk.find", "export_"],
    lambda path: SCHEMA if path == "shop.get_product" else None,
    lambda path, way, name: (
        (path, *way, name)
        in {
            ("shop.get_product", "title"),
            ("shop.get_product", "maker"),
            ("shop.get_product", "maker", "name"),
            ("shop.get_product", "items"),
            ("shop.search_products", None, "title"),
        }
    ),
)


def meant(source: str, language: Language) -> Program:
    return read_meant(source, language, NAMES)


def read_as(program: Program) -> str:
    """The program before it is prepared."""
    assert program.typed is not None
    return program.typed.text.decode()


TYPESCRIPT = {
    "await tools.shop.getProduct({ id })": "await tools.shop.get_product({ id })",
    "await tools.searchProducts()": "await tools.shop.search_products()",
    "await tools.shop.get_product('a')": "await tools.shop.get_product({ product_id: 'a' })",
    "await tools.shop.get_product({ productId: 1, maxPrice })": (
        "await tools.shop.get_product({ product_id: 1, max_price: maxPrice })"
    ),
    "await functions.shop.get_product({})": "await tools.shop.get_product({})",
    "await get_product({})": "await tools.shop.get_product({})",
    "await shop.get_product({})": "await tools.shop.get_product({})",
    "await call_tool('shop.get_product', { id: 1 })": "await tools.shop.get_product({ id: 1 })",
    "print(1)": "console.log(1)",
    "process.exit(0)": "return         ",
    "const f = async (ctx) => await ctx.tools.mail.send_email({})": (
        "const f = async (ctx) => await tools.mail.send_email({})"
    ),
    "const p = tools.shop.get_product({}); p.a": "const p = await tools.shop.get_product({}); p.a",
    "return tools.shop.get_product({}).a": "return (await tools.shop.get_product({})).a",
    "await tools.shop.search_products({}).filter(f)": "await (await tools.shop.search_products({})).filter(f)",
    "await tools.shop.get_product(product_id='a', inStock=true)": "await tools.shop.get_product({ product_id:'a', inStock:true })",
    "const { a } = tools.shop.get_product({});": "const { a } = (await tools.shop.get_product({}));",
    "if (!tools.crm.find({})) f()": "if (!(await tools.crm.find({}))) f()",
    "f([...tools.crm.find()], tools.crm.find())": "f([...(await tools.crm.find())], tools.crm.find())",
    "console.log(tools.crm.find() === 1)": "console.log((await tools.crm.find()) === 1)",
    'import { get_product as g } from "functions";\nawait g()': "const g = tools.shop.get_product; ;",
    'import api from "./default_api";\nawait api.crm.find()': "const api = tools; ;",
    "const a = tools.crm.find({}).then((x) => x.b); f('a' + a)": (
        "const a = await tools.crm.find({}).then((x) => x.b); f('a' + a)"
    ),
    "const list = items.map(async (x) => x); list.length; list.join()": (
        "const list = (await Promise.all(items.map(async (x) => x))); list.length; list.join()"
    ),
    "f(`${items.map(async (x) => x)}`)": "f(`${(await Promise.all(items.map(async (x) => x)))}`)",
    "function f(x) { return await tools.crm.find(x) }\nf(1).a; await f(2); f(3).then(g)": (
        "async function f(x) { return await tools.crm.find(x) }\n(await f(1)).a; await f(2); f(3).then(g)"
    ),
    "function f(x) { return await tools.crm.find(x) }\nconst g = (x) => { f(x) }\nawait Promise.all(a.map((x) => f(x))); g(1)": (
        "async function f(x) { return await tools.crm.find(x) }\nconst g = async (x) => { (await f(x)) }\n"
        "await Promise.all(a.map((x) => f(x))); (await g(1))"
    ),
    "items.map((x) => await tools.crm.find(x))": "(await Promise.all(items.map(async (x) => await tools.crm.find(x))))",
    "const f = (x) => tools.crm.find(x).a; f(1)": "const f = async (x) => (await tools.crm.find(x)).a; (await f(1))",
}
PYTHON = {
    "await tools.shop.getProduct(id=1)": "await tools.shop.get_product(id=1)",
    "await tools.shop.get_product(f'{1}')": "await tools.shop.get_product(product_id=f'{1}')",
    "await tools.shop.get_product(productId=1)": "await tools.shop.get_product(product_id=1)",
    "await tools.shop.get_product({'ProductId': 1})": "await tools.shop.get_product({'product_id': 1})",
    "await default_api.get_product(id=1)": "await tools.shop.get_product(id=1)",
    "await send_email(to=1)": "await tools.mail.send_email(to=1)",
    "x = await call_tool('get_product', {'id': 1})": "x = await tools.shop.get_product({'id': 1})",
    "console.log(1)": "print(1)",
    "help(tools.shop.get_product)": 'print(await tools.describe("shop.get_product"))',
    "tools.mail.send_email(to=1)\n1": "await tools.mail.send_email(to=1)\n1",
    "p = tools.shop.get_product(id=1)\nlen(p)": "p = await tools.shop.get_product(id=1)\nlen(p)",
    "tools.shop.get_product(id=1)['a']": "(await tools.shop.get_product(id=1))['a']",
    "p = await tools.shop.get_product()\nf(p.title, p.maker.name)": 'p = await tools.shop.get_product()\nf(p["title"], p["maker"]["name"])',
    "ps = await tools.shop.search_products()\nf'{ps[0].title}'": "ps = await tools.shop.search_products()\nf'{ps[0][\"title\"]}'",
    "min(await tools.shop.search_products(), key=lambda p: p.title)": 'min(await tools.shop.search_products(), key=lambda p: p["title"])',
    "ps = await asyncio.gather(*[tools.shop.get_product(id=i) for i in n])\n[p.title for p in sorted(ps)]": (
        'ps = await asyncio.gather(*[tools.shop.get_product(id=i) for i in n])\n[p["title"] for p in sorted(ps)]'
    ),
    "a, b = await asyncio.gather(tools.shop.get_product(), tools.crm.find())\na.title": (
        'a, b = await asyncio.gather(tools.shop.get_product(), tools.crm.find())\na["title"]'
    ),
    "from functions import get_product as g\nawait g()": "g = tools.shop.get_product\nawait g()",
    "import default_api\nawait default_api.crm.find()": "pass\nawait tools.crm.find()",
    "from functions import *\nawait get_product()": "pass\nawait tools.shop.get_product()",
    "def f(ctx):\n    return ctx.tools.crm.find()": "def f(ctx):\n    return tools.crm.find()",
    "x = await tools.crm.find(id=1)['a']['b'] + 1": "x =  (await tools.crm.find(id=1))['a']['b'] + 1",
    "def f(x):\n    return await tools.crm.find(id=x)['a']\nf(1) + 1": (
        "async def f(x):\n    return  (await tools.crm.find(id=x))['a']\n(await f(1)) + 1"
    ),
    "def f(x):\n    return await tools.crm.find(id=x)\ndef g(a):\n    y = f(a)\n    return y\nprint([g(1)])": (
        "async def f(x):\n    return await tools.crm.find(id=x)\nasync def g(a):\n    y = await f(a)\n    return y\n"
        "print([(await g(1))])"
    ),
    "def f(x):\n    y = tools.crm.find(id=x)\n    return y['a']\nawait asyncio.gather(f(1), *[f(k) for k in z])": (
        "async def f(x):\n    y = await tools.crm.find(id=x)\n    return y['a']\n"
        "await asyncio.gather(f(1), *[f(k) for k in z])"
    ),
    "def f():\n    return await tools.crm.find()\ndef g():\n    return await tools.crm.find()\ndef h():\n    return f(), g()\nh()[0]": (
        "async def f():\n    return await tools.crm.find()\nasync def g():\n    return await tools.crm.find()\n"
        "async def h():\n    return (await f()), (await g())\n(await h())[0]"
    ),
    "def main():\n    return await tools.crm.find()\nasyncio.run(main())": (
        "async def main():\n    return await tools.crm.find()\nasyncio.run(main())"
    ),
}
LEFT_ALONE: dict[Language, list[str]] = {
    "typescript": [
        "await tools.find({})",
        "await tools.search('words')",
        "await tools.crm.find('a')",
        "await tools.shop.get_product({ product_id: 1, productId: 2, InStock: 1 })",
        "const id = 'a'; await tools.shop.get_product(id)",
        "const get_product = () => 1; get_product()",
        "const functions = { getProduct: () => 1 }; functions.getProduct()",
        "const print = (x) => x; print(1)",
        "const ctx = { tools: { crm: { find: () => 1 } } }; ctx.tools.crm.find()",
        "const p = tools.shop.get_product({}); return await p",
        "const p = tools.shop.get_product({}); p.then((x) => x.a)",
        "return [tools.shop.get_product({})]",
        "const p = tools.shop.get_product({}); same(p === q); p.a",
        "f(tools.shop.get_product({}) ?? 1)",
        "f(`${tools.shop.get_product({})}`)",
        "const list = items.map(async (x) => x); list.join() + list.filter(Boolean)",
        "return items.map(async (x) => x)",
        "JSON.parse(items.map(async (x) => x))",
        "let product_id; await tools.shop.get_product(product_id = 'a')",
        "await tools.shop.get_product(other = 'a')",
        "async function main() { if (1) process.exit(0) }; main()",
        'import { chunk } from "lodash"; chunk([1])',
        'import { find } from "lodash"; find([1])',
        'import { get_product } from "lodash"; get_product([1])',
        'import { get_product } from "./helper.ts"; get_product([1])',
        "console.log('tools.shop.getProduct()')",
    ],
    "python": [
        "await tools.find()",
        "await tools.search(query='words')",
        "def get_product(): return 1\nget_product()",
        "functions = [print]\nfunctions.pop()",
        "p = tools.shop.get_product()\nasyncio.gather(p)",
        "p = tools.shop.get_product()\nawait p",
        "from operator import find\nfind(1)",
        "p = await tools.shop.get_product()\np.title = 1\np.items()\np.title()\np.other",
        "p = await tools.shop.get_product()\np = Own()\np.title",
        "class P: pass\nps = await tools.shop.search_products()\nps.append(P())\nps[-1].title",
        "def f(p):\n    return p.title\nf(await tools.shop.get_product())",
        "from helper import get_product\nget_product(1)",
        "from math import *\nsend_email(1)",
        "import functions.other",
        "class C:\n    def f(self): return self.tools.crm.find()",
        "def f(x):\n    return await tools.crm.find()\nsorted(a, key=f)",
        "class C:\n    def f(self):\n        return await tools.crm.find()\nC().f()",
        "def f(x):\n    yield await tools.crm.find()\nlist(f(1))",
        "def f(x):\n    return await tools.crm.find()\ng = lambda x: f(x)",
    ],
}


@pytest.mark.parametrize(("language", "cases"), [("typescript", TYPESCRIPT), ("python", PYTHON)])
def test_what_a_program_surely_means_is_mended_and_said(language: Language, cases: dict[str, str]) -> None:
    wrong = Wrong()
    for source, expected in cases.items():
        with wrong.case(source):
            program = meant(source, language)
            assert read_as(program).startswith(expected)
            assert program.source == source
            assert [each.show for each in program.diagnostics if each.code == "mended"]
    assert wrong == []


@pytest.mark.parametrize("language", ["typescript", "python"])
def test_what_has_another_reading_is_left_alone(language: Language) -> None:
    wrong = Wrong()
    for source in LEFT_ALONE[language]:
        with wrong.case(source):
            program = meant(source, language)
            assert (read_as(program), [each.code for each in program.diagnostics if each.code == "mended"]) == (
                source,
                [],
            )
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "function f(x) { return await tools.crm.find(x) }\nitems.map(f)",
        "function f(x) { return await tools.crm.find(x) }\nconst g = (x) => f(x).a\nf(3).then(g)",
        "items.forEach((x) => await tools.crm.find(x))",
        "const o = { f(x) { return await tools.crm.find(x) } }; o.f(1)",
        "function f(x) { return await tools.crm.find(x) }\nitems.filter((x) => f(x))",
    ],
)
def test_a_function_that_is_not_only_called_is_not_made_async(source: str) -> None:
    with pytest.raises(ProgramRejected, match=r"`await` is used in a function that is not async\..* \(line 1"):
        meant(source, "typescript")


def test_places_of_a_mended_program_are_those_of_the_source() -> None:
    program = meant("const a = 1;\nawait functions.shop.get_product({}), nope()", "typescript")
    place = program.locate(2, program.code.split("\n")[1].index("nope") + 1)
    assert (place.line, place.column) == (2, 39)
    assert [(each.path, each.line) for each in program.references.named] == [("shop.get_product", 2)]  # pyright: ignore[reportOptionalMemberAccess]


def test_a_tool_call_as_json_is_run_where_the_name_is_certain() -> None:
    wrong = Wrong()
    forms = [
        '{"name": "get_product", "parameters": {"id": true}}',
        '[{"name": "shop.get_product", "arguments": {"id": true}}]',
        '{"tool": "functions.shop.getProduct", "args": "{\\"id\\": true}"}',
        '{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "get_product", "arguments": {"id": true}}}]}',
        '```json\n{"name": "get_product", "input": {"id": true}}\n```',
        '<think>\nFirst.\n</think>\n<tool_call>{"name": "get_product", "input": {"id": true}}</tool_call>',
        '<|python_tag|>{"name": "get_product", "parameters": {"id": true}}',
    ]
    for source in forms:
        with wrong.case(source):
            assert read_as(meant(source, "typescript")) == 'await tools.shop.get_product({"id": true})'
            assert read_as(meant(source, "python")) == "await tools.shop.get_product({'id': True})"
    with pytest.raises(ProgramRejected, match=r"a tool call as JSON.*await tools\."):
        meant('{"name": "find", "arguments": {}}', "python")
    for source in ['{"name": "find", "count": 1}', '{"name": "a", "arguments": {}, "total": 2}', '[{"name": "x"}]']:
        with wrong.case(source):
            assert [each.code for each in meant(source, "python").diagnostics if each.code == "mended"] == []
    assert wrong == []


def test_a_function_of_the_program_that_hides_a_tool_is_told_if_no_tool_is_called() -> None:
    hidden = "function get_product() { return 1 }\nreturn get_product()"
    assert [each.code for each in meant(hidden, "typescript").diagnostics] == ["hidden_tool"]
    assert meant(f"{hidden} + await tools.crm.find({{}})", "typescript").diagnostics == ()
    assert meant("def other(): return 1\nother()", "python").diagnostics == ()


def test_a_program_that_defines_the_tools_itself_is_rejected() -> None:
    wrong = Wrong()
    own: list[tuple[Language, str]] = [
        ("python", "class tools:\n    class shop:\n        async def get_product(id):\n            return {'id': 1}\nawait tools.shop.get_product(1)"),
        ("typescript", "const tools = { shop: { get_product: async (x) => ({ id: 1 }) } };\nawait tools.shop.get_product({})"),
        ("typescript", "class tools { static add() { return 1 } }\ntools.add()"),
    ]  # fmt: skip
    for language, source in own:
        with wrong.case(source), pytest.raises(ProgramRejected, match=r"is a global; do not define it"):
            meant(source, language)
    others: list[tuple[Language, str]] = [
        ("typescript", "declare const tools: any;\nawait tools.crm.find({})"),
        ("typescript", "const tools = { find: () => codemode.crm.find({}) }; await tools.find()"),
        ("typescript", "const tools = ['saw', 'hammer']; return tools.map((tool) => tool.length)"),
        (
            "python",
            "class tools:\n    class crm:\n        async def find(*, id: int) -> dict: ...\nawait tools.crm.find(id=1)",
        ),
        ("python", "tools = tools\nawait tools.crm.find(id=1)"),
    ]
    for language, source in others:
        with wrong.case(source):
            assert meant(source, language).typed is not None
    assert wrong == []


SIGNS = (python.SIGN.search, typescript.SIGN.search)
HOSTILE: dict[str, Callable[[int], str]] = {
    "a tool call that does not end": lambda size: "<tool_call>" + " " * size + "x",
    "a fence that does not end": lambda size: "```json" + "\n " * (size // 2),
    "an await of nothing": lambda size: "await" + " " * size + "x",
    "special tokens": lambda size: "x" + "<|a|>" * (size // 5) + "y",
    "drafts": lambda size: "<think>\n" * (size // 8),
    "a function of blank lines": lambda size: "def f():\n" + "  \n" * (size // 3),
    "functions in functions": lambda size: "".join(" " * each + "def f():\n" for each in range(int(size**0.5))),
    "maps of nothing": lambda size: ".map(" * (size // 10) + " " * (size // 2),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_reading_takes_no_longer_than_the_length_asks_for(hostile: Callable[[int], str]) -> None:
    def spent(size: int) -> float:
        source, began = hostile(size), time.thread_time()
        for pattern in (_AROUND_JSON.fullmatch, _AWAITED.search, without_thoughts, *SIGNS):
            pattern(source)
        return time.thread_time() - began

    assert spent(7_900) < 30 * spent(790) + 0.01, "in ten times the length, and not its square"
