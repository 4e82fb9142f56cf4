"""Values of Python programs beyond the tables of docs/values.md, which tests/docs holds: depth, sizes, what is said."""

from __future__ import annotations

from typing import Any

import pytest

from corral import Corral, Limits
from tests.e2e.python_engines import Python, code_of, provider
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio


def nested(levels: int) -> str:
    return f"value = []\nfor _ in range({levels - 1}):\n    value = [value]\n"


async def test_a_hundred_levels_leave_and_one_more_does_not(python: Python) -> None:
    value: Any = await python.value(f"{nested(100)}value")
    for _ in range(99):
        [value] = value
    assert value == []
    result = await python.run(f"{nested(101)}value")
    assert "nested deeper than 100 levels" in str(result.error)
    result = await python.run(f"{nested(101)}await tools.echo(value)")
    assert (code_of(result), result.tool_calls) == ("invalid_arguments", ())


async def test_a_cycle_is_named_as_one(python: Python) -> None:
    wrong = Wrong()
    for cycle in ["a = []\na.append(a)\na", "a = {}\na['x'] = [a]\na", "a, b = [], []\na.append(b)\nb.append(a)\na"]:
        with wrong.case(cycle):
            assert "a cycle: the value contains itself" in str((await python.run(cycle)).error)
    assert wrong == []


async def test_a_cycle_through_an_object_is_named_too(cpython: Python) -> None:
    program = "class Node: pass\na = Node()\na.me = a\na"
    assert "result.me: a cycle" in str((await cpython.run(program)).error)


@pytest.mark.parametrize("digits", [4300, 4301])
async def test_integers_have_at_most_4300_digits_both_ways(python: Python, digits: int) -> None:
    result = await python.run(f"await tools.echo(10 ** {digits - 1})")
    if digits == 4300:
        assert result.value == 10**4299
    else:
        assert code_of(result) == "invalid_arguments"


async def test_an_iterator_without_an_end_is_too_large(cpython: Python) -> None:
    wrong = Wrong()
    for endless in ["itertools.count()", "itertools.repeat('x' * 1000)", "itertools.cycle([['a'] * 100])", "f()"]:
        with wrong.case(endless):
            program = "import itertools\ndef f():\n    while True:\n        yield {'a': 1}\n"
            result = await cpython.run(
                f"{program}{{'a': [{endless}]}}", limits=Limits(value_bytes=100_000, cpu_seconds=5)
            )
            assert (code_of(result), "has no end" in str(result.error)) == ("output_exceeded", True)
            result = await cpython.run(f"{program}await tools.echo({endless})", limits=Limits(cpu_seconds=5))
            assert (code_of(result), result.tool_calls) == ("message_too_large", ())
    assert wrong == []


async def test_an_error_within_a_generator_that_is_returned_is_the_programs(cpython: Python) -> None:
    result = await cpython.run("def f():\n    yield 1\n    yield {}['gone']\nf()")
    assert result.error is not None
    assert (result.error.name, result.error.line) == ("KeyError", 3)


async def test_lone_surrogates_are_replaced_and_cpython_says_so(python: Python) -> None:
    result = await python.run("[{'\\ud800': 'a\\udfffb'}, await tools.echo('\\ud800')]")
    assert result.value == [{"\ufffd": "a\ufffdb"}, "\ufffd"]
    said = [each.message for each in result.diagnostics]
    if python.engine == "cpython":
        assert [text.partition(" contained")[0] for text in said] == ["the result", "a tool call's input"]
    else:
        assert said == []


async def test_bytes_travel_unharmed_in_both_directions(python: Python) -> None:
    assert await python.value("await tools.echo({'data': bytes(range(256))})" if python.engine == "cpython" else
                              "await tools.echo({'data': b'\\x00\\xff'})") in ({"data": bytes(range(256))}, {"data": b"\x00\xff"})  # fmt: skip


async def test_text_that_looks_like_something_else_stays_text(python: Python) -> None:
    texts = ["<function 'f' external>", "range(3)", "[...]", "tools.add", "<coroutine object f>", "NaN", "$bytes"]
    assert await python.value(repr(texts)) == texts


async def test_what_cannot_be_read_fails_as_a_value_that_cannot_leave(cpython: Python) -> None:
    program = "class Odd(dict):\n    def items(self):\n        raise ValueError('no')\n[Odd(a=1)]"
    result = await cpython.run(program)
    assert (result.status, code_of(result)) == ("failed", "program_failed")
    endless = "from collections.abc import Sequence\nclass Odd(Sequence):\n    def __len__(self): return 2**40\n    def __getitem__(self, n): return 1\nOdd()"
    result = await cpython.run(endless, limits=Limits(cpu_seconds=0.5))
    assert result.status in {"failed", "timed_out"}


@pytest.mark.parametrize("kind", ["an async generator", "a file", "a lock"])
async def test_what_is_no_data_is_refused(cpython: Python, kind: str) -> None:
    program = {
        "an async generator": "async def f():\n    yield 1\n[f()]",
        "a file": "import io\n[io.StringIO('x')]",
        "a lock": "import threading\n[threading.Lock()]",
    }[kind]
    error = (await cpython.run(program)).error
    assert error is not None
    assert error.message.startswith("result[0]: a")


async def test_not_a_number_and_the_sign_of_zero_survive_the_round_trip(python: Python) -> None:
    value = await python.value("await tools.echo([float('nan'), float('inf'), -0.0, 1e300])")
    assert repr(value) == "[nan, inf, -0.0, 1e+300]"


async def test_a_user_string_is_its_text(cpython: Python) -> None:
    assert await cpython.value("from collections import UserString\n[UserString('a')]") == ["a"]


async def test_without_its_packages_a_program_has_no_numpy() -> None:
    async with Corral(sandbox=provider("cpython"), check=False) as corral:
        result = await corral.execute("import numpy", language="python")
    assert result.error is not None
    assert result.error.name == "ModuleNotFoundError"
