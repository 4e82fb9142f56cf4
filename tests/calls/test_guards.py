"""Each guard alone does what its name says, and none lets through what another should have stopped."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionContext, Limits, Tool, ToolError, tool
from corral.calls import Call, Grant
from corral.calls.guards import authorize, limit_calls, validate_input
from corral.errors import InvalidArguments, ScopeDenied
from corral.events import Event
from corral.sandboxes import DenoSandbox
from corral.tools import ToolRegistry
from corral.types import CallRequest, Reply
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio


def grant(*tools: Tool, limits: Limits | None = None, **context: Any) -> Grant:
    return Grant(context=ExecutionContext(**context), limits=limits or Limits(), tools=ToolRegistry(*tools))


def call(grant: Grant, name: str = "t") -> Call:
    return Call(CallRequest(name, {}, 1), grant)


async def test_a_text_that_stands_for_what_was_not_awaited_or_written_out_is_refused() -> None:
    @tool(name="t")
    async def send(body: Any = None) -> None: ...

    async def dispatched(call: Call) -> Reply:
        return Reply(value="ran")

    async def refusal(body: object, source: str | None, has_files: bool = False) -> str | None:
        holder = Grant(context=ExecutionContext(), limits=Limits(), tools=ToolRegistry(send), source=source)
        holder.has_files = has_files
        try:
            await validate_input(dispatched)(Call(CallRequest("t", {"body": body}, 1), holder))
        except InvalidArguments as error:
            return str(error)

    wrong = Wrong()
    for text, shown in {
        "[object Promise]": '"[object Promise]": a value was not awaited',
        "[object Object]": '"[object Object]": write JSON.stringify(...)',
        "[object AsyncGenerator]": "an iterator was not read",
        "<coroutine object price at 0x7f00>": '"<coroutine object …>": a value was not awaited',
        "<Task pending name='Task-2'>": "a value was not awaited",
        "<_GatheringFuture pending>": "a value was not awaited",
        "<async_generator object f at 0x7f00>": "an iterator was not read",
        "<map object at 0x7f00>": "an iterator was not read",
        "<built-in method upper of str object at 0x7f00>": '"<built-in method upper …>": a function was not called',
    }.items():
        with wrong.case(text):
            assert shown in str(await refusal([{"text": f"P: {text}, done"}], "return 1"))
            assert "t: body[0].text has" in str(await refusal([{"text": f"P: {text}, done"}], "return 1"))
            assert await refusal(text, f"send('{text.split(' at ')[0]}')") is None
            assert await refusal(text, None) is None
    assert wrong == []
    assert await refusal("[object Object]", "return 1", has_files=True) is None
    assert await refusal(["object Promise", "[object]", {"<coroutine object": 1}, b"[object Promise]"], "") is None


async def test_a_text_that_a_tool_has_given_may_be_passed_on(warm_deno: DenoSandbox) -> None:
    @tool
    async def read() -> list[str]:
        return ["it says [object Object]"]

    @tool
    async def send(body: str) -> str:
        return body

    async with Corral([read, send], sandbox=warm_deno, check=False) as corral:
        passed = await corral.execute("return await tools.send({ body: (await tools.read())[0] })")
        made = await corral.execute("return await tools.send({ body: `${{}}` })")
        again = await corral.execute(
            "const send = () => tools.send({ body: `${{}}` }); return await send().catch(() => send())"
        )
    assert passed.value == "it says [object Object]"
    assert [call.state for call in made.tool_calls] == ["waiting"]
    assert [call.state for call in again.tool_calls] == ["waiting", "waiting"], "a refusal says it too"


async def test_calls_beyond_those_in_flight_wait_whoever_sends_them() -> None:
    running = most = 0

    async def work(call: Call) -> Reply:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return Reply(value=1)

    handler = limit_calls(work)
    allowed = grant(limits=Limits(calls_in_flight=2, calls=1000))

    async def client() -> None:
        for _ in range(20):
            await handler(call(allowed))

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(client)
    assert most == 2


@pytest.mark.parametrize(
    ("scopes", "held", "allowed"),
    [
        ({"scopes": {"a", "b"}}, {"a", "b", "c"}, True),
        ({"scopes": {"a", "b"}}, {"a"}, False),
        ({"any_scope": {"a", "b"}}, {"b"}, True),
        ({"any_scope": {"a", "b"}}, set[str](), False),
        ({"scopes": {"a"}}, {"a:read", "*"}, False),
        ({}, set[str](), True),
    ],
)
async def test_scopes_are_compared_and_nothing_is_implied(
    scopes: dict[str, set[str]], held: set[str], *, allowed: bool, warm_deno: DenoSandbox
) -> None:
    ran: list[str] = []

    @tool(**scopes)  # pyright: ignore[reportArgumentType]
    async def t() -> None:
        ran.append("t")

    result = await Corral([t], sandbox=warm_deno, check=False).execute(
        "await tools['' + 't']()", context=ExecutionContext(scopes=held)
    )
    assert bool(ran) is allowed
    assert (result.error and result.error.code) == (None if allowed else "scope_denied")


async def test_a_guard_can_be_used_alone() -> None:
    @tool(scopes={"a"})
    async def t() -> None: ...

    async def answer(call: Call) -> Reply:
        return Reply(value="ran")

    handler = authorize(answer)
    assert (await handler(call(grant(t, scopes=["a"])))).value == "ran"
    with pytest.raises(ScopeDenied, match="needs the scope a"):
        await handler(call(grant(t)))


@pytest.mark.parametrize("kind", ["SystemExit(3)", "BaseException('odd')", "BaseExceptionGroup('g', [SystemExit(1)])"])
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_whatever_a_tool_raises_the_host_lives(kind: str, *, sync: bool, warm_deno: DenoSandbox) -> None:
    def raise_it() -> None:
        raise eval(kind)  # noqa: S307 - our own text

    @tool(name="t")
    def sync_tool() -> None:
        raise_it()

    @tool(name="t")
    async def async_tool() -> None:
        raise_it()

    result = await Corral([sync_tool if sync else async_tool], sandbox=warm_deno, check=False).execute(
        "try { await tools.t() } catch (e) { return e.code }"
    )
    assert result.value == "tool_failed"


async def test_an_error_whose_text_no_encoding_can_carry_arrives_all_the_same(warm_deno: DenoSandbox) -> None:
    @tool
    async def t() -> None:
        raise ToolError("cannot read a\udcffb")

    result = await Corral([t], sandbox=warm_deno, check=False).execute("await tools.t()")
    assert result.error is not None
    assert result.error.message == "cannot read a?b"


async def test_a_result_with_text_no_encoding_can_carry_is_json_all_the_same(warm_deno: DenoSandbox) -> None:
    @tool
    async def t() -> str:
        return "a\ud800b"

    result = await Corral([t], sandbox=warm_deno, check=False).execute("return await tools.t()")
    assert result.value == "a\ufffdb"
    assert '"status":"succeeded"' in result.to_json()


async def test_an_observer_that_raises_anything_does_not_end_a_call(
    caplog: pytest.LogCaptureFixture, warm_deno: DenoSandbox
) -> None:
    @tool
    async def t() -> int:
        return 1

    def observe(event: Event) -> None:
        raise anyio.get_cancelled_exc_class()

    result = await Corral([t], sandbox=warm_deno, check=False).execute(
        "console.log('kept'); return await tools.t()", on_event=observe
    )
    assert (result.value, result.console) == (1, "kept\n")


async def test_a_tool_cannot_close_the_corral_that_runs_it(warm_deno: DenoSandbox) -> None:
    @tool
    async def close() -> None:
        await corral.aclose()

    corral = Corral([close], sandbox=warm_deno, check=False)
    result = await corral.execute("try { await tools.close() } catch (e) { return e.code }")
    assert result.value == "tool_failed"
