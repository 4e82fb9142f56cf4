"""What programs can do with tools, values and the console. Names in comments are those of the cases in tests/cases."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import pytest
from pydantic import BaseModel

from corral import Corral, ExecutionContext, ExecutionResult, Limits, ToolError, define_tool, tool
from corral.errors import CALL_ERRORS
from corral.events import ConsoleOutput
from corral.guest.python.failures import failure_class
from corral.sandboxes import DenoSandbox
from corral.tools import ToolRegistry
from corral.types import Language
from tests.conftest import TOOLS, open_corral
from tests.e2e.clocks import UNLIMITED, WallClock, at_once
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    """One for all: each execution has a process of its own."""
    async with open_corral() as corral:
        yield corral


def receiver(name: str = "accept", output: object = None) -> tuple[Any, list[Any]]:
    """A tool without schemas, and the list of the inputs it got. It returns `output`, or its input."""
    received: list[Any] = []

    async def execute(input: Any) -> Any:
        received.append(input)
        return input if output is None else output

    return define_tool(name=name, execute=execute), received


# --- calling


async def test_replies_that_are_ready_while_others_are_written_all_arrive(warm_deno: DenoSandbox) -> None:
    """More than a pipe holds, each awaited: a reply is ready while another task waits for the guest to read."""

    async def text(input: dict[str, int]) -> str:
        await anyio.sleep(input["number"] % 7 / 1000)
        return "x" * 600_000

    program = """
        const read = async (part) => {
            let length = 0;
            for (let number = 0; number < 10; number++) length += (await tools.text({ number: part * 5 + number })).length;
            return length;
        };
        return await Promise.all(Array.from({ length: 9 }, (_, part) => read(part)));
    """
    async with Corral([define_tool(name="text", execute=text)], sandbox=warm_deno, check=False) as corral:
        result = await corral.execute(program)
    assert result.value == [6_000_000] * 9, result.error
    assert len(result.tool_calls) == 90


async def test_a_call_reaches_the_tool_and_its_result_the_program(warm_deno: DenoSandbox) -> None:  # ex-tool-call
    accept, received = receiver("add", output=7)
    result = await Corral([accept], sandbox=warm_deno, check=False).execute("return await tools.add({a: 3, b: 4})")
    assert result.value == 7
    assert received == [{"a": 3, "b": 4}]


async def test_sequential_calls_keep_their_order(warm_deno: DenoSandbox) -> None:  # ex-sequential-same-tool
    get, received = receiver("get")
    result = await Corral([get], sandbox=warm_deno, check=False).execute(
        "const a = await tools.get({path: '/a'}); const b = await tools.get({path: '/b'}); return [a, b]"
    )
    assert result.value == [{"path": "/a"}, {"path": "/b"}] == received
    assert [call.sequence for call in result.tool_calls] == [1, 2]


async def test_parallel_results_come_in_the_order_of_their_arguments(corral: Corral) -> None:  # ex-parallel-order
    result = await corral.execute("return await Promise.all([0.09, 0.05, 0.01].map(seconds => tools.wait({seconds})))")
    assert result.value == [0.09, 0.05, 0.01]


async def test_parallel_calls_are_under_way_together(warm_deno: DenoSandbox) -> None:
    under_way = 0
    all_are = anyio.Event()

    @tool
    async def meet() -> None:
        """Returns when all twenty are there."""
        nonlocal under_way
        under_way += 1
        if under_way == 20:
            all_are.set()
        await all_are.wait()

    program = "await Promise.all(Array.from({length: 20}, () => tools.meet())); return 'done'"
    assert (await Corral([meet], sandbox=warm_deno, check=False).execute(program)).value == "done"


async def test_a_call_without_an_argument_sends_an_empty_object(warm_deno: DenoSandbox) -> None:
    accept, received = receiver()
    await Corral([accept], sandbox=warm_deno, check=False).execute(
        "await tools.accept(); await tools.accept(undefined)"
    )
    assert received == [{}, {}]


async def test_positional_arguments_are_refused_before_the_tool_runs(corral: Corral) -> None:
    result = await corral.execute("return await tools.add(1, 2)")
    assert result.error is not None
    assert result.error.code == "invalid_arguments"
    assert "one object" in result.error.message
    assert result.tool_calls == ()


async def test_invalid_arguments_name_the_tool_and_the_path(corral: Corral) -> None:  # ex-invalid-args
    result = await corral.execute('return await tools.add({a: "wrong", b: 2})')
    assert result.error is not None
    assert (result.error.code, result.error.name) == ("invalid_arguments", "InvalidArguments")
    assert "add" in result.error.message
    assert "a:" in result.error.message
    assert result.tool_calls[0].error is not None


async def test_a_tools_error_is_an_error_in_the_program(corral: Corral) -> None:  # ex-tool-throws-caught
    result = await corral.execute(
        """try { await tools.fail({message: "no luck"}) }
        catch (e) { return {isError: e instanceof Error, message: e.message, name: e.name, code: e.code} }"""
    )
    assert result.value == {"isError": True, "message": "no luck", "name": "ToolError", "code": "tool_error"}


async def test_errors_of_calls_are_caught_by_their_classes(corral: Corral) -> None:
    wrong = Wrong()
    for call, classes in [
        ("tools.fail()", "ToolError CorralError Error"),
        ("tools.break_down()", "ToolFailed ToolError CorralError Error"),
        ("tools.add({ a: 'x', b: 1 })", "InvalidArguments ToolError CorralError Error"),
        ("tools.ad()", "ToolNotFound ToolError CorralError Error"),
        ("tools.refuse()", "TooBusy ToolError CorralError Error"),
        ("Promise.reject(new Error('own'))", "Error"),
        ("Promise.reject(new ToolError('own'))", "ToolError CorralError Error"),
    ]:
        with wrong.case(call):

            class TooBusy(ToolError):
                """An error of the host's own."""

            @tool
            def refuse() -> None:
                raise TooBusy("later")

            program = f"""try {{ await {call} }} catch (error) {{
              const found = [];
              for (let each = error; each !== Object.prototype; each = Object.getPrototypeOf(each)) found.push(each.name);
              const known = [ToolError, CorralError, Error].filter((each) => error instanceof each).map((each) => each.name);
              return [found.slice(1).join(" "), known.join(" ")]
            }}"""
            result = await corral.execute(program, tools=[*TOOLS, refuse])
            known = " ".join(each for each in classes.split() if each in ("ToolError", "CorralError", "Error"))
            assert result.value == [classes, known]
    assert wrong == []


async def test_programs_find_the_errors_of_calls_in_their_order(corral: Corral) -> None:
    names = [each.__name__ for each in CALL_ERRORS]
    result = await corral.execute(f"return [{', '.join(names)}].map((each) => Object.getPrototypeOf(each).name)")
    assert result.value == ["Error", *(failure_class(name).__bases__[0].__name__ for name in names[1:])]
    failed = await corral.execute("throw new ToolError('none is left')")
    assert failed.error is not None
    assert (failed.error.code, failed.error.name, failed.error.line) == ("program_failed", "ToolError", 1)


async def test_an_unexpected_exception_shows_only_a_correlation_id(
    corral: Corral, caplog: pytest.LogCaptureFixture
) -> None:
    result = await corral.execute("try { await tools.break_down() } catch (e) { return e.message + e.stack }")
    assert "hunter2" not in str(result)
    assert "/srv/app" not in str(result)
    [call] = result.tool_calls
    assert call.error is not None
    correlation = call.error.message.split("correlation id ")[1].rstrip(")")
    assert correlation in caplog.text
    assert "hunter2" in caplog.text


async def test_an_unknown_tool_is_answered_with_near_names(warm_deno: DenoSandbox) -> None:
    wrong = Wrong()
    for program, near in [
        ("return await tools.ad({a: 1, b: 2})", "add"),
        ("return await tools.github.list_isues({})", "github.list_issues"),
        ("return await tools.github.list_issue({})", "github.list_issues"),
        ("return await codemode.ecko({})", "echo"),
    ]:
        with wrong.case(program):
            issues, _ = receiver("list_issues")
            registry = ToolRegistry(*TOOLS)
            registry.register(issues, namespace="github")
            result = await Corral(registry, sandbox=warm_deno, check=False).execute(program)
            assert result.error is not None
            assert result.error.code == "tool_not_found"
            assert near in result.error.message
    assert wrong == []


async def test_an_unknown_namespace_is_answered_too(corral: Corral) -> None:
    result = await corral.execute("return await tools.nope.foo()")
    assert result.error is not None
    assert result.error.code == "tool_not_found"
    assert "nope.foo" in result.error.message


async def test_tools_can_be_listed_and_are_not_thenable(warm_deno: DenoSandbox) -> None:  # ex-enumerate-tools
    issues, _ = receiver("list_issues")
    registry = ToolRegistry(*TOOLS)
    registry.register(issues, namespace="github")
    result = await Corral(registry, sandbox=warm_deno, check=False).execute(
        """const same = (await tools) === tools && (await tools.github) === tools.github;
        return [Object.keys(tools), Object.keys(tools.github), "add" in tools, "nope" in tools, same,
                JSON.stringify(tools.github), typeof tools.then, `${typeof tools.nope}`]"""
    )
    names = ["add", "break_down", "echo", "fail", "github", "nothing", "wait"]
    assert sorted(result.value[0]) == names
    assert result.value[1:] == [["list_issues"], True, False, True, "{}", "undefined", "function"]


async def test_tools_cannot_be_replaced_by_the_program(corral: Corral) -> None:
    result = await corral.execute("try { tools.add = () => 0 } catch (e) { return e.name }")
    assert result.value == "TypeError"


async def test_a_tool_that_returns_nothing_gives_undefined(corral: Corral) -> None:  # ex-tool-returns-undefined
    result = await corral.execute("return typeof (await tools.nothing({}))")
    assert result.value == "undefined"


async def test_a_tool_added_or_removed_while_a_program_runs_is_seen_at_once(warm_deno: DenoSandbox) -> None:
    registry = ToolRegistry()
    late, received = receiver("late")

    @tool
    async def change() -> None:
        registry.register(late)
        registry.remove("early")

    early, _ = receiver("early")
    registry.register(change, early)
    result = await Corral(registry, sandbox=warm_deno, check=False).execute(
        "await tools.early(); await tools.change(); await tools.late({x: 1}); await tools.early()"
    )
    assert received == [{"x": 1}]
    assert result.error is not None
    assert result.error.code == "tool_not_found"


async def test_an_execution_may_have_tools_of_its_own(corral: Corral) -> None:
    mine, _ = receiver("mine", output="own")
    result = await corral.execute("return [await tools.mine(), Object.keys(tools)]", tools=[mine])
    assert result.value == ["own", ["mine"]]
    assert (await corral.execute("return await tools.add({a: 1, b: 2})")).value == 3


async def test_the_context_reaches_the_tool_and_nothing_of_it_the_program(warm_deno: DenoSandbox) -> None:
    @tool
    async def who(context: ExecutionContext) -> str:
        return f"{context.user_id} of {context.organization_id} with {sorted(context.scopes)}"

    context = ExecutionContext(user_id="u1", organization_id="acme", scopes=["b", "a"])
    result = await Corral([who], sandbox=warm_deno, check=False).execute("return await tools.who()", context=context)
    assert result.value == "u1 of acme with ['a', 'b']"


async def test_a_sync_tool_does_not_block_the_event_loop(warm_deno: DenoSandbox) -> None:
    threads: list[str] = []
    meet = threading.Barrier(3, timeout=30)

    @tool
    def block() -> int:
        threads.append(threading.current_thread().name)
        return meet.wait()  # passes only if three run at the same time

    result = await Corral([block], sandbox=warm_deno, check=False).execute(
        "return (await Promise.all([1, 2, 3].map(() => tools.block()))).length"
    )
    assert result.value == 3
    assert threading.main_thread().name not in threads


async def test_a_tool_has_a_time_limit_of_its_own(warm_deno: DenoSandbox) -> None:
    @tool(timeout_seconds=0.05)
    async def slow() -> None:
        await anyio.sleep(30)

    result = await Corral([slow], sandbox=warm_deno, check=False).execute("await tools.slow()")
    assert result.error is not None
    assert result.error.code == "tool_failed"
    assert "0.05 s" in result.error.message


async def test_a_tool_whose_own_scope_is_cancelled_fails_in_the_program(warm_deno: DenoSandbox) -> None:
    @tool
    async def cancels_itself() -> None:
        raise anyio.get_cancelled_exc_class()

    result = await Corral([cancels_itself], sandbox=warm_deno, check=False).execute(
        "try { await tools.cancels_itself() } catch (e) { return e.name }"
    )
    assert result.value == "ToolFailed"


# --- calls that nobody awaits


async def test_a_call_that_nobody_awaits_is_finished_and_named(corral: Corral) -> None:  # ex-unawaited-rejection
    result = await corral.execute("const x = 1;\n  tools.fail({message: 'lost'});\nreturn x")
    assert result.value == 1
    [call] = result.unawaited
    assert (call.tool, call.error, call.line) == ("fail", "ToolError: lost", 2)
    assert "never awaited" in result.model_text()


async def test_the_loser_of_a_race_counts_as_awaited(corral: Corral, lasting_grace: None) -> None:
    result = await corral.execute(
        "return await Promise.race([tools.wait({seconds: 0.1}), tools.wait({seconds: 0.01})])"
    )
    assert result.value == 0.01
    assert result.unawaited == ()
    assert [call.duration_ms is not None for call in result.tool_calls] == [True, True]


async def test_a_timer_may_win_over_a_tool(corral: Corral) -> None:
    program = """const late = new Promise(resolve => setTimeout(() => resolve("timer"), 1));
        return await Promise.race([tools.wait({seconds: 3600}).then(() => "tool"), late])"""
    result = await at_once(corral.execute(program, limits=UNLIMITED))
    assert result.value == "timer"


async def test_calls_that_nobody_can_observe_any_more_do_not_hold_the_result(corral: Corral) -> None:
    wrong = Wrong()
    for program, value in [
        (
            """const late = new Promise((_, no) => setTimeout(() => no(new Error('late')), 20));
            return await Promise.race([tools.wait({seconds: 3600}), late]).catch(error => error.message)""",
            "late",
        ),
        ("return await Promise.any([tools.wait({seconds: 3600}), tools.wait({seconds: 0})])", 0),
        ("console.log(await Promise.race([tools.wait({seconds: 3600}), tools.wait({seconds: 0})]))", None),
        ("try { await Promise.all([tools.fail({message: 'x'}), tools.wait({seconds: 3600})]) } catch { return 1 }", 1),
    ]:
        with wrong.case(program):
            result = await at_once(corral.execute(program, limits=UNLIMITED))
            assert result.value == value
            assert "never" not in result.console
            cut = [call for call in result.tool_calls if call.error is not None and call.error.code == "cancelled"]
            assert {call.name for call in cut} == {"wait"}
            [remark] = [each.message for each in result.diagnostics if each.code == "cancelled"]
            assert "tools.wait" in remark
            assert "maybe after they took effect" in remark
    assert wrong == []


async def test_an_error_of_the_program_does_not_wait_for_its_other_calls(corral: Corral) -> None:
    program = "await Promise.all([tools.fail({message: 'x'}), tools.wait({seconds: 3600})])"
    result = await at_once(corral.execute(program, limits=UNLIMITED))
    assert (result.status, result.unawaited) == ("failed", ())
    assert "taken effect before they were cut short: wait" in result.model_text()


async def test_a_program_without_a_value_goes_on_until_its_calls_have_ended(corral: Corral) -> None:
    result = await corral.execute(
        """[0, 1].forEach(async (id) => {
             const seconds = await tools.wait({seconds: 0.4}); console.log(id, await tools.echo(seconds)) })"""
    )
    assert sorted(result.console.splitlines()) == ["0 0.4", "1 0.4"]
    assert [call.error for call in result.tool_calls] == [None] * 4


async def test_a_program_that_has_failed_makes_no_more_calls(corral: Corral, lasting_grace: None) -> None:
    result = await corral.execute(
        "for (let n = 0; n < 3; n++) (async () => { await tools.wait({seconds: 0.01}); await tools.echo(1) })();"
        "throw 'done'"
    )
    assert [call.name for call in result.tool_calls] == ["wait", "wait", "wait"]
    [remark] = [each.message for each in result.diagnostics]
    assert "tools.echo was not called: the program had ended" in remark


STARTED = pytest.mark.matrix(
    "the gate runs these programs forked, and others of the event loop in an engine of their own"
)
CHANGE = "const {n: said} = await tools.echo({n}); done.push(said)"


@pytest.mark.parametrize("isolation", ["fork", pytest.param("process", marks=STARTED)])
async def test_a_value_is_written_when_all_that_the_program_began_has_ended(
    warm_deno: DenoSandbox, isolation: Literal["process", "fork"]
) -> None:
    wrong = Wrong()
    sandbox = warm_deno if isolation == "fork" else DenoSandbox(isolation="process")
    async with Corral(TOOLS, sandbox=sandbox, check=False) as corral:
        for program, left in {
            f"[1, 2].forEach(async (n) => {{ if (n) {{ {CHANGE} }} }}); return done": 2,
            f"[1, 2].forEach(async (n) => {{ await tools.echo({{n}}); {CHANGE} }}); return {{done}}.done": 4,
            "[1, 2].forEach(async (n) => { done.push(await Promise.resolve(n)) }); return done": 0,
            f"[1, 2].forEach((n) => setTimeout(async () => {{ {CHANGE} }}, n)); return done": 2,
            f"const go = async (n) => {{ {CHANGE} }}; setTimeout(go, 1, 1); setImmediate(go, 2); return done": 2,
            f"[1, 2].forEach(async (n) => {{ await new Promise((r) => setTimeout(r, n)); {CHANGE} }}); return done": 2,
            "return [1, 2].map(async (n) => (await tools.echo({n})).n)": 0,
            "setInterval(() => {}, 1); setTimeout(() => { throw new Error('late') }, 3_600_000); return [1, 2]": 0,
        }.items():
            with wrong.case(program):
                result = await at_once(corral.execute(f"const done = []; {program}", limits=UNLIMITED))
                assert sorted(result.raise_for_error().value) == [1, 2]
                assert len(result.unawaited) == left
                assert ("took effect although the program did not wait for them" in result.model_text()) == (left > 0)
    assert wrong == []


async def test_of_calls_that_nobody_waited_for_only_effects_are_told_as_such(warm_deno: DenoSandbox) -> None:
    @tool(read_only=True)
    async def look(n: int) -> int:
        return n

    @tool
    async def change(n: int) -> int:
        return n

    program = "for (const n of [1, 2]) { tools.change({n}); tools.look({n}) } return 'done'"
    async with Corral([look, change], sandbox=warm_deno, check=False) as corral:
        text = (await corral.execute(program)).model_text()
        timer = await corral.execute("setTimeout(() => tools.change({n: 3}), 1)")
    effects = 'did not wait for them; do not repeat them: change ×2: {"n":1}, {"n":2}'
    assert (text.count(effects), text.count("change"), text.count("tools.look was called at line 1 and never")) == (
        1,
        1,
        2,
    )
    assert (timer.status, timer.value, [call.name for call in timer.tool_calls]) == ("succeeded", None, ["change"])


async def test_a_tool_that_must_finish_is_waited_for_within_the_wall_clock(
    warm_deno: DenoSandbox, wall_clock: WallClock
) -> None:
    ended: list[str] = []
    cut = anyio.Event()

    @tool(must_finish=True)
    async def pay(ever: bool = False) -> str:
        await cut.wait()
        if ever:
            wall_clock.run_out()
            await anyio.sleep_forever()
        ended.append("pay")
        return "paid"

    @tool
    async def look() -> None:
        try:
            await anyio.sleep_forever()
        finally:  # the grace of calls that need not finish is over
            cut.set()

    async with Corral([pay, look], sandbox=warm_deno, check=False, limits=UNLIMITED) as corral:
        result = await corral.execute("await Promise.race([tools.pay(), tools.look(), 1]); return 1")
        assert (result.value, ended) == (1, ["pay"])
        assert {call.name: call.error and call.error.code for call in result.tool_calls} == {
            "pay": None,
            "look": "cancelled",
        }
        cut = anyio.Event()
        failed = await corral.execute("tools.look(); await Promise.all([tools.pay(), tools.nope()])")
        assert (failed.status, ended) == ("failed", ["pay", "pay"])
        cut = anyio.Event()
        late = await corral.execute("await Promise.race([tools.pay({ever: true}), tools.look(), 2]); return 2")
        assert (late.value, ended) == (2, ["pay", "pay"])
        assert "cut short" in late.model_text()


async def test_an_error_names_the_expression_that_is_undefined(corral: Corral) -> None:
    wrong = Wrong()
    for program, shown in [
        ("const o = {}; o.items.total", "o.items"),
        ("const o = {}; o.items[3].total", "o.items"),
        ("const o = {items: []}; o.items[3].total", "o.items[3]"),
        ("const o = {items: []}; const k = 'a'; o.items[o.items.length + 1][k]", "o.items[o.items.length + 1]"),
        ("const o = {f() {}}; o.f(1, ')').x", "o.f(1, ')')"),
        ("const o = {}; '😀'; o\n  .a\n  .b", "o.a"),
        ("const o = {}; (o.a ?? o.b).z", "(o.a ?? o.b)"),
        ("Here:\n\n```ts\nconst o: any = {};\no.a!.b = 1\n```\n", "o.a!"),
        ("const o = {a: {}}; o.a.b[0] = 1", "o.a.b"),
        ("[undefined].map(row => row.name)", "row"),
        ("const o = {}; return `${o?.a.b}`", "o?.a"),
        ("const {a: {b}} = {}; ", None),
        ("throw new TypeError(\"Cannot read properties of undefined (reading 'x')\")", None),
        (f"const o = {{}}; o['{'x' * 100}'].a", None),
    ]:
        with wrong.case(program):
            error = (await corral.execute(program, check=False)).error
            assert error is not None
            assert error.name == "TypeError"
            assert error.message.partition(": ")[2] == ("" if shown is None else f"`{shown}` is undefined")
    assert wrong == []


async def test_an_iterator_without_an_end_is_too_large(corral: Corral) -> None:
    endless = "function* endless() { for (;;) yield { a: 1 } };"
    result = await corral.execute(f"{endless} return {{ a: [endless()] }}", limits=Limits(cpu_seconds=5))
    assert result.error is not None
    assert result.error.code == "output_exceeded"
    result = await corral.execute(f"{endless} await tools.echo(endless())", limits=Limits(cpu_seconds=5))
    assert result.error is not None
    assert (result.error.code, result.tool_calls) == ("message_too_large", ())


async def test_a_promise_that_fails_unseen_is_reported(corral: Corral) -> None:
    result = await corral.execute("Promise.reject(new Error('unseen')); return 1")
    assert result.value == 1
    assert "unseen" in result.diagnostics[0].message


# --- values


# What becomes of values is a table in docs/values.md, which tests/docs/test_values.py runs. Here is what it does not say.

CANNOT_LEAVE = {
    "{a: {b: [1, () => 1]}}": ("result.a.b[1]", "function"),
    "(() => { const a = []; a.push([a]); return a })()": ("result[0][0]", "cycle"),
    "(() => { const a = { kids: [{}] }; a.kids[0].parent = a; return { a } })()": ("result.a.kids[0].parent", "cycle"),
    "(() => { const a = {}; a.next = { a }; return [new Map([['a', a]])] })()": ("result[0].a.next.a", "cycle"),
    "Array.from({length: 200}).reduce(inner => [inner], 1)": ("result[0][0]", "deeper than 100"),
    "{f: tools.add}": ("result.f", "function"),
}


async def test_a_value_that_cannot_leave_is_an_error_with_its_path(corral: Corral) -> None:
    wrong: dict[str, object] = {}
    for expression, (path, reason) in CANNOT_LEAVE.items():
        result = await corral.execute(f"const value = {expression}; return value")
        message = result.error.message if result.error else ""
        if (result.status, message.startswith(path), reason in message) != ("failed", True, True):
            wrong[expression] = result.error
    assert wrong == {}


async def test_a_cyclic_argument_is_refused_before_the_tool_runs(warm_deno: DenoSandbox) -> None:  # ex-circular-arg
    accept, received = receiver()
    result = await Corral([accept], sandbox=warm_deno, check=False).execute(
        "const a = {}; a.a = a; try { await tools.accept(a) } catch (e) { return [e.code, e.message] }"
    )
    assert result.value[0] == "invalid_arguments"
    assert "input.a: a cycle" in result.value[1]
    assert received == []


async def test_bytes_come_back_as_they_went(warm_deno: DenoSandbox) -> None:  # ex-bytes-arg, ex-arraybuffer
    accept, received = receiver()
    result = await Corral([accept], sandbox=warm_deno, check=False).execute(
        """const view = await tools.accept({bytes: new Uint8Array([1, 2, 3])});
        const buffer = await tools.accept(new Uint8Array([4, 5, 6]).buffer);
        return [view.bytes instanceof Uint8Array, [...view.bytes],
                buffer instanceof ArrayBuffer, [...new Uint8Array(buffer)]]"""
    )
    assert received == [{"bytes": b"\x01\x02\x03"}, b"\x04\x05\x06"]
    assert result.value == [True, [1, 2, 3], True, [4, 5, 6]]


async def test_lone_surrogates_are_replaced_and_it_is_said(corral: Corral) -> None:
    result = await corral.execute("return 'a\\ud800b'")
    assert result.value == "a\ufffdb"
    assert "surrogate" in result.diagnostics[0].message


class Colour(enum.Enum):
    RED = "red"


class Model(BaseModel):
    when: datetime.date
    price: decimal.Decimal


@dataclass
class Point:
    x: int
    colour: Colour


async def test_objects_of_the_hosts_classes_reach_the_program_as_data(warm_deno: DenoSandbox) -> None:
    made = [
        Colour.RED,
        Point(1, Colour.RED),
        Model(when=datetime.date(2026, 1, 2), price=decimal.Decimal("2.50")),
        {Colour.RED: "b"},
    ]
    give, _ = receiver("give", output=made)
    result = await Corral([give], sandbox=warm_deno, check=False).execute("return await tools.give()")
    expected = ["red", {"x": 1, "colour": "red"}, {"when": "2026-01-02", "price": "2.50"}, {"red": "b"}]
    assert (result.error, result.value) == (None, expected)


async def test_json_of_a_large_integer_is_the_integer(warm_deno: DenoSandbox) -> None:
    give, _ = receiver("give", output=2**60)
    result = await Corral([give], sandbox=warm_deno, check=False).execute("""
        const value = await tools.give();
        const asText = (_, each) => (typeof each === "bigint" ? `${each}` : each);
        const asList = (_, each) => (each instanceof Map ? [...each] : each);
        return [
            JSON.stringify({ id: value, n: 1 }),
            JSON.stringify([value], asText),
            JSON.stringify([new Map([[1, value]])], asList),
            (BigInt.prototype.toJSON = () => "own", JSON.stringify({ value })),
        ];
    """)
    assert (result.error, result.value) == (
        None,
        [
            '{"id":1152921504606846976,"n":1}',
            '["1152921504606846976"]',
            "[[[1,1152921504606846976]]]",
            '{"value":"own"}',
        ],
    )


@pytest.mark.parametrize(
    ("use", "note"),
    [
        ("(await tools.echo(2n ** 60n)) * 2", "integers beyond 2^53 arrive as BigInt: use Number(x)"),
        ("Math.max(await tools.echo(2n ** 60n), 1)", "integers beyond 2^53 arrive as BigInt: use Number(x)"),
    ],
)
async def test_a_failure_over_what_a_tool_returned_says_what_that_is(corral: Corral, use: str, note: str) -> None:
    result = await corral.execute(f"return {use}")
    assert result.status == "failed"
    assert note in result.model_text()


@pytest.mark.parametrize(
    ("language", "loop", "is_told"),
    [
        ("typescript", "for (const each of (await tools.echo('two')) as any[]) console.log(each.name)", True),
        ("typescript", "const all = await tools.echo('two');\nfor (const each of all) console.log(each)", True),
        ("typescript", "for (const each of (await tools.echo('a b')).split(' ')) console.log(each)", False),
        ("typescript", "for (const each of await tools.echo(['two'])) console.log(each)", False),
        ("python", "all = await tools.echo('two')\nprint([each for each in all])", True),
        ("python", "all = await tools.echo('two')\nall = all.split()\nfor each in all:\n    print(each)", False),
    ],
)
async def test_a_loop_over_the_characters_of_a_result_is_told_of(
    corral: Corral, language: Language, loop: str, is_told: bool
) -> None:
    result = await corral.execute(loop, language=language)
    assert result.success
    assert ("was a string of 3 characters: the loop iterated over its characters" in result.model_text()) == is_told


async def test_members_that_no_row_has_are_told_of(corral: Corral) -> None:
    rows = "[1, 2, 3].map((id) => ({ id, name: ({}).nme, some: id > 1 ? id : undefined }))"
    for program in (f"return {rows}", f"return {{ rows: {rows}, one: [{{ a: undefined }}] }}"):
        result = await corral.execute(program)
        told = [each.message for each in result.diagnostics]
        assert told == ["name was undefined in all 3 rows of the result, and is left out"]
        assert told[0] in result.model_text()


@pytest.mark.parametrize("language", ["typescript", "python"])
async def test_what_is_read_already_is_given_back_when_it_is_read_as_json(corral: Corral, language: Language) -> None:
    if language == "typescript":
        program = """
            const read = [JSON.parse(await tools.echo({ a: 1 })), JSON.parse(await tools.echo([1])), JSON.parse('{"b": 2}')];
            for (const wrong of [() => JSON.parse("{"), () => JSON.parse(undefined), () => JSON.parse(new Map())]) {
              try { wrong(); read.push("passed") } catch {}
            }
            return read
        """
    else:
        program = """
import json
read = [json.loads(await tools.echo({"a": 1})), json.loads(await tools.echo([1])), json.loads('{"b": 2}')]
for wrong in ("{", None, object()):
    try:
        json.loads(wrong)
        read.append("passed")
    except (TypeError, ValueError):
        pass
return read
"""
    result = await corral.execute(program, language=language)
    assert result.value == [{"a": 1}, [1], {"b": 2}]
    assert "got a value that is already parsed, and returned it unchanged" in result.model_text()


@pytest.mark.parametrize(
    "make",
    [object, lambda: {"a": [object()]}, lambda: math],
    ids=["object", "nested", "module"],
)
async def test_an_output_that_has_no_form_is_an_error_without_its_contents(
    warm_deno: DenoSandbox, make: Callable[[], object]
) -> None:
    give, _ = receiver("give", output=make())
    result = await Corral([give], sandbox=warm_deno, check=False).execute("await tools.give()")
    assert result.error is not None
    assert result.error.code == "invalid_tool_output"
    assert "0x" not in result.error.message


async def test_a_hostile_output_does_not_spill_its_secret(warm_deno: DenoSandbox) -> None:  # ex-hostile-output
    class Hostile(Mapping[str, object]):
        def __getitem__(self, key: str) -> object:
            raise RuntimeError("secret-in-item")

        def __iter__(self) -> Iterator[str]:
            raise RuntimeError("secret-in-iteration")

        def __len__(self) -> int:
            return 1

        def __repr__(self) -> str:
            raise RuntimeError("secret-in-repr")

    give, _ = receiver("give", output=Hostile())
    result = await Corral([give], sandbox=warm_deno, check=False).execute("await tools.give()")
    assert result.status == "failed"
    assert "secret" not in result.to_json()


# --- console


async def test_the_console_prints_as_node_does(corral: Corral) -> None:  # ex-console-formats, -cyclic, -table
    result = await corral.execute(
        """console.log({a:1},[1,2],"s",null,undefined);
        console.log(['x'], new Map([['k', {v: 1}]]), new Set([1]), [,1], -0, 10n, Symbol('y'), {a:{b:{c:{d:1}}}});
        const a = {}; a.a = a; console.log(a);
        console.table([{a: 1, b: 'x'}, {a: 2}]);
        console.log('%s is %d, %i, %j and %O%%', 'x', 1.5, 3.7, {a: 1}, [1]);
        console.group('G'); console.log('in\\nside'); console.groupEnd(); console.log('out');
        console.count(); console.count(); console.assert(1 === 2, 'no'); console.assert(true, 'yes');
        console.log(class Foo {}, function bar() {}, () => 1, new (class P { x = 1 }), [undefined, null]);"""
    )
    assert result.console == (
        "{ a: 1 } [ 1, 2 ] s null undefined\n"
        "[ 'x' ] Map(1) { 'k' => { v: 1 } } Set(1) { 1 } [ <1 empty item>, 1 ] -0 10n Symbol(y) "
        "{ a: { b: { c: { d: 1 } } } }\n"
        "<ref *1> { a: [Circular *1] }\n"
        "┌─────────┬───┬─────┐\n"
        "│ (index) │ a │ b   │\n"
        "├─────────┼───┼─────┤\n"
        "│ 0       │ 1 │ 'x' │\n"
        "│ 1       │ 2 │     │\n"
        "└─────────┴───┴─────┘\n"
        'x is 1.5, 3, {"a":1} and [ 1 ]%\n'
        "G\n  in\n  side\nout\n"
        "default: 1\ndefault: 2\nAssertion failed: no\n"
        "[class Foo] [Function: bar] [Function (anonymous)] P { x: 1 } [ undefined, null ]\n"
    )


async def test_the_other_methods_of_the_console_print_as_nodes_do(corral: Corral) -> None:
    result = await corral.execute(
        """console.debug('%s', 'd'); console.dirxml({x: 1}); console.trace('t%d', 1); console.clear();
        console.groupCollapsed('g'); console.countReset('n'); console.count('n'); console.countReset('n'); console.count('n');
        console.groupEnd(); console.table(1);
        console.time('t'); console.time('t'); console.timeLog('t', [1]); console.timeEnd('t'); console.timeEnd('t');
        console.timeLog('t'); console.assert(false); console.assert(false, [1]);"""
    )
    assert re.sub(r"[\d.]+ms", "0ms", result.console) == (
        "d\n{ x: 1 }\nTrace: t1\n    at program.ts:1:59\n"
        "g\n  Count for 'n' does not exist\n  n: 1\n  n: 1\n1\n"
        "Label 't' already exists for console.time()\nt: 0ms [ 1 ]\nt: 0ms\n"
        "No such label 't' for console.timeEnd()\nNo such label 't' for console.timeLog()\n"
        "Assertion failed\nAssertion failed [ 1 ]\n"
    )


async def test_records_are_printed_in_full_depth_one_on_a_line(corral: Corral) -> None:
    result = await corral.execute(
        """const orders = Array.from({length: 3}, (_, id) => ({id, customer: {name: 'O"Neil'}, lines: [{sku: 'x', tags: ['a']}]}));
        console.log(orders); console.info({total: 3, orders}); console.dir(orders[0]);
        console.log([[1, 2], [3, 4]], {at: new Date(0), m: new Map([['k', new Set([1])]])}, [new Error('in')]);
        const deep = []; let last = deep; for (let n = 0; n < 1000; n++) { const next = []; last.push(next); last = next; }
        console.log(deep);"""
    )
    record = "{{ id: {0}, customer: {{ name: 'O\"Neil' }}, lines: [ {{ sku: 'x', tags: [ 'a' ] }} ] }}"
    records = ",\n".join(f"  {record.format(number)}" for number in range(3))
    listed, within, one, *lines = (entry.text for entry in result.logs)
    assert listed == f"[\n{records}\n]"
    assert within == f"{{ total: 3, orders: [\n{records}\n] }}"
    assert one == record.format(0)
    assert lines[0] == (
        "[ [ 1, 2 ], [ 3, 4 ] ] { at: 1970-01-01T00:00:00.000Z, m: Map(1) { 'k' => Set(1) { 1 } } } "
        "[ [Error: in at program.ts:3:94] ]"
    )
    assert lines[1].count("[") == 52
    assert "[Array]" in lines[1]


async def test_a_value_too_large_to_print_is_cut_and_said_so_and_leaves_room_for_what_follows(corral: Corral) -> None:
    result = await corral.execute(
        """const rows = Array.from({length: 5000}, (_, id) => ({id, text: 'some text'})); console.log('rows:', rows);
        let tree = [1]; for (let n = 0; n < 40; n++) tree = [tree, tree]; console.log(tree);
        console.log('the sum is', 5000)"""
    )
    rows, tree, last = (entry.text for entry in result.logs)
    assert rows.startswith("rows: [\n  { id: 0, text: 'some text' },\n")
    assert re.search(r"… 1\d\d,\d{3} more characters$", rows)
    assert len(rows) < 17_000
    assert tree.endswith(" more characters")
    assert last == "the sum is 5000"


async def test_what_cannot_be_read_does_not_keep_the_rest_from_being_printed(corral: Corral) -> None:
    result = await corral.execute(
        """const trap = () => { throw new Error('trap') };
        console.log({a: new Proxy({}, {ownKeys: trap}), b: {get c() { return trap() }}, d: {toString: trap}, e: [1]});"""
    )
    assert result.console == (
        "{ a: [an object that cannot be read], b: { c: [Getter] }, d: { toString: [Function: trap] }, e: [ 1 ] }\n"
    )


async def test_what_a_handler_printed_is_the_error_and_not_that_there_is_no_process(corral: Corral) -> None:
    wrong = Wrong()
    for handler, expected in [
        ("console.error(error); process.exit(1)", ("tool_error", "ToolError", "lost", 2)),
        ("console.error('It failed:', error); process.exit(1)", ("tool_error", "ToolError", "lost", 2)),
        (
            "console.error(`failed: ${error.message}`); process.exitCode = 1",
            ("program_failed", "Error", "failed: lost", 4),
        ),
        ("process.exit(1)", ("program_failed", "ReferenceError", "process is not defined", 4)),
    ]:
        with wrong.case(handler):
            result = await corral.execute(
                f"async function main() {{\n  await tools.fail({{message: 'lost'}});\n}}\nmain().catch((error) => {{ {handler} }});",
                check=False,
            )
            error = result.error
            assert error is not None
            assert (error.code, error.name, error.message, error.line) == expected
    assert wrong == []


async def test_levels_and_order_of_the_console_are_kept(corral: Corral) -> None:
    result = await corral.execute(
        "console.error('e'); console.log('l'); console.warn('w'); await tools.nothing(); console.debug('d'); console.info('i')"
    )
    assert [(entry.level, entry.text) for entry in result.logs] == [
        ("error", "e"), ("log", "l"), ("warn", "w"), ("debug", "d"), ("info", "i"),
    ]  # fmt: skip


async def test_what_was_printed_and_what_was_returned_both_reach_the_model(corral: Corral) -> None:
    result = await corral.execute("console.log('hi'); return 3")
    assert (result.console, result.value) == ("hi\n", 3)
    assert "Result: 3" in result.model_text()
    assert "Console:\nhi" in result.model_text()


async def test_nothing_of_the_console_reaches_the_hosts_own_output(
    corral: Corral, capfd: pytest.CaptureFixture[str]
) -> None:
    await corral.execute("console.log('out'); console.error('err')")
    assert capfd.readouterr() == ("", "")


async def test_a_logged_error_names_the_models_own_line(corral: Corral) -> None:
    result = await corral.execute("const x = 1;\nconsole.log(new Error('here'));")
    assert result.console == "Error: here\n    at program.ts:2:13\n"


# --- where an error is


async def test_an_error_is_placed_in_what_the_model_wrote(corral: Corral) -> None:
    wrong = Wrong()
    for program, line, column in [
        ("const a=1;\nconst b=2;\nnull.x", 3, 6),  # ex-error-line
        ("Here you are:\n\n```ts\nconst a: number = 1;\nthrow new Error('x')\n```\n", 5, 7),
        ("interface A { b: string }\ntype C = A | null;\nthrow new Error('after types')", 3, 7),
        ("const a: number = 1;\nawait tools.nothing();\nthrow new Error('after an await')", 3, 7),
        ("async function inner(): Promise<void> {\n  await tools.fail({});\n}\nawait inner()", 2, 15),
        ("enum Level { Low, High }\nconst level: Level = Level.High;\nthrow new Error(`${level}`)", 3, 7),
        ("export default async (tools) => {\n  const x = 1;\n  return x.y.z;\n}", 3, 14),
        ("/* ü */ const s = '😀'; null.x", 1, 30),
        ("const f = (n: number): number => { throw new RangeError('deep') };\n[1].map(f)", 1, 42),
    ]:
        with wrong.case(program):
            result = await corral.execute(program)
            assert result.error is not None
            assert (result.error.line, result.error.column) == (line, column), result.error
            assert f"program.ts:{line}:{column}" in (result.error.stack or "")
            assert "main.js" not in (result.error.stack or "")
    assert wrong == []


async def test_a_syntax_error_is_rejected_with_its_line(corral: Corral) -> None:
    wrong = Wrong()
    for program, line in [
        ("const a = 1;\nconst b = ;", 2),
        ("let x = 1;\nlet x = 2;", 2),
        ("function f() {\n  await 1\n}", 2),
        ("a b", 1),
    ]:
        with wrong.case(program):
            result = await corral.execute(program)
            assert result.status == "rejected"
            assert result.error is not None
            assert (result.error.code, result.error.line) == ("program_rejected", line), result.error
            assert result.tool_calls == ()
    assert wrong == []


async def test_an_uncaught_tool_error_keeps_its_kind_and_its_place(corral: Corral) -> None:
    result = await corral.execute("const a = 1;\nawait tools.fail({message: 'x'});")
    assert result.error is not None
    assert (result.error.code, result.error.name, result.error.line) == ("tool_error", "ToolError", 2)


async def test_the_cause_of_an_error_is_kept(corral: Corral) -> None:
    result = await corral.execute("throw new Error('outer', {cause: new TypeError('inner')})")
    assert result.error is not None
    assert result.error.cause == "TypeError: inner"


async def test_errors_within_an_uncaught_error_are_told(corral: Corral) -> None:
    wrong = Wrong()
    for program, message, line in [
        (
            "await Promise.any([\n tools.fail({ message: 'no' }), tools.fail({ message: 'none' })])",
            "All promises were rejected: ToolError: no; ToolError: none",
            2,
        ),
        (
            "throw new AggregateError(Array.from({ length: 9 }, (_, n) => new RangeError(n)), '9 mails failed')",
            "9 mails failed: RangeError: 0; RangeError: 1; RangeError: 2; RangeError: 3; RangeError: 4 …",
            1,
        ),
        ("throw new AggregateError(['x', { a: 1 }, null])", ": x; { a: 1 }; null", 1),
        ("throw new AggregateError([], 'none')", "none", 1),
        ("throw Object.assign(new AggregateError([], 'odd'), { errors: 5 })", "odd", 1),
    ]:
        with wrong.case(program):
            error = (await corral.execute(program)).error
            assert error is not None
            assert (error.name, error.message, error.line) == ("AggregateError", message, line)
    assert wrong == []


async def test_whatever_is_thrown_is_an_error_result(corral: Corral) -> None:
    wrong = Wrong()
    for thrown in ["'plain'", "42", "{a: 1}", "null", "undefined", "Symbol('s')"]:
        with wrong.case(thrown):
            result = await corral.execute(f"throw {thrown}")
            assert result.status == "failed"
            assert result.error is not None
            assert result.error.name == "Uncaught"
            assert result.error.message
    assert wrong == []


# --- what a program finds


async def test_the_platform_that_programs_expect_works(corral: Corral) -> None:
    result = await corral.execute(
        """const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode('a'));
        const stream = new Blob(['streamed']).stream().pipeThrough(new CompressionStream('gzip'));
        const packed = await new Response(stream).arrayBuffer();
        return {
          uuid: crypto.randomUUID().length, digest: digest.byteLength, packed: packed.byteLength > 10,
          url: new URL('?q=1', 'https://x.test/a').href, text: new TextDecoder().decode(new TextEncoder().encode('ü')),
          clone: structuredClone(new Map([[1, {a: [1]}]])).get(1).a, b64: atob(btoa('x')),
          money: new Intl.NumberFormat('de-DE', {style: 'currency', currency: 'EUR'}).format(1234.5),
          date: new Intl.DateTimeFormat('en-GB', {timeZone: 'UTC'}).format(0),
          timer: await new Promise(resolve => setTimeout(resolve, 1, 'fired')),
          sorted: [3, 1, 2].toSorted(), grouped: Object.groupBy([1, 2, 3], n => n % 2 ? 'odd' : 'even'),
        }"""
    )
    assert result.value == {
        "uuid": 36, "digest": 32, "packed": True, "url": "https://x.test/a?q=1", "text": "ü", "clone": [1], "b64": "x",
        "money": "1.234,50\u00a0€", "date": "01/01/1970", "timer": "fired", "sorted": [1, 2, 3],
        "grouped": {"odd": [1, 3], "even": [2]},
    }  # fmt: skip


async def test_what_is_off_is_off(corral: Corral) -> None:
    names = "Deno process require module Worker SharedArrayBuffer Atomics WebAssembly localStorage caches"
    result = await corral.execute(f"return {names.split()!r}.map(name => typeof globalThis[name])")
    assert result.value == ["undefined"] * len(names.split())
    internals = await corral.execute("return Object.getOwnPropertyNames(globalThis).filter(k => k.startsWith('__'))")
    assert internals.value == []  # ex-bridge-internals-hidden


async def test_fetch_is_refused_with_what_to_do_instead(corral: Corral) -> None:
    result = await corral.execute("try { await fetch('http://127.0.0.1:1/') } catch (e) { return e.message }")
    assert "no network" in result.value
    assert "tool" in result.value
    program = "return [EventSource, WebSocket].map((each) => { try { new each('ws://127.0.0.1:1/') } catch (e) { return e.message } })"
    for name, told in zip(("EventSource", "WebSocket"), (await corral.execute(program)).value, strict=True):
        assert told.startswith(f"{name} is off: programs have no network.")


@pytest.mark.parametrize(
    "program",
    [
        'await import("fs")',  # ex-dynamic-import
        'import fs from "node:fs"; return fs',
        'import("data:text/javascript,export default 1")',
        'const name = "node:" + "os"; await import(name)',
        'import x from "/etc/hostname" with {type: "text"}; return x',
    ],
)
async def test_no_module_can_be_imported(corral: Corral, program: str) -> None:
    result = await corral.execute(program)
    assert result.error is not None
    assert "not available" in result.error.message


async def test_the_environment_is_only_what_was_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cret")
    async with open_corral() as corral:  # a process that is ready already has none of it
        result = await corral.execute("return {...process.env}", env={"MODE": "test"})
        frozen = await corral.execute(
            "try { process.env.MODE = 'x' } catch {} return process.env.MODE", env={"MODE": "test"}
        )
    assert result.value == {"MODE": "test"}
    assert frozen.value == "test"


async def test_eval_and_webassembly_can_be_allowed() -> None:
    async with Corral(sandbox=DenoSandbox(allow_eval=True, allow_wasm=True), check=False) as corral:
        result = await corral.execute("return [eval('41+1'), new Function('return 1')(), typeof WebAssembly.compile]")
    assert result.value == [42, 1, "function"]


async def test_a_program_cannot_break_the_bridge_by_changing_its_own_world(corral: Corral) -> None:
    result = await corral.execute(
        """Object.prototype.toJSON = () => 'polluted'; Array.prototype.toJSON = () => 'polluted';
        Object.prototype.zz = 1; JSON.stringify = JSON.parse = () => { throw 1 }; Array.isArray = () => true;
        Promise.prototype.then = Promise.prototype.finally = () => { throw 3 };
        Object.getPrototypeOf(Uint8Array.prototype).subarray = DataView.prototype.getUint32 = () => { throw 4 };
        Map.prototype.get = Set.prototype.has = () => { throw 2 };
        globalThis.TextEncoder = globalThis.TextDecoder = undefined; String.prototype.slice = () => '';
        Object.defineProperty(Object.prototype, 'tagged', {value: true});
        const r = await tools.echo({a: [1, {b: 'x'}]}); console.log('still'); return [r, await tools.add({a: 1, b: 2})]"""
    )
    assert result.error is None
    assert result.value == [{"a": [1, {"b": "x"}]}, 3]
    assert result.console == "still\n"
    assert (await corral.execute("return ({}).zz")).value is None  # ex-proto-pollution


async def test_executions_share_nothing(corral: Corral) -> None:
    results: dict[int, ExecutionResult] = {}

    async def one(number: int) -> None:
        results[number] = await corral.execute(
            f"globalThis.mine = {number}; console.log(mine); await tools.wait({{seconds: 0.05}}); return globalThis.mine"
        )

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(one, number)
    assert {number: (result.value, result.console) for number, result in results.items()} == {
        number: (number, f"{number}\n") for number in range(6)
    }


async def test_the_time_a_call_took_is_recorded(corral: Corral) -> None:
    result = await corral.execute("await tools.wait({seconds: 0.05}); try { await tools.fail() } catch {} return 1")
    waited, failed = result.tool_calls
    assert (waited.name, waited.input, waited.output, waited.error) == ("wait", {"seconds": 0.05}, 0.05, None)
    assert waited.duration_ms is not None
    assert waited.duration_ms >= 49
    assert waited.started <= failed.started
    assert failed.error is not None
    assert failed.error.message == "boom"
    assert result.duration_ms > waited.duration_ms


async def test_limits_refuse_an_unknown_key_and_list_the_valid_ones() -> None:
    with pytest.raises(Exception, match=r"wall_second.*valid keys.*wall_seconds"):
        Limits(wall_second=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(Exception, match="greater than 0"):
        Limits(wall_seconds=0)


# --- what the runtime keeps from the program


async def test_the_bytes_of_frames_are_not_shown_by_way_of_a_constructor(corral: Corral) -> None:
    result = await corral.execute(
        """const U = Uint8Array; let seen = 0;
        Object.defineProperty(U.prototype, "constructor", {
          get() { seen++; return { [Symbol.species]: function (b, o, l) { return new U(b, o, l) } } },
        });
        await tools.echo({}); console.log("a"); return seen"""
    )
    assert result.error is None
    assert result.value == 0


@pytest.mark.parametrize("first", ["", "crypto; await new Promise(resolve => setTimeout(resolve, 1));"])
async def test_no_function_of_the_program_is_ever_handed_the_bytes_of_frames(corral: Corral, first: str) -> None:
    result = await corral.execute(
        first
        + """
        const { isView } = ArrayBuffer, Block = ArrayBuffer, { apply, construct, ownKeys } = Reflect, seen = [];
        const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf } = Object;
        const look = (name, value) => { if (isView(value) || value instanceof Block) seen[seen.length] = String(name) };
        const listening = (name, original) => function (...args) {
          look(name, this);
          for (let index = 0; index < args.length; index++) look(name, args[index]);
          return new.target ? construct(original, args) : apply(original, this, args);
        };
        const listen = (owner, name) => {
          const found = getOwnPropertyDescriptor(owner, name);
          try {
            if (typeof found.value === "function") defineProperty(owner, name, { value: listening(name, found.value) });
            else if (found.get) defineProperty(owner, name, { get: listening(name, found.get) });
          } catch {}
        };
        const bytes = getPrototypeOf(Uint8Array.prototype);
        const owners = [bytes, getPrototypeOf(Uint8Array), Uint8Array, Uint8Array.prototype, ArrayBuffer, ArrayBuffer.prototype,
          DataView.prototype, TextEncoder.prototype, TextDecoder.prototype, Function.prototype, Reflect, Math, Array.prototype,
          Promise, Promise.prototype, Object];
        for (const owner of owners) for (const name of ownKeys(owner)) if (name !== Symbol.hasInstance) listen(owner, name);
        for (const name of ["Uint8Array", "ArrayBuffer", "DataView", "TextEncoder", "TextDecoder"]) listen(globalThis, name);
        await tools.echo({a: "x".repeat(100000)}); await Promise.all([tools.echo({}), tools.echo({})]);
        console.log("a");
        await tools.echo({a: "x".repeat(300000)});
        return seen"""
    )
    assert result.error is None
    assert result.value == []


async def test_function_call_stays_but_functions_may_have_their_own(corral: Corral) -> None:
    result = await corral.execute(
        """const own = Object.assign(() => 1, { call: 5 }); let refused;
        try { Function.prototype.call = () => 0 } catch (error) { refused = error.name }
        return [own.call, refused, (function () { return this.a }).call({ a: 2 })]"""
    )
    assert result.value == [5, "TypeError", 2]


async def test_no_global_leads_to_what_waits_for_the_event_loop_without_the_runtime_knowing(corral: Corral) -> None:
    result = await corral.execute(
        """const reached = new Set(), watched = [], todo = [Object.getPrototypeOf(globalThis)];
        for (const name of Object.getOwnPropertyNames(globalThis)) {
          const found = Object.getOwnPropertyDescriptor(globalThis, name);
          if (found.get) watched.push(name);
          else if (!["tools", "codemode"].includes(name)) todo.push(found.value);
        }
        todo.push(new Event("x"), new CustomEvent("x"), new EventTarget(), new Headers(), new FormData(), new TextEncoder(),
          new TextDecoder(), new URL("http://x/"), new URLSearchParams(), new URLPattern({}), new DOMException(),
          performance.mark("x"), performance.measure("x"));
        while (todo.length > 0) {
          const owner = todo.pop();
          if (owner === globalThis || owner === null || !["object", "function"].includes(typeof owner)) continue;
          if (reached.has(owner)) continue;
          reached.add(owner);
          todo.push(Object.getPrototypeOf(owner));
          for (const name of Reflect.ownKeys(owner)) try { todo.push(owner[name]) } catch {}
        }
        const loadedLate = ["FormData", "Headers", "TextDecoder", "TextEncoder", "URLPattern", "atob", "btoa"];
        return watched.filter(name => !loadedLate.includes(name) && reached.has(globalThis[name]))"""
    )
    assert result.error is None
    assert result.value == []


async def test_an_aborted_wait_is_no_deadlock(corral: Corral) -> None:
    result = await corral.execute(
        """const signal = new AbortController().signal.constructor.timeout(20);
        return await new Promise(resolve => signal.onabort = () => resolve(signal.reason.name))"""
    )
    assert result.value == "TimeoutError"


async def test_there_is_no_deno_and_none_can_be_made(corral: Corral) -> None:
    wrong = Wrong()
    for touch in ["globalThis.Deno = {}", "Object.defineProperty(globalThis, 'Deno', {value: {}})"]:
        with wrong.case(touch):
            result = await corral.execute(f"try {{ {touch} }} catch {{}} return typeof Deno")
            assert result.value == "undefined"
    assert wrong == []


async def test_each_part_of_the_platform_works_when_it_is_the_first_that_is_touched(corral: Corral) -> None:
    wrong = Wrong()
    for program, value in [
        ("return Buffer.from('aGk=', 'base64').toString()", "hi"),
        ("return await new Promise(resolve => setImmediate(resolve, 'turned'))", "turned"),
        ("return await new Promise(resolve => setTimeout(() => resolve(typeof Atomics), 1))", "undefined"),
        ("return await new Promise(resolve => AbortSignal.timeout(1).onabort = () => resolve('aborted'))", "aborted"),
        (
            """const { port1, port2 } = new MessageChannel();
            return await new Promise(resolve => { port2.onmessage = event => resolve(event.data); port1.postMessage(1) })""",
            1,
        ),
    ]:
        with wrong.case(program):
            result = await corral.execute(program)
            assert result.error is None
            assert result.value == value
    assert wrong == []


@pytest.mark.parametrize("isolation", ["fork", pytest.param("process", marks=STARTED)])
async def test_a_timer_takes_any_delay(warm_deno: DenoSandbox, isolation: Literal["process", "fork"]) -> None:
    sandbox = warm_deno if isolation == "fork" else DenoSandbox(isolation="process", pool_size=0)
    delays = ["NaN", "Infinity", "'soon'", "undefined", "-5", "{}"]
    program = f"""const rang = [];
        for (const delay of [{", ".join(delays)}]) {{
          await new Promise((resolve) => setTimeout(resolve, delay)); rang.push(String(delay)); console.log(String(delay)) }}
        return rang.length"""
    async with Corral(sandbox=sandbox, check=False) as corral:
        result = await corral.execute(program)
    assert (result.error, result.value) == (None, len(delays)), result.console


@pytest.mark.parametrize("isolation", ["process", "fork"])
async def test_a_program_that_waits_for_nothing_once_its_timers_have_run_is_told_so(
    warm_deno: DenoSandbox, isolation: Literal["process", "fork"]
) -> None:
    stuck = "await new Promise(() => {});"
    programs = [
        f"await new Promise(resolve => setTimeout(resolve, 1)); {stuck}",
        f"await new Promise(resolve => setTimeout(resolve, 1)); await tools.echo({{}}); {stuck}",
        f"const each = setInterval(() => clearInterval(each), 1); {stuck}",
        f"await new Promise(resolve => setImmediate(resolve)); {stuck}",
        f"clearTimeout(setTimeout(() => {{}}, 3_600_000)); {stuck}",
        f"const late = setTimeout(() => {{}}, 3_600_000); await tools.echo({{}}); clearTimeout(late); {stuck}",
        f"setTimeout(async () => {{ await tools.echo({{}}); {stuck} }}, 1); {stuck}",
    ]
    sandbox = warm_deno if isolation == "fork" else DenoSandbox(isolation="process")
    async with Corral(TOOLS, sandbox=sandbox, check=False) as corral:
        results = {program: await corral.execute(program) for program in programs}
    assert {
        program: str(result.error) for program, result in results.items() if "Deadlock" not in str(result.error)
    } == {}


@pytest.mark.parametrize("isolation", ["fork", pytest.param("process", marks=STARTED)])
@pytest.mark.parametrize(
    ("program", "value"),
    [
        (  # the timer starts again while only replies are waited for
            """let count = 0, wake; const timer = setTimeout(() => { count++; wake?.() }, 1);
            await new Promise(resolve => setTimeout(resolve, 10));
            await tools.echo({}); timer.refresh(); await new Promise(resolve => wake = resolve); return count""",
            2,
        ),
        (
            """let count = 0; const each = setInterval(() => count++, 1);
            for (let index = 0; index < 50; index++) await tools.echo({});
            while (count < 5) await tools.echo({});
            clearInterval(each); const last = count;
            for (let index = 0; index < 50; index++) await tools.echo({});
            return last === count""",
            True,
        ),
        (
            """let count = 0; await Promise.all(Array.from({length: 1_000}, (_, index) =>
              new Promise(resolve => setTimeout(resolve, index % 7)).then(() => tools.echo({index})).then(() => count++)));
            for (let index = 0; index < 300; index++) {
              await new Promise(resolve => setImmediate(resolve)); count++; await tools.echo({}) }
            return count""",
            1_300,
        ),
        (
            """return await new Promise(resolve => {
              const timer = setTimeout(function () { resolve([typeof timer, this === timer]) }, 1); })""",
            ["object", True],
        ),
        ("return await new Promise(resolve => setTimeout((...given) => resolve(given), 1, 'a', 2))", ["a", 2]),
        ("try { setTimeout('code', 1) } catch (error) { return error.code }", "ERR_INVALID_ARG_TYPE"),
    ],
    ids=["refresh", "interval", "many", "object", "arguments", "no_function"],
)
async def test_timers_run_between_calls(
    warm_deno: DenoSandbox, isolation: Literal["process", "fork"], program: str, value: object
) -> None:
    sandbox = warm_deno if isolation == "fork" else DenoSandbox(isolation="process")
    async with Corral(TOOLS, sandbox=sandbox, check=False, limits=Limits(calls=10_000)) as corral:
        result = await corral.execute(program)
    assert (result.error, result.value) == (None, value)


# --- what is thrown outside of the program's course


async def test_an_error_that_nothing_can_catch_is_the_programs(corral: Corral) -> None:
    wrong = Wrong()
    for program, name, message in [
        ("setTimeout(() => { throw new RangeError('late') }, 1); await new Promise(() => {})", "RangeError", "late"),
        ("queueMicrotask(() => { throw new RangeError('soon') }); await tools.echo({})", "RangeError", "soon"),
        ("setTimeout(() => { throw 'text' }, 1); await new Promise(() => {})", "Uncaught", "text"),
        (
            """const target = new EventTarget(); target.addEventListener('x', () => { throw new RangeError('heard') });
            target.dispatchEvent(new Event('x')); await tools.echo({})""",
            "RangeError",
            "heard",
        ),
    ]:
        with wrong.case(program):
            result = await corral.execute(program)
            assert result.error is not None
            assert (result.error.code, result.error.name, result.error.message) == ("program_failed", name, message)
    assert wrong == []


async def test_an_error_after_the_value_is_only_remarked(corral: Corral, lasting_grace: None) -> None:
    thrown = anyio.Event()

    @tool
    async def wait() -> None:
        await thrown.wait()

    result = await corral.execute(
        "setTimeout(() => { console.log('now'); throw new RangeError('late') }, 1); tools.wait(); return 1",
        tools=[wait],
        on_event=lambda event: thrown.set() if isinstance(event, ConsoleOutput) else None,
    )
    assert result.value == 1
    assert any("RangeError: late" in str(diagnostic) for diagnostic in result.diagnostics)


@pytest.mark.parametrize("first", ["", "crypto;"], ids=["synchronous", "asynchronous"])
async def test_a_program_that_breaks_promises_is_told_so(corral: Corral, first: str) -> None:
    result = await corral.execute(
        first + "Object.defineProperty(Promise.prototype, 'constructor', {get() { throw 1 }}); await tools.echo({})"
    )
    assert result.error is not None
    assert (result.error.code, result.error.name) == ("program_failed", "RuntimeBroken")


@pytest.mark.parametrize("first", ["", "crypto;"], ids=["synchronous", "asynchronous"])
async def test_errors_of_calls_arrive_without_array_iteration(corral: Corral, first: str) -> None:
    result = await corral.execute(
        first
        + "delete Array.prototype[Symbol.iterator]; try { await tools.fail() } catch (error) { return error.message }"
    )
    assert result.value == "boom"


# --- promises in the value


@pytest.mark.parametrize("first", ["", "crypto;"], ids=["synchronous", "asynchronous"])
async def test_promises_in_the_value_are_awaited(corral: Corral, first: str) -> None:
    wrong = Wrong()
    for program, value in [
        ("return [1, 2].map(async (n) => (await tools.echo({n})).n)", [1, 2]),
        (
            "return {a: tools.echo({n: 1}), b: [Promise.resolve([tools.echo({n: 2})])]}",
            {"a": {"n": 1}, "b": [[{"n": 2}]]},
        ),
        ("const p = tools.echo({n: 1}); return [p, p]", [{"n": 1}, {"n": 1}]),
        ("Promise.all = Promise.prototype.then = undefined; return [tools.echo({n: 1})]", [{"n": 1}]),
        ("const fresh = {get now() { return Promise.resolve(1) }}; return {...fresh}", {"now": 1}),
    ]:
        with wrong.case(program):
            result = await corral.execute(first + program)
            assert result.raise_for_error().value == value
            assert (result.unawaited, result.diagnostics) == ((), ())
    assert wrong == []


async def test_a_promise_that_cannot_become_a_value_fails_the_program(corral: Corral) -> None:
    wrong = Wrong()
    for program, message in [
        ("return [tools.echo({}), tools.fail()]", "boom"),
        ("return [new Promise(() => {})]", "the program waits for a promise that nothing will settle"),
        ("return {get now() { return Promise.resolve(1) }}", "result.now: a promise: await it first"),
        ("const o = {}; o.p = Promise.resolve(o); return o", "a cycle: the value contains itself"),
        ("const deep = (n) => [Promise.resolve(n && deep(n - 1))]; return deep(120)", "nested deeper than 100 levels"),
        ("return [Promise.resolve(1), () => 1]", "result[1]: a function cannot leave the sandbox"),
        ("await tools.echo({a: [Promise.resolve(1)]})", "input.a[0]: a promise: await it first"),
        ("return (function* () { for (;;) yield Promise.resolve(1) })()", "is larger than"),
    ]:
        with wrong.case(program):
            result = await corral.execute(program)
            assert result.error is not None
            assert message in result.error.message
    assert wrong == []


async def test_a_call_that_runs_on_behind_then_is_an_effect_that_stands(corral: Corral, lasting_grace: None) -> None:
    wrong = Wrong()
    for program, effects in [
        ("tools.wait({seconds: 0.05}).then(() => 1); return 1", 1),
        ("Promise.all([tools.wait({seconds: 0.05}), tools.wait({seconds: 0.05})]).then(() => 1); return 1", 2),
        ("tools.wait({seconds: 0.05}).then(() => 1)", 0),
        ("return await Promise.race([1, tools.wait({seconds: 0.05})])", 0),
        ("tools.wait({seconds: 0.05}).then(() => 1); throw 1", 0),
        ("return [tools.wait({seconds: 0.05})]", 0),
    ]:
        with wrong.case(program):
            result = await corral.execute(program)
            assert [(call.tool, call.late) for call in result.unawaited] == [("wait", True)] * effects
            assert ("did not wait" in result.model_text()) == (effects > 0)
    assert wrong == []


# --- values and names at their bounds


async def test_an_object_with_the_key_of_a_tag_stays_an_object(corral: Corral) -> None:
    result = await corral.execute("return [{$bytes: 'eA==', b: undefined}, {$bytes: 'eA==', b: 1}]")
    assert result.value == [{"$bytes": "eA=="}, {"$bytes": "eA==", "b": 1}]


async def test_objects_that_look_like_tags_count_twice_in_depth(corral: Corral) -> None:
    wrong = Wrong()
    for levels in [50, 51, 100]:
        with wrong.case(levels):
            result = await corral.execute(
                f"let value = 1; for (let i = 0; i < {levels}; i++) value = {{$object: value}}; return value"
            )
            if levels == 50:
                assert result.error is None
            else:
                assert result.error is not None
                assert result.error.code == "program_failed"
                assert "nested deeper than 100 levels" in result.error.message
    assert wrong == []


async def test_a_cycle_longer_than_half_the_depth_is_named_as_one(corral: Corral) -> None:
    result = await corral.execute("const a = []; let v = a; for (let i = 0; i < 70; i++) v = [v]; a.push(v); return a")
    assert result.error is not None
    assert "a cycle" in result.error.message


async def test_a_name_that_no_tool_can_have_is_not_sent(corral: Corral) -> None:
    result = await corral.execute(
        """const long = 'x'.repeat(150), errors = [];
        for (const call of [tools[long + long], tools[long][long], tools['\\ud800']]) {
          try { await call() } catch (error) { errors.push([error.code, error.name]) }
        }
        return errors"""
    )
    assert result.value == [["tool_not_found", "ToolNotFound"]] * 3
    assert len(result.tool_calls) <= 1
