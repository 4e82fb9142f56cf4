"""What a model reads when its Python program is wrong: which error, where in its own source, and what to write."""

from __future__ import annotations

import sys

import pytest

from corral import Corral, ExecutionContext, Limits, tool
from tests.conftest import TOOLS
from tests.e2e.python_engines import Python, code_of, provider
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio


# --- places


async def test_an_error_has_the_place_in_the_source_that_the_model_wrote(python: Python) -> None:
    wrong = Wrong()
    for program, line, column in [
        ("1/0", 1, 1),
        ("x = 1\n\nx / 0", 3, 1),
        ("    x = 1\n    x / 0", 2, 5),
        ("```python\nx = 1\nx / 0\n```", 3, 1),
        ("Here is the program:\n\n```python\n\nx = 1\nx / 0\n```\nIt divides.", 6, 1),
        (">>> x = 1\n>>> x / 0", 2, 5),
        ("return 1 / 0", 1, 8),
        ("if True:\n    return 1 / 0", 2, 12),
        ("async def main():\n    x = 1\n    return x / 0\nawait main()", 3, 12),
        ("async def main():\n    return 1 / 0\nimport asyncio\nasyncio.run(main())", 2, 12),
        ("x = '\U0001f600'; y = 1 / 0", 1, 15),
        ("if True:\n    x = '\U0001f600'; y = 1 / 0\n    return y", 2, 19),
    ]:
        with wrong.case(program):
            error = (await python.run(program)).error
            assert error is not None
            assert (error.name, error.message, error.line, error.column) == (
                "ZeroDivisionError",
                "division by zero",
                line,
                column,
            )
    assert wrong == []


async def test_a_stack_has_only_frames_of_the_program(python: Python) -> None:
    program = "def outer():\n    return inner()\ndef inner():\n    return int('x')\nreturn outer()"
    error = (await python.run(program)).error
    assert error is not None
    assert error.stack is not None
    assert [line.strip() for line in error.stack.splitlines()] == [
        'File "program.py", line 5, in <module>',
        'File "program.py", line 2, in outer',
        'File "program.py", line 4, in inner',
    ]


async def test_frames_of_libraries_are_left_out(cpython: Python) -> None:
    error = (await cpython.run("import json\n\ndef read():\n    return json.loads('{')\nread()")).error
    assert error is not None
    assert (error.name, error.line, error.column) == ("JSONDecodeError", 4, 12)
    assert "json" not in str(error.stack)


async def test_a_traceback_that_the_program_prints_names_its_own_lines(cpython: Python) -> None:
    program = "```python\nimport traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()\n```"
    output = (await cpython.run(program)).console
    assert 'File "program.py", line 4, in <module>' in output
    assert "corral" not in output


async def test_endless_recursion_is_an_error_with_a_short_stack(python: Python) -> None:
    error = (await python.run("def f(n):\n    return f(n + 1)\nf(0)")).error
    assert error is not None
    assert (error.name, error.line) == ("RecursionError", 2)
    assert len(str(error.stack).splitlines()) <= 20
    assert await python.value(
        "def f():\n    return f()\ntry:\n    f()\nexcept RecursionError:\n    out = 'caught'\nout"
    ) == ("caught")


# --- causes and groups


async def test_the_cause_of_an_error_is_told(cpython: Python) -> None:
    wrong = Wrong()
    for how, cause in [
        ("raise RuntimeError('new') from error", "ToolError: old"),
        ("raise RuntimeError('new')", "ToolError: old"),
        ("raise RuntimeError('new') from None", None),
    ]:
        with wrong.case(how):
            program = f"try:\n    await tools.fail(message='old')\nexcept Exception as error:\n    {how}"
            error = (await cpython.run(program)).error
            assert error is not None
            assert (error.name, error.message, error.cause, error.line) == ("RuntimeError", "new", cause, 4)
    assert wrong == []


async def test_a_group_of_errors_shows_them_and_the_place_of_the_first(cpython: Python) -> None:
    program = (
        "import asyncio\nasync def bad():\n    raise ValueError('a')\nasync with asyncio.TaskGroup() as group:\n"
        "    group.create_task(bad())"
    )
    error = (await cpython.run(program)).error
    assert error is not None
    assert (error.name, error.line) == ("ExceptionGroup", 3)
    assert error.message == "unhandled errors in a TaskGroup (1 sub-exception): ValueError: a"
    caught = "import asyncio\ntry:\n    async with asyncio.TaskGroup() as group:\n        group.create_task(tools.fail(message='no'))\nexcept* ToolError as group:\n    out = [str(each) for each in group.exceptions]\nout"
    assert await cpython.value(caught) == ["no"]


async def test_an_error_that_cannot_be_read_is_said_to_be_one(cpython: Python) -> None:
    wrong = Wrong()
    for program in [
        "class Broken(Exception):\n    def __str__(self):\n        raise ValueError('no')\nraise Broken()",
        "class Broken(Exception):\n    def __getattribute__(self, name):\n        raise ValueError('no')\nraise Broken()",
    ]:
        with wrong.case(program):
            result = await cpython.run(program)
            assert result.status == "failed"
            assert code_of(result) == "program_failed"
    assert wrong == []


# --- what does not parse


async def test_what_does_not_parse_is_rejected_with_its_place(python: Python) -> None:
    wrong = Wrong()
    for program, name, line in [
        ("x = 1\ny = (1,\n", "SyntaxError", 2),
        ("def f():\nreturn 1", "IndentationError", 2),
        ("x = 1 +* 2", "SyntaxError", 1),
        ("```python\nawait tools.echo(a=1,, b=2)\n```", "SyntaxError", 2),
        ("x = 'abc", "SyntaxError", 1),
        ("break", "SyntaxError", 1),
    ]:
        with wrong.case(program):
            result = await python.run(program)
            assert result.error is not None
            assert (result.status, code_of(result), result.tool_calls) == ("rejected", "program_rejected", ())
            if python.engine == "cpython":
                assert (result.error.name, result.error.line) == (name, line)
            else:  # its parser says where it noticed
                assert result.error.line is not None
                assert line <= result.error.line <= line + 1
    assert wrong == []


async def test_a_hundred_thousand_brackets_are_refused(python: Python) -> None:
    result = await python.run("(" * 100_000 + ")" * 100_000)
    assert (result.status, code_of(result)) == ("rejected", "program_rejected")
    assert await python.value("1 + 1") == 2


async def test_an_error_says_what_to_write(cpython: Python) -> None:
    wrong = Wrong()
    for program, message in [
        ("try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    error.add_note('in step 2')\n    raise", "division by zero\nin step 2"),
        ("next(n for n in [1] if await tools.echo(n))", "into a list, `[... for ...]`"),
        ("page = {'items': [1]}\nfor each in page.items:\n    print(each)", 'write `page["items"]`'),
        ("page = {'items': [1]}\nlen(page.items)", 'write `page["items"]`'),
        ("import json\njson.loads(await tools.echo(None))", "leave `json.loads` out"),
        ("total = 1.5\ntotal += '2'", "convert the string to a number with `float(...)`"),
        ("round('2', 2)", "convert the string to a number with `float(...)`"),
        ("f\"{'2':,.2f}\"", "convert the string to a number with `float(...)`"),
        ("def f():\n    return await tools.echo(1)\nlist(map(f, []))", "write `async def`"),
        ("f = lambda n: await tools.echo(n)\nf(1)", "a `lambda` cannot await"),
    ]:  # fmt: skip
        with wrong.case(program):
            error = (await cpython.run(program)).error
            assert error is not None
            assert message in error.message
    assert wrong == []


async def test_errors_of_newer_python_name_the_version(cpython: Python) -> None:
    newer = sys.version_info >= (3, 12)
    wrong = Wrong()
    for program, advice in [
        ('ps = [{"a": 1}]\nf"{ps[0]["a"]} costs"', "the other kind of quotes"),
        ("f\"{'\\n'.join('ab')}\"", "to a variable first"),
        ("def first[T](x: T) -> T:\n    return x\nfirst(1)", "without type parameters"),
        ("type Row = dict\n1", "without the `type` statement"),
        ("from itertools import batched\n1", "range(0, len(items), n)"),
    ]:
        with wrong.case(program):
            error = (await cpython.run(program)).error
            assert (
                (error is None)
                if newer
                else (error is not None and "Python 3.11" in error.message and advice in error.message)
            )
    assert wrong == []
    broken = (await cpython.run('print(f"{1")')).error
    assert broken is not None
    assert "Python 3." not in broken.message


async def test_an_import_that_cannot_succeed_stops_the_program_before_it_runs(cpython: Python) -> None:
    cpython.received.clear()
    late = await cpython.run("await tools.accept(1)\nprint(1)\nimport not_there")
    assert (late.status, late.error and late.error.line, late.console) == ("rejected", 3, "")
    assert cpython.received == []
    for program in (
        "await tools.accept(1)\ntry:\n    import not_there\nexcept ImportError:\n    pass\n1",
        "x = 1\nimport json\n1",
    ):
        assert (await cpython.run(program)).value == 1


async def test_a_missing_module_is_named_with_what_there_is(python: Python) -> None:
    error = (await python.run("x = 1\nimport requests")).error
    assert error is not None
    assert (error.name, error.line) == ("ModuleNotFoundError", 2)
    assert error.message == (
        "No module named 'requests': programs may import the standard library."
        " Programs cannot access the network or start processes: call a tool."
        if python.engine == "cpython"
        else 'Monty has no module requests; CPythonSandbox(packages=["requests"]) has'
    )


# --- errors of calls


async def test_a_tools_error_can_be_caught_by_anyone(python: Python) -> None:
    program = "try:\n    await tools.fail(message='no luck')\nexcept Exception as error:\n    out = [type(error).__name__, str(error)]\nout"
    assert await python.value(program) == (
        ["ToolError", "no luck"] if python.engine == "cpython" else ["RuntimeError", "ToolError: no luck"]
    )


async def test_errors_of_calls_are_caught_by_their_classes(cpython: Python) -> None:
    wrong = Wrong()
    for call, catch, code in [
        ("tools.fail()", "ToolError", "tool_error"),
        ("tools.break_down()", "ToolFailed", "tool_failed"),
        ("tools.break_down()", "ToolError", "tool_failed"),
        ("tools.add(a='x', b=1)", "InvalidArguments", "invalid_arguments"),
        ("tools.add(a='x', b=1)", "ValueError", "invalid_arguments"),
        ("tools.add(a='x', b=1)", "TypeError", "invalid_arguments"),
        ("tools.ad(a=1)", "ToolNotFound", "tool_not_found"),
        ("tools.ad(a=1)", "AttributeError", "tool_not_found"),
        ("tools.ad(a=1)", "(KeyError, CorralError)", "tool_not_found"),
    ]:
        with wrong.case(call):
            assert (
                await cpython.value(f"try:\n    await {call}\nexcept {catch} as error:\n    out = error.code\nout")
                == code
            )
    assert wrong == []


async def test_in_monty_they_are_pythons_own() -> None:
    wrong = Wrong()
    for call, catch in [
        ("tools.fail()", "RuntimeError"),
        ("tools.add(a='x', b=1)", "ValueError"),
        ("tools.ad(a=1)", "AttributeError"),
    ]:
        with wrong.case(call):
            async with Corral([], sandbox=provider("monty"), check=False) as corral:
                program = f"try:\n    await {call}\nexcept {catch}:\n    out = 'caught'\nout"
                assert (await corral.execute(program, language="python", tools=TOOLS)).value == "caught"
    assert wrong == []


async def test_an_error_of_a_call_that_nobody_catches_ends_the_program_with_its_code(python: Python) -> None:
    result = await python.run("x = 1\nawait tools.fail(message='no luck')")
    assert result.error is not None
    assert (code_of(result), result.error.name, result.error.message) == ("tool_error", "ToolError", "no luck")
    assert result.error.line == 2


async def test_an_unexpected_exception_of_a_tool_shows_only_a_correlation_id(
    python: Python, caplog: pytest.LogCaptureFixture
) -> None:
    program = "try:\n    await tools.break_down()\nexcept Exception as error:\n    out = str(error)\nout"
    result = await python.run(program)
    assert "hunter2" not in str(result)
    assert result.value.rpartition("correlation id ")[2].rstrip(")") in caplog.text
    assert "hunter2" in caplog.text


async def test_a_misspelt_tool_is_answered_with_near_names(python: Python) -> None:
    wrong = Wrong()
    for call, near in [("tools.ad(a=1, b=2)", "add"), ("codemode.ecko()", "echo")]:
        with wrong.case(call):
            result = await python.run(f"await {call}")
            assert result.error is not None
            assert (code_of(result), result.error.line) == ("tool_not_found", 1)
            assert f"did you mean {near}?" in result.error.message
    assert wrong == []


async def test_positional_arguments_are_refused_and_nothing_is_guessed(python: Python) -> None:
    wrong = Wrong()
    for call in ["tools.add(1, 2)", "tools.add({'a': 1}, b=2)"]:
        with wrong.case(call):
            result = await python.run(f"await {call}")
            assert result.error is not None
            assert (code_of(result), result.error.name, result.tool_calls) == (
                "invalid_arguments",
                "InvalidArguments",
                (),
            )
            assert "takes keyword arguments" in result.error.message
    assert wrong == []


async def test_a_wrong_argument_is_named_by_its_path(python: Python) -> None:
    result = await python.run("await tools.add(a='wrong', b=2)")
    assert result.error is not None
    assert (code_of(result), result.error.message) == (
        "invalid_arguments",
        'tool "add": a: expected number, got string "wrong"',
    )


async def test_a_denial_is_a_permission_error_and_its_code_says_which(cpython: Python) -> None:
    @tool(scopes={"files:write"})
    async def remove() -> None: ...

    program = "name = 'rem' + 'ove'\ntry:\n    await tools[name]()\nexcept PermissionError as error:\n    out = [type(error).__name__, error.code]\nout"
    assert await cpython.value(program, tools=[remove]) == ["ScopeDenied", "scope_denied"]
    program = program.replace("PermissionError", "AccessDenied")
    assert await cpython.value(program, tools=[remove]) == ["ScopeDenied", "scope_denied"]


@pytest.mark.parametrize("engine", ["cpython", "monty"])
async def test_over_a_rate_the_error_says_when_to_try_again(engine: str) -> None:
    @tool(rate_limit="1/minute")
    async def look() -> int:
        return 1

    program = (
        "await tools.look()\ntry:\n    await tools.look()\nexcept PermissionError as error:\n"
        "    out = [str(error), getattr(error, 'retry_after_seconds', None)]\nout"
    )
    async with Corral([look], sandbox=provider(engine), check=False) as corral:
        result = await corral.execute(program, language="python", context=ExecutionContext(user_id="u"))
    text, seconds = result.raise_for_error().value
    assert "try again in" in text
    if engine == "cpython":
        assert 0 < seconds <= 60


async def test_over_the_budget_calls_raise(python: Python) -> None:
    program = (
        "out = []\nfor n in range(4):\n    try:\n        out.append(await tools.echo(n))\n"
        "    except Exception as error:\n        out.append(str(error))\nout"
    )
    result = await python.run(program, limits=Limits(calls=2))
    assert result.value[:2] == [0, 1]
    assert all("the budget of 2 tool calls is used up" in each for each in result.value[2:])
    assert len(result.tool_calls) == 2


async def test_an_input_that_cannot_leave_names_its_path(python: Python) -> None:
    result = await python.run("x = {'a': [1, lambda: 1]}\nawait tools.echo(x=x)")
    assert result.error is not None
    assert (code_of(result), result.error.line, result.tool_calls) == ("invalid_arguments", 2, ())
    assert "input.x.a[1]: a function cannot leave the sandbox" in result.error.message


# --- a forgotten await

USES = [
    "call + 1", "1 + call", "call - 1", "call * 2", "call / 2", "-call", "call['a']", "call[0]", "call.get('a')", "call.a",
    "len(call)", "list(call)", "dict(call)", "sorted(call)", "sum([call])", "max([call, call])", "for each in call: pass",
    "first, second = call", "3 in call", "call < 3", "int(call)", "float(call)", "round(call)", "abs(call)", "call()",
    "{**call}", "','.join([call])", "with call: pass", "call @ 1", "call << 1", "[1, 2][call]",
]  # fmt: skip
ALSO_CPYTHON = [
    "print(call)", "str(call)", "f'{call}'", "'%s' % call", "'{}'.format(call)", "call == 3", "call != 3",
    "if call: pass", "not call", "bool(call)", "while call: break", "import json; json.dumps(call)",
    "import json; json.dumps({'a': call})", "import datetime; datetime.timedelta(days=call)", "print(f'{call:>10}')",
]  # fmt: skip
NAMED = ("tools.add(...) was not awaited: write `await tools.add(...)`", "un-awaited tool call")


NOTHING = [
    ("o = {'items': None}\no['items'][3]", "'NoneType' object is not subscriptable: `o['items']` is None"),
    ("o = {'a': None}\no['a'].get('x')", "'NoneType' object has no attribute 'get': `o['a']` is None"),
    ("o = None\nfor each in o: pass", "'NoneType' object is not iterable: `o` is None"),
    (
        "def f(o):\n    for each in o['n']:\n        print(each)\nf({'n': None})",
        "'NoneType' object is not iterable: `o['n']` is None",
    ),
    ("o = None\n[each['b'] for each in o]", "'NoneType' object is not iterable: `o` is None"),
    ("o = None\nlen(o)", "object of type 'NoneType' has no len(): `o` is None"),
    ("o = {'n': None}\n1 + o['n']", "unsupported operand type(s) for +: 'int' and 'NoneType': `o['n']` is None"),
    ("o = None\nf'é {o[1]}'", "'NoneType' object is not subscriptable: `o` is None"),
    ("o = [None]\nsorted(o, key=lambda row: row['é'])", "'NoneType' object is not subscriptable: `row` is None"),
]


async def test_an_error_names_the_expression_that_is_none(python: Python) -> None:
    wrong = Wrong()
    for program, message in NOTHING:
        with wrong.case(program):
            error = (await python.run(program)).error
            assert error is not None
            assert error.message == message
    assert wrong == []


async def test_an_error_says_which_keys_and_elements_there_are(cpython: Python) -> None:
    wrong = Wrong()
    for program, message in [
        ("order = {'id': 1, 'name': 'x'}\norder['total']", "'total': `order` has no such key; it has 'id', 'name'"),
        ("o = {'a': [{'b': 1}]}\no['a'][0]['c']", "'c': `o['a'][0]` has no such key; it has 'b'"),
        ("rows = [{'n': 1}]\nsum(row['m'] for row in rows)", "'m': `row` has no such key; it has 'n'"),
        ("o = {}\no.pop('a')", "'a': `o` has no such key; it is empty"),
        (
            "o = {f'k{n}': n for n in range(30)}\no['a']",
            f"'a': `o` has no such key; it has {', '.join(repr(f'k{n}') for n in range(20))} and 10 more",
        ),
        ("o = [1, 2]\no[5]", "list index out of range: `o` has 2 elements"),
        ("o = {'a': 1}\no.a", "'dict' object has no attribute 'a': `o` is a dict; write `o[\"a\"]`"),
        ("o = {'a': 1}\no.b", "'dict' object has no attribute 'b': `o` is a dict; it has 'a'"),
        ("o = [{'a': 1}]\no['a']", "list indices must be integers or slices, not str: `o` is a list of 1 element"),
        (
            "class D(dict):\n    def keys(self): 1 / 0\n    __getattr__ = keys\no = D()\no['a']",
            "'a': `o` has no such key",
        ),
        ("raise KeyError('own')", "'own'"),
        ("def f():\n    raise TypeError(\"'NoneType' mine\")\nf()", "'NoneType' mine"),
    ]:
        with wrong.case(program):
            error = (await cpython.run(program)).error
            assert error is not None
            assert error.message == message
    assert wrong == []


async def test_a_call_that_was_not_awaited_is_named_where_it_is_used(python: Python) -> None:
    wrong = Wrong()
    for use in USES:
        with wrong.case(use):
            await fails_by_name(python, use)
    assert wrong == []


async def test_in_cpython_also_where_it_is_shown_or_compared(cpython: Python) -> None:
    wrong = Wrong()
    for use in ALSO_CPYTHON:
        with wrong.case(use):
            await fails_by_name(cpython, use)
    assert wrong == []


async def fails_by_name(python: Python, use: str) -> None:
    result = await python.run(f"call = [tools.add(a=1, b=2)][0]\n{use}")
    assert result.error is not None
    assert (code_of(result), result.error.line) == ("program_failed", 2)
    assert any(text in result.error.message for text in NAMED), result.error.message
    assert [(left.tool, left.line) for left in result.unawaited] == [("add", 1)]


async def test_a_result_with_a_call_that_was_not_awaited_is_refused(python: Python) -> None:
    wrong = Wrong()
    for program in ["call = tools.add(a=1, b=2)\n[call]", "call = tools.add(a=1, b=2)\nreturn {'sum': call}"]:
        with wrong.case(program):
            result = await python.run(program)
            assert result.error is not None
            assert NAMED[0] in result.error.message
    assert wrong == []


async def test_where_it_is_sure_the_program_does_not_start(python: Python) -> None:
    wrong = Wrong()
    for program in ["f = lambda: tools.add(a=1, b=2)['sum']\nf()", "for each in tools.add(a=1, b=2): pass"]:
        with wrong.case(program):
            result = await python.run(program)
            assert (result.status, result.containment) == ("rejected", None)
            assert result.error is not None
            assert "is not awaited" in result.error.message
            assert "await tools.add(...)" in result.error.message
    assert wrong == []


async def test_a_call_cannot_be_awaited_twice_in_cpython(cpython: Python) -> None:
    error = (await cpython.run("call = tools.echo(1)\n[await call, await call]")).error
    assert error is not None
    assert "was already awaited" in error.message


# --- programs that end themselves


async def test_a_program_may_end_itself_with_success(cpython: Python) -> None:
    wrong = Wrong()
    for program, value in [
        ("import sys\nsys.exit()", None),
        ("import sys\nsys.exit(0)", None),
        ("raise SystemExit", None),
        ("exit()", None),
    ]:
        with wrong.case(program):
            assert await cpython.value(program) == value
    assert wrong == []


async def test_an_exit_with_a_status_is_a_failure(cpython: Python) -> None:
    wrong = Wrong()
    for program, message in [
        ("import sys\nsys.exit(3)", "the program ended itself with 3"),
        ("import sys\nsys.exit('no data')", "the program ended itself with 'no data'"),
        ("quit(2)", "the program ended itself with 2"),
        (
            "import asyncio\nasync def f():\n    raise SystemExit(4)\nawait asyncio.gather(f())",
            "the program ended itself with 4",
        ),
    ]:
        with wrong.case(program):
            result = await cpython.run(program)
            assert result.error is not None
            assert (result.error.name, result.error.message, result.status) == ("SystemExit", message, "failed")
    assert wrong == []


async def test_an_interrupt_of_its_own_ends_only_the_program(python: Python) -> None:
    result = await python.run("await tools.nothing()\nraise KeyboardInterrupt")
    assert result.error is not None
    assert (result.error.name, result.error.line, code_of(result)) == ("KeyboardInterrupt", 2, "program_failed")
    assert await python.value("1 + 1") == 2


async def test_a_process_that_ends_itself_is_a_lost_sandbox(cpython: Python) -> None:
    result = await cpython.run("import os\nprint('before', flush=True)\nos._exit(0)")
    assert (code_of(result), result.status, result.console) == ("sandbox_lost", "failed", "before\n")
    assert await cpython.value("1 + 1") == 2
