"""Mistakes in Python that must fail are found before the first call, with what to write instead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corral import ToolRegistry
from corral.checking import Checker
from tests.checking.business import BUSINESS

SECONDS = 60
TOOLS = ToolRegistry(*BUSINESS)
ORDER = 'o = await tools.get_order_details(order_id="#W1")\n'
PRODUCT = 'p = await tools.get_product_details(product_id="p1")\n'
USER = 'u = await tools.get_user_details(user_id="ada_berg_1")\n'
USERS = "users = await tools.list_users()\n"
ASYNCIO = "import asyncio\n"

FOUND = {
    f"import json\n{ORDER}json.loads(o)": "Leave `json.loads` out.",
    f"import json\n{ORDER}json.loads(o['items'])": "Leave `json.loads` out.",
    "import json\njson.loads(await tools.list_users())": "Leave `json.loads` out.",
    f"{PRODUCT}[v['price'] for v in p['variants']]": "Write `p['variants'].values()`.",
    f"{PRODUCT}vs = p['variants']\nfor v in vs:\n    print(v['price'])": "Write `vs.values()`.",
    f"{PRODUCT}for n, v in enumerate(p['variants']):\n    print(v['price'])": "Write `p['variants'].values()`.",
    f"{PRODUCT}min(p['variants'], key=lambda v: v['price'])": "Write `p['variants'].values()`.",
    f"{USER}u['payment_methods'][0]": "Write `list(u['payment_methods'].values())[0]`.",
    f"{USER}u['payment_methods'][:2]": "Write `list(u['payment_methods'].values())[:2]`.",
    f"{USER}u[0]": "It is a dict.",
    f"{ORDER}o.status": 'Results are dicts: write `["status"]`.',
    f"{ORDER}[i.price for i in o['items']]": 'Results are dicts: write `["price"]`.',
    f"{ORDER}o['items'].find(lambda i: i)": "Write `next((each for each in o['items'] if ...), None)`.",
    f"{USERS}users.filter(lambda u: u)": "Write `[each for each in users if ...]`.",
    f"{USERS}users.length": "Write `len(users)`.",
    f"{PRODUCT}p['variants'].find(1)": "Write `next((each for each in p['variants'].values() if ...), None)`.",
    "names = []\nnames.push(1)": "Write `names.append(...)`.",
    "'a'.toUpperCase()": "Write `'a'.upper()`.",
    "await tools.get_order_details({'orderid': '#W1'})": "'order_id', where it says 'orderid'",
    "await tools.get_order_details(**{'orderid': '#W1'})": "'order_id', where it says 'orderid'",
    "args = {'orderid': '#W1'}\nawait tools.get_order_details(**args)": "'order_id', where it says 'orderid'",
    "await tools.exchange_items({'order_id': '#W1', 'item_ids': []})": "'new_item_ids', 'payment_method_id'",
    "args = {'order_id': '#W1', 'item_ids': []}\nawait tools.exchange_items(args)": "'new_item_ids', 'payment_method_id'",
    "len(await tools.list_users)": "Write `await tools.list_users(...)`.",
    "users = tools.list_users\n[u['email'] for u in users]": "Write `await tools.list_users(...)`.",
    f"{ASYNCIO}await asyncio.gather(tools.list_users)": "Write `await tools.list_users(...)`.",
    f"{ASYNCIO}r = asyncio.gather(tools.list_users())\nr[0]": "Write `await asyncio.gather(...)`, or `await r`.",
    f"{ASYNCIO}t = asyncio.create_task(tools.list_users())\nlen(t)": "or `await t`.",
    "t = await tools.calculate(expression='1')\nt * 1.5": "A `str` becomes a number by `float(...)`.",
    "m = (await tools.calendar.meetings())[0]\nm['end'] - m['start']": "become times by `datetime.fromisoformat(...)`",
    "t = await tools.calculate(expression='1')\nt['value']": "If it holds JSON, parse it with `json.loads` first.",
    "(await tools.list_users())['users']": "(await tools.list_users()) is a `list`",
    f"{ASYNCIO}await asyncio.gather([tools.list_users() for _ in range(2)])": "Write `await asyncio.gather(*[...])`.",
    "a = await tools.tickets.search()\nlen(a['count'])": "a['count'] has no length.",
    "await tools.get_order_details('#W1')": "Write `await tools.get_order_details(order_id='#W1')`.",
    f"{USER}[await tools.get_order_details(o) for o in u['orders']]": "Write `await tools.get_order_details(order_id=o)`.",
    "await tools.trading.place_order('buy', 'ACME', 1, amount=2)": "place_order(side='buy', symbol='ACME', price=1, amount=2)",
    "await functions.get_order_details(order_id='#W1')": "Did you mean `tools.get_order_details`?",
    "await client.trading.get_quote(symbol='ACME')": "Did you mean `tools.trading.get_quote`?",
    "await client.get_quote(symbol='ACME')": "Did you mean `tools.trading.get_quote`?",
    "await client.nothing_like_it()": "Tools are members of `tools`.",
    "orders[0]['status']": "Programs share nothing: define it here, or return it",
    "customer = 1\nprint(custommer)": "Did you mean 'customer'?",
    "print(null)": "Write `None`.",
    "sum(await tools.list_users())": "Take a number of each",
    f"{USERS}sum(u['email'] for u in users)": "`sum` takes numbers, and u['email'] is not a number.",
    f"{USERS}', '.join(users)": "Write `str(each)`.",
    "a = await tools.tickets.search()\nfor t in a['count']:\n    print(t)": "a['count'] has no items to go through.",
    "try:\n    await tools.list_users()\nexcept tools.ToolError:\n    pass": "Write `ToolError`: it is there without an import.",
    "console.log(1)": "Write `print(...)`.",
    "ts = await tools.list_all_product_types()\nfor t in ts:\n    print(t['id'])": "Write `ts.values()`.",
    f"{USER}u['payment_methods'][3]": "write `u['payment_methods'][\"3\"]`, or for a value by its position",
    f"{PRODUCT}p['variants'].first_one": 'Results are dicts: write `["first_one"]`.',
    f"{ORDER}for i in o.items:\n    print(i)": 'Write `o["items"]`.',
    f"{ORDER}[i for i in o.items]": 'Write `o["items"]`.',
    f"{ORDER}len(o.items)": 'Write `o["items"]`.',
    f"{ORDER}o.items[0]": 'Write `o["items"]`.',
    "t = await tools.calculate(expression='1')\nt.get('value')": "parse it with `json.loads` first.",
    "m = (await tools.calendar.meetings())[0]\nm['end'].year": "Write `datetime.fromisoformat(m['end']).year`",
    "n = 1.5\nn += await tools.calculate(expression='1')": "A `str` becomes a number by `float(...)`.",
    f"{USER}any((await tools.get_order_details(order_id=i))['items'] for i in u['orders'])": "`[... for ...]` in brackets",
    f"{USER}def f():\n    return sum(len(await tools.list_users()) for _ in u)": "must be `async def`.",
    "n = (await tools.files.tree(path='/'))\nisinstance(n, Node)": "Write `isinstance(value, dict)`.",
    "Node.model_validate({})": "It is a `TypedDict`: its values are plain dicts.",
    "x = Node(name='a', path='/', kind='file')\nx.name": 'Results are dicts: write `["name"]`.',
    "Nod(name='a')": "Name `Nod` used when not defined.",
}

PASSED = [
    "from collections import defaultdict\ntree = lambda: defaultdict(tree)\ntree()['a']['b'] = 1",
    "xs = [1, 2]\nfor _ in range(3):\n    xs = list(zip(xs, xs[1:] + xs[:1]))\nlen(xs)",
    f"{USER}sum(len((await tools.get_order_details(order_id=i))['items']) for i in u['orders'])",
    f"{USER}agen = (await tools.get_order_details(order_id=i) for i in u['orders'])\n[o async for o in agen]",
    "class tools:\n    @staticmethod\n    async def list_users(*, limit: int) -> list: ...\n\nlen(await tools.list_users())",
    f"{ORDER}for key, value in o.items():\n    print(key, value)",
    "Node(name='a', path='/', kind='file')['name']",
    "from typing import cast\nnodes = cast(list[Node], [])\nnodes",
    "d = {'order_id': '#W1'}\nd['order_id'] = '#W2'\nawait tools.get_order_details(d)",
    "async def f(x):\n    return await tools.get_order_details(x)\nawait f({'order_id': '#W1'})",
    f"{ASYNCIO}await asyncio.gather(*map(tools.get_order_details, [{{'order_id': '#W1'}}]))",
    f"import json\n{ORDER}try:\n    o = json.loads(o)\nexcept Exception:\n    pass",
    f"import json\n{ORDER}o = json.loads(o) if isinstance(o, str) else o",
    f"{USERS}try:\n    n = users.length\nexcept AttributeError:\n    n = len(users)",
    f"{USERS}n = users.length if hasattr(users, 'length') else len(users)",
    "args = {'order_id': '#W1'}\nargs['item_ids'] = []\nawait tools.exchange_items(**args)",
    "f = tools.list_users\nlen(await f())",
    f"{ASYNCIO}t = asyncio.create_task(tools.list_users())\nawait t\nlen(t.result())",
    "c = tools.list_users()\nc is None\nlen(await c)",
    f"{USERS}sum(len(u) for u in users) + sum(float(u['email']) for u in users)",
    f"{USERS}try:\n    n = sum(users)\nexcept TypeError:\n    n = len(users)",
    f"{USERS}', '.join(u['email'] for u in users)",
    f"{USERS}sum([users, users], [])",
    "from tools import *\nusers = await list_users()\nsorted(u['email'] for u in users)",
    "from corral import ToolError\nfrom tools import AccessDenied as Denied\ntry:\n    await tools.list_users()\nexcept (ToolError, Denied):\n    pass",
]


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    checker = Checker()
    checker.start("python", TOOLS)
    assert checker.wait("python", SECONDS)
    yield checker
    checker.close()


def rejection(checker: Checker, source: str) -> str:
    verdict = checker.check(source, "python", TOOLS, env=False, must=True)
    assert verdict.unchecked is None
    return str(verdict.rejection or "")


def test_what_a_tool_gives_is_not_shown_where_its_input_is_wrong(checker: Checker) -> None:
    text = rejection(checker, "await tools.get_order_details(order_id=1)")
    assert "declared: tools.get_order_details(*, order_id: str)\n" in text + "\n"


@pytest.mark.parametrize("source", FOUND)
def test_a_mistake_is_found_with_what_to_write_instead(checker: Checker, source: str) -> None:
    assert FOUND[source] in rejection(checker, source)


def test_a_coroutine_that_is_taken_for_its_value_is_told_once(checker: Checker) -> None:
    verdict = checker.check("o = tools.list_users()\nprint(o[0])", "python", TOOLS, env=False, must=True)
    assert str(verdict.rejection).count("await") == 1


@pytest.mark.parametrize("source", PASSED)
def test_what_is_guarded_or_may_be_right_passes(checker: Checker, source: str) -> None:
    assert rejection(checker, source) == ""
