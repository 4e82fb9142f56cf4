"""Imports that a program forgot are added, where only one can be meant; no line moves by that."""

from __future__ import annotations

import pytest

from corral import Corral
from corral.errors import ProgramRejected
from corral.programs import prepare_python
from tests.programs.running import run_python

ADDED = {
    "json.dumps({'a': 1})": ("import json", '{"a": 1}'),
    "x = 4\nf'{math.sqrt(x)}'": ("import math", "2.0"),
    "def f():\n    return random.random() < 2\nf()": ("import random", True),
    "datetime.now().year > 2000": ("from datetime import datetime", True),
    "datetime.strptime('2026', '%Y').year": ("from datetime import datetime", 2026),
    "datetime(2026, 1, 2).day": ("from datetime import datetime", 2),
    "datetime.datetime(2026, 1, 2).day": ("import datetime", 2),
    "(datetime.date(2026, 1, 2) + datetime.timedelta(days=1)).day": ("import datetime", 3),
    "date(2026, 1, 2).isoformat()": ("from datetime import date", "2026-01-02"),
    "date.fromisoformat('2026-01-02').day": ("from datetime import date", 2),
    "timedelta(days=1).days": ("from datetime import timedelta", 1),
    "dict(Counter('aab'))": ("from collections import Counter", {"a": 2, "b": 1}),
    "d = defaultdict(list)\nd['a'].append(1)\ndict(d)": ("from collections import defaultdict", {"a": [1]}),
    "@dataclass\nclass A:\n    n: int = 1\nA().n": ("from dataclasses import dataclass", 1),
    "class C(Enum):\n    A = 1\nC.A.value": ("from enum import Enum", 1),
    "class T(TypedDict):\n    n: int\nT(n=1)": ("from typing import TypedDict", {"n": 1}),
    "str(sum(map(Decimal, ['1.5'])))": ("from decimal import Decimal", "1.5"),
    "mean([1, 3])": ("from statistics import mean", 2),
    "[k for k, _ in groupby('aab')]": ("from itertools import groupby", ["a", "b"]),
    "reduce(lambda a, b: a + b, [1, 2])": ("from functools import reduce", 3),
    "urllib.parse.quote('a b')": ("import urllib.parse", "a%20b"),
    "os.path.join('a', 'b')": ("import os", "a/b"),
    "await asyncio.gather(tools.a(n=1), tools.b(n=2))": ("import asyncio", [{"n": 1}, {"n": 2}]),
    "'''Doc.'''\njson.dumps(1)": ("import json", "1"),
    "from __future__ import annotations\njson.dumps(1)": ("import json", "1"),
    "from tools import *\njson.dumps(await a(n=1))": ("import json", '{"n": 1}'),
    "if True:\n    return json.dumps(1)\n2": ("import json", "1"),
}

LEFT_ALONE = [
    "import json\njson.dumps(1)",
    "from datetime import datetime\ndatetime.now()",
    "from datetime import *\ndatetime.now()",
    "def f(json):\n    return json.dumps(1)",
    "for copy in [1]:\n    print(copy)",
    "[random for random in [1]]",
    "calendar.meetings",
    "copy['a']",
    "product['name']",
    "mean",
    "print(date)",
    "await mean(values=[1])",
    "tools.json.dumps(n=1)\nx = {'json': 1}['json']",
    "def f(a: Optional[int]) -> List[str]:\n    return []",
    "globals()['json'] = 1\njson.dumps(1)",
    "x = 'json.dumps(1)'  # json.dumps(1)",
]


@pytest.mark.parametrize("source", ADDED)
def test_a_forgotten_import_is_added_and_told(source: str) -> None:
    line, value = ADDED[source]
    ran = run_python(source)
    assert ran.error is None
    assert ran.value == value
    assert [each.code for each in ran.program.diagnostics] == ["import_added"]
    assert f"`{line}` was added" in ran.program.diagnostics[0].message
    assert line.split()[1].partition(".")[0] in ran.program.imports


@pytest.mark.parametrize("source", LEFT_ALONE)
def test_a_name_that_is_bound_or_may_mean_something_else_is_left_alone(source: str) -> None:
    try:
        diagnostics = prepare_python(source).diagnostics
    except ProgramRejected:
        return  # a call that nothing awaits
    assert "import_added" not in [each.code for each in diagnostics]


def test_a_datetime_that_means_both_the_module_and_the_class_is_rejected() -> None:
    with pytest.raises(ProgramRejected, match="write `from datetime import datetime, timedelta`") as caught:
        prepare_python("start = datetime.now()\nend = start + datetime.timedelta(days=1)")
    assert (caught.value.line, caught.value.column) == (2, 15)


@pytest.mark.parametrize(
    "source", ["x = 1\njson.dumps(1)\n1 / 0", "'''Doc.'''\nfrom __future__ import annotations\njson.dumps(1 / 0)"]
)
def test_errors_keep_their_lines(source: str) -> None:
    position = run_python(source).position
    assert position is not None
    assert position.line == 3


def test_where_an_engine_has_not_got_the_module_it_says_so() -> None:
    with Corral(tools=[], sandbox="monty", check=False) as corral:
        there = corral.sync.execute("json.dumps([1])", language="python")
        missing = corral.sync.execute("statistics.mean([1, 2])", language="python")
    assert there.value == "[1]"
    assert missing.error is not None
    assert "statistics" in missing.error.message
