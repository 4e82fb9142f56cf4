"""Mistakes in Python that must fail are found before the first call, with what to write instead."""

from __future__ import annotations

from corral.checking import Checker
from corral.tools import ToolRegistry
from tests.checking.corpora import checked
from tests.checking.tools import TOOLS

REGISTRY = ToolRegistry(*TOOLS)
ORDER = 'o = await tools.retail.order_details(order_id="o1")\n'
PRODUCT = 'p = await tools.retail.product_details(product_id="p1")\n'
USER = 'u = await tools.retail.get_customer(user_id="ada_1")\n'
USERS = "users = await tools.chat.channels()\n"
ASYNCIO = "import asyncio\n"

FOUND = {
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
    "await tools.retail.order_details({'orderid': 'o1'})": "'order_id' instead of 'orderid'",
    "await tools.retail.order_details(**{'orderid': 'o1'})": "'order_id' instead of 'orderid'",
    "args = {'orderid': 'o1'}\nawait tools.retail.order_details(**args)": "'order_id' instead of 'orderid'",
    "await tools.retail.exchange({'order_id': 'o1', 'item_ids': []})": "'new_item_ids', 'payment_method_id'",
    "args = {'order_id': 'o1', 'item_ids': []}\nawait tools.retail.exchange(args)": "'new_item_ids', 'payment_method_id'",
    "for _ in range(3):\n    o = await tools.retail.order_details(order_id='o1')\n    if o.get('ok'):\n        break": "The loop would repeat the call",
    "await tools.github.list_issues(repo='a', per_page=1000)": "per_page: expected at most 100, got number 1000.",
    "len(await tools.chat.channels)": "Write `await tools.chat.channels(...)`.",
    "users = tools.chat.channels\n[u['name'] for u in users]": "Write `await tools.chat.channels(...)`.",
    f"{ASYNCIO}await asyncio.gather(tools.chat.channels)": "Write `await tools.chat.channels(...)`.",
    "o = tools.chat.channels()\no[0]": "tools.chat.channels returns a coroutine: write `await tools.chat.channels(...)`.",
    f"{ASYNCIO}await asyncio.gather(*map(tools.retail.order_details, ['o1']))": "Write `[tools.retail.order_details(order_id=each)",
    f"{ASYNCIO}r = asyncio.gather(tools.chat.channels())\nr[0]": "Write `await asyncio.gather(...)`, or `await r`.",
    f"{ASYNCIO}t = asyncio.create_task(tools.chat.channels())\nlen(t)": "or `await t`.",
    "t = await tools.retail.product_types()\nt * 1.5": "Convert the `str` with `float(...)`.",
    "m = (await tools.calendar.list_events(start='2026-03-02'))[0]\nm['end'] - m['start']": "parse times with `datetime.fromisoformat(...)`",
    "t = await tools.retail.product_types()\nt['value']": "If it holds JSON, parse it with `json.loads` first.",
    "(await tools.chat.channels())['users']": "(await tools.chat.channels()) is a `list`",
    f"{ASYNCIO}await asyncio.gather([tools.chat.channels() for _ in range(2)])": "Write `await asyncio.gather(*[...])`.",
    "await tools.retail.order_details('o1')": "Write `await tools.retail.order_details(order_id='o1')`.",
    f"{USER}[await tools.retail.order_details(o) for o in u['orders']]": "Write `await tools.retail.order_details(order_id=o)`.",
    "await tools.broker.place_order('AAA', 'buy', 1, limit=2)": "place_order(symbol='AAA', side='buy', amount=1, limit=2)",
    "await functions.retail.order_details(order_id='o1')": "Did you mean `tools.retail.order_details`?",
    "await client.broker.quote(symbol='AAA')": "Did you mean `tools.broker.quote`?",
    "await client.quote(symbol='AAA')": "Did you mean `tools.broker.quote`?",
    "await client.nothing_like_it()": "Tools are members of `tools`.",
    "orders[0]['status']": "Programs share no state: define it here, or return it",
    "customer = 1\nprint(custommer)": "Did you mean 'customer'?",
    "print(null)": "Write `None`.",
    "sum(await tools.chat.channels())": "Take a number from each",
    f"{USERS}sum(u['name'] for u in users)": "`sum` takes numbers, but u['name'] is not a number.",
    f"{USERS}', '.join(users)": "Write `str(each)`.",
    "a = await tools.search_tickets(query='')\nfor t in a['count']:\n    print(t)": "a['count'] cannot be iterated over.",
    "try:\n    await tools.chat.channels()\nexcept tools.ToolError:\n    pass": "Write `ToolError`: it needs no import.",
    "console.log(1)": "Write `print(...)`.",
    "ts = await tools.retail.all_customers()\nfor t in ts:\n    print(t['email'])": "Write `ts.values()`.",
    f"{USER}u['payment_methods'][3]": "write `u['payment_methods'][\"3\"]`, or for a value by position",
    f"{PRODUCT}p['variants'].first_one": 'Results are dicts: write `["first_one"]`.',
    f"{ORDER}for i in o.items:\n    print(i)": 'Write `o["items"]`.',
    f"{ORDER}[i for i in o.items]": 'Write `o["items"]`.',
    f"{ORDER}len(o.items)": 'Write `o["items"]`.',
    f"{ORDER}o.items[0]": 'Write `o["items"]`.',
    "t = await tools.retail.product_types()\nt.get('value')": "parse it with `json.loads` first.",
    "m = (await tools.calendar.list_events(start='2026-03-02'))[0]\nm['end'].year": "Write `datetime.fromisoformat(m['end']).year`",
    "n = 1.5\nn += await tools.retail.product_types()": "Convert the `str` with `float(...)`.",
    f"{USER}any((await tools.retail.order_details(order_id=i))['items'] for i in u['orders'])": "`[... for ...]` in brackets",
    f"{USER}def f():\n    return sum(len(await tools.chat.channels()) for _ in u)": "must be `async def`.",
    "n = (await tools.disk.tree())\nisinstance(n, Node)": "Write `isinstance(value, dict)`.",
    "Node.model_validate({})": "It is a `TypedDict`: its values are plain dicts.",
    "x = Node(name='a', kind='file', size=None, children=[])\nx.name": 'Results are dicts: write `["name"]`.',
    "Nod(name='a')": "Name `Nod` used when not defined.",
    "await tools.log.note(text='a', severity=Severity.SEVERE)": 'Write `"severe"`.',
    "Severity['IN_REVIEW']": 'Write `"in-review"`.',
    "Severity('severe')": "Write the value itself.",
    "[each for each in Severity]": "Write `typing.get_args(Severity)`.",
    "lines = tools.log.tail()\nlines[0]": "read it with `async for item in ...`",
}
"""Mistakes, and what is to be said of each."""

PASSED = [
    "from collections import defaultdict\ntree = lambda: defaultdict(tree)\ntree()['a']['b'] = 1",
    "xs = [1, 2]\nfor _ in range(3):\n    xs = list(zip(xs, xs[1:] + xs[:1]))\nlen(xs)",
    f"{USER}sum(len((await tools.retail.order_details(order_id=i))['items']) for i in u['orders'])",
    f"{USER}agen = (await tools.retail.order_details(order_id=i) for i in u['orders'])\n[o async for o in agen]",
    "class tools:\n    @staticmethod\n    async def list_cities(*, limit: int) -> list: ...\n\nlen(await tools.list_cities())",
    f"{ORDER}for key, value in o.items():\n    print(key, value)",
    "Node(name='a', kind='file', size=None, children=[])['name']",
    "from typing import cast\nnodes = cast(list[Node], [])\nnodes",
    "d = {'order_id': 'o1'}\nd['order_id'] = 'o2'\nawait tools.retail.order_details(d)",
    "async def f(x):\n    return await tools.retail.order_details(x)\nawait f({'order_id': 'o1'})",
    f"{ASYNCIO}await asyncio.gather(*map(tools.retail.order_details, [{{'order_id': 'o1'}}]))",
    f"import json\n{ORDER}try:\n    o = json.loads(o)\nexcept Exception:\n    pass",
    f"import json\n{ORDER}o = json.loads(o) if isinstance(o, str) else o",
    f"{USERS}try:\n    n = users.length\nexcept AttributeError:\n    n = len(users)",
    f"{USERS}n = users.length if hasattr(users, 'length') else len(users)",
    "args = {'order_id': 'o1'}\nargs['item_ids'] = []\nawait tools.retail.exchange(**args)",
    "f = tools.chat.channels\nlen(await f())",
    f"{ASYNCIO}t = asyncio.create_task(tools.chat.channels())\nawait t\nlen(t.result())",
    "c = tools.chat.channels()\nc is None\nlen(await c)",
    f"{USERS}sum(len(u) for u in users) + sum(float(u['name']) for u in users)",
    f"{USERS}try:\n    n = sum(users)\nexcept TypeError:\n    n = len(users)",
    f"{USERS}', '.join(u['name'] for u in users)",
    f"{USERS}sum([users, users], [])",
    "from tools.chat import *\nusers = await channels()\nsorted(u['name'] for u in users)",
    "from corral import ToolError\nfrom tools import AccessDenied as Denied\ntry:\n    await tools.chat.channels()\nexcept (ToolError, Denied):\n    pass",
]


def rejection(checker: Checker, source: str) -> str:
    verdict = checked(checker, source, "python", REGISTRY, env=False, must=True)
    assert verdict.unchecked is None
    return str(verdict.rejection or "")


def test_what_a_tool_gives_is_not_shown_where_its_input_is_wrong(checker: Checker) -> None:
    text = rejection(checker, "await tools.retail.order_details(order_id=1)")
    assert "declared: tools.retail.order_details(*, order_id: str)\n" in text + "\n"


def test_a_mistake_is_found_with_what_to_write_instead(checker: Checker) -> None:
    found = {source: rejection(checker, source) for source in FOUND}
    assert {source: text for source, text in found.items() if FOUND[source] not in text} == {}


def test_a_coroutine_that_is_taken_for_its_value_is_told_once(checker: Checker) -> None:
    verdict = checked(checker, "o = tools.chat.channels()\nprint(o[0])", "python", REGISTRY, env=False, must=True)
    assert str(verdict.rejection).count("await") == 1


def test_what_is_guarded_or_may_be_right_passes(checker: Checker) -> None:
    found = {source: rejection(checker, source) for source in PASSED}
    assert {source: text for source, text in found.items() if text} == {}
