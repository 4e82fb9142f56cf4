"""Code mode in agents of pydantic-ai, and their tools in programs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import anyio
import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic_ai import (
    Agent,
    BinaryContent,
    CapabilityEvent,
    FunctionToolset,
    ModelRetry,
    RunContext,
    ToolReturn,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UsageLimits,
)
from pydantic_ai import Tool as AgentTool
from pydantic_ai.messages import FunctionToolCallEvent, FunctionToolResultEvent
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from corral import ApprovalRequest, Corral, ExecutionContext, Tool, ToolCall, tool
from corral.errors import ConfigError, ToolDefinitionError
from corral.events import Event
from corral.integrations.pydantic_ai import (
    CodeMode,
    ProgramCallEvent,
    ProgramOutputEvent,
    ProgramProgressEvent,
    ProgramResultEvent,
    run_context,
    tools_of,
)
from corral.sandboxes import DenoSandbox
from corral.tools import ToolSource
from tests.integrations.frameworks import PydanticModel, runs
from tests.integrations.scenario import PNG, add, caller
from tests.integrations.stubs import Call
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def corral(warm_deno: DenoSandbox) -> AsyncIterator[Corral]:
    async with Corral([add, caller], sandbox=warm_deno, check=False) as corral:
        yield corral


async def test_the_agents_own_tools_and_instructions_stay(corral: Corral) -> None:
    def own() -> str:
        return "mine"

    model = PydanticModel(Call("own", {}), "done")
    agent = Agent(model, capabilities=[CodeMode(corral)], instructions="You count.", tools=[own])
    await agent.run("?")
    assert model.texts == ["mine"]
    assert sorted(model.tools()) == ["execute_code", "own"]
    assert model.prompts[0].startswith("You count.\n\nYou call tools from programs in TypeScript.")
    parts = model.given[0].model_request_parameters.instruction_parts
    assert parts is not None
    assert [part.dynamic for part in parts] == [False, False]  # providers cache only what is not dynamic


async def test_code_mode_needs_a_corral() -> None:
    with pytest.raises(ConfigError, match="needs a Corral"):
        CodeMode({})


async def test_code_mode_in_no_such_language_is_refused(corral: Corral) -> None:
    with pytest.raises(ConfigError, match="language takes 'typescript' or 'python', not 'ruby'"):
        CodeMode(corral, language=cast("Any", "ruby"))


async def test_a_second_code_mode_of_the_same_names_is_refused_with_the_way_out(corral: Corral) -> None:
    agent = Agent(PydanticModel("done"), capabilities=[CodeMode(corral), CodeMode(corral)])
    with pytest.raises(ConfigError, match=r"CodeMode\({'a': a, 'b': b}\)"):
        await agent.run("?")
    model = PydanticModel("done")
    await Agent(model, capabilities=[CodeMode(corral), CodeMode({"b": corral})]).run("?")
    assert sorted(model.tools()) == ["execute_code", "execute_code_b"]


async def test_many_tools_come_with_tools_to_search_them(warm_deno: DenoSandbox) -> None:
    def draw() -> None:
        pass

    async with Corral(
        [tool(name=f"draw_{number}")(draw) for number in range(60)], sandbox=warm_deno, check=False
    ) as corral:
        model = PydanticModel(
            Call("search_tools", {"query": "draw 7", "limit": 1}),
            Call("search_tools", {"limit": 1_000}),
            "done",
        )
        await Agent(model, capabilities=[CodeMode(corral, budget_tokens=500)]).run("?")
    found, wrong = model.read
    assert "draw_7" in str(found.content)
    assert "limit" in str(wrong.content)
    assert wrong.outcome == "retried"
    assert model.tools() == ["execute_code", "search_tools", "describe_tools"]


async def test_programs_can_be_in_python(corral: Corral) -> None:
    model = PydanticModel("done")
    await Agent(model, capabilities=[CodeMode(corral, language="python")]).run("?")
    assert "async def add(*, a: float, b: float) -> float" in model.prompts[0]


async def test_programs_that_are_refused_again_and_again_end_the_run(corral: Corral) -> None:
    model = PydanticModel(runs("return ]"))
    with pytest.raises(UnexpectedModelBehavior, match="exceeded max retries count of 2"):
        await Agent(model, capabilities=[CodeMode(corral, retries=2)]).run("?")
    assert len(model.given) == 3


@dataclass
class Deps:
    customer: str


WHO = runs("return await tools.caller()")


async def test_deps_that_are_a_context_are_whom_programs_run_for(corral: Corral) -> None:
    model = PydanticModel(WHO, "done")
    agent = Agent(model, deps_type=ExecutionContext, capabilities=[CodeMode(corral)])
    await agent.run("?", deps=ExecutionContext(user_id="ada"))
    assert model.texts == ['Result: "ada"']


async def test_a_function_of_the_run_says_whom_programs_run_for(corral: Corral) -> None:
    def whose(run: RunContext[Deps]) -> ExecutionContext:
        return ExecutionContext(user_id=run.deps.customer)

    model = PydanticModel(WHO, "done")
    agent = Agent(model, deps_type=Deps, capabilities=[CodeMode(corral, context=whose)])
    await agent.run("?", deps=Deps("bob"))
    assert model.texts == ['Result: "bob"']


async def test_tools_find_the_run_they_are_called_in(warm_deno: DenoSandbox) -> None:
    @tool
    async def customer(*, context: ExecutionContext) -> list[str | None]:
        run: RunContext[Deps] = run_context(context)
        return [run.deps.customer, context.user_id, context.session_id]

    async with Corral([customer], sandbox=warm_deno, check=False) as corral:
        model = PydanticModel(runs("return await tools.customer()"), "done")
        agent = Agent(model, deps_type=Deps, capabilities=[CodeMode(corral)])
        await agent.run("?", deps=Deps("bob"), conversation_id="c-1")
    assert model.texts == ['Result: ["bob","anonymous","c-1"]']


async def test_calls_of_programs_count_as_tool_calls_of_the_run(corral: Corral) -> None:
    model = PydanticModel(runs("await tools.add({ a: 1, b: 2 }); await tools.add({ a: 1 }).catch(() => 0)"), "done")
    result = await Agent(model, capabilities=[CodeMode(corral)]).run("?")
    assert result.usage.tool_calls == 2  # the program, and its call that succeeded


async def test_a_limit_of_tool_calls_holds_within_programs_too(corral: Corral) -> None:
    model = PydanticModel(runs("for (let i = 0; i < 9; i++) await tools.add({ a: i, b: 1 })"))
    agent = Agent(model, capabilities=[CodeMode(corral)])
    with pytest.raises(UsageLimitExceeded, match="tool_calls_limit of 4"):
        await agent.run("?", usage_limits=UsageLimits(tool_calls_limit=4))
    [text] = model.texts
    assert "CallBudgetExceeded" in text
    assert "add ×3" in text


async def test_what_programs_do_is_in_the_runs_stream_of_events(corral: Corral) -> None:
    heard: list[Event] = []
    model = PydanticModel(runs("console.log('hello'); await tools.add({ a: 1, b: 2 })"), "done")
    mode = CodeMode(corral, on_event=heard.append)
    kinds = (FunctionToolCallEvent, FunctionToolResultEvent, CapabilityEvent)
    async with Agent(model, capabilities=[mode]).run_stream_events("?") as stream:
        events = [event async for event in stream if isinstance(event, kinds)]
    begun, printed, called, answered, ended = events
    assert isinstance(begun, FunctionToolCallEvent)
    assert isinstance(printed, ProgramOutputEvent)
    assert (printed.level, printed.text) == ("log", "hello")
    assert isinstance(called, ProgramCallEvent)
    assert (called.tool, called.sequence, called.input) == ("add", 1, {"a": 1, "b": 2})
    assert called.tool_call_id == begun.part.tool_call_id
    assert isinstance(answered, ProgramResultEvent)
    assert (answered.sequence, answered.output, answered.error) == (1, 3, None)
    assert isinstance(ended, FunctionToolResultEvent)
    assert [each.type for each in heard] == [
        "execution_started",
        "console_output",
        "tool_call_started",
        "tool_call_finished",
        "execution_finished",
    ]
    assert {each.tool_call_id for each in heard} == {begun.part.tool_call_id}


async def test_what_a_tool_reports_is_in_the_runs_stream_of_events(warm_deno: DenoSandbox) -> None:
    @tool
    async def book(*, call: ToolCall) -> None:
        call.progress(1, 2, "reserving")
        call.progress(2)

    model = PydanticModel(runs("await tools.book()"), "done")
    async with (
        Corral([book], sandbox=warm_deno, check=False) as corral,
        Agent(model, capabilities=[CodeMode(corral)]).run_stream_events("?") as stream,
    ):
        events = [event async for event in stream if isinstance(event, ProgramProgressEvent)]
    assert [(each.tool, each.sequence, each.done, each.total, each.message) for each in events] == [
        ("book", 1, 1, 2, "reserving"),
        ("book", 1, 2, None, None),
    ]


async def test_a_corral_that_is_not_open_is_open_while_a_run_or_the_agent_is(warm_deno: DenoSandbox) -> None:
    corral = Corral([add], sandbox=warm_deno, check=False)
    agent = Agent(
        PydanticModel(runs("return await tools.add({ a: 1, b: 2 })"), "done"), capabilities=[CodeMode(corral)]
    )
    assert (await agent.run("?")).usage.tool_calls == 2
    with pytest.raises(ConfigError, match="closed"):
        await corral.execute("return 1")
    async with agent:
        await agent.run("?")
        assert (await corral.execute("return 1")).value == 1
    with pytest.raises(ConfigError, match="closed"):
        await corral.execute("return 1")


async def test_agents_that_share_a_corral_keep_it_open_until_the_last_has_ended(warm_deno: DenoSandbox) -> None:
    called, go_on = anyio.Event(), anyio.Event()

    @tool
    async def wait() -> int:
        called.set()
        await go_on.wait()
        return 7

    corral = Corral([wait], sandbox=warm_deno, check=False)
    model = PydanticModel(runs("return await tools.wait()"), "done")
    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            async with Agent(PydanticModel("done"), capabilities=[CodeMode(corral)]):
                tasks.start_soon(Agent(model, capabilities=[CodeMode(corral)]).run, "?")
                await called.wait()
            assert corral.is_open
            go_on.set()
    assert model.texts == ["Result: 7"]
    assert not corral.is_open


async def test_a_corral_that_was_open_stays_open(corral: Corral) -> None:
    await Agent(PydanticModel("done"), capabilities=[CodeMode(corral)]).run("?")
    assert (await corral.execute("return 1")).value == 1


async def test_a_model_hears_of_new_tools_and_keeps_its_prompt_until_the_next_run(warm_deno: DenoSandbox) -> None:
    @tool
    async def learn() -> None:
        corral.tools.register(add)

    async with Corral([learn], sandbox=warm_deno, check=False) as corral:
        model = PydanticModel(runs("await tools.learn()"), runs("return await tools.add({ a: 1, b: 2 })"), "done")
        agent = Agent(model, capabilities=[CodeMode(corral)])
        await agent.run("?")
        assert "Tools have changed:" in model.texts[0]
        assert "add(input: { a: number; b: number })" in model.texts[0]
        assert model.texts[1] == "Result: 3"
        first, *others = model.prompts
        assert set(others) == {first}
        await agent.run("?")
        assert "add(" in model.prompts[-1]


async def test_a_refused_program_does_not_lose_the_news(warm_deno: DenoSandbox) -> None:
    corral = Corral([caller], sandbox=warm_deno, check=False)
    model = PydanticModel(Call("more", {}), runs("return ]"), runs("return await tools.caller()"), "done")
    agent = Agent(model, capabilities=[CodeMode(corral)])

    @agent.tool_plain
    def more() -> None:
        corral.tools.register(add)

    await agent.run("?")
    _, refused, ran = model.texts
    assert "nothing ran" in refused
    assert "Tools have changed:" in refused
    assert ran == 'Result: "anonymous"'


# --- their tools in programs


class City(BaseModel):
    name: str
    people: int = 0


def double(x: int) -> int:
    """Doubles a number.

    Args:
        x: The number.
    """
    return 2 * x


def largest(cities: list[City]) -> City:
    """The largest of them."""
    return max(cities, key=lambda city: city.people)


def greet(ctx: RunContext[Any], word: str) -> str:
    """Greets."""
    who = ctx.deps.customer if isinstance(ctx.deps, Deps) else ctx.deps.user_id
    return f"{word}, {who}"


def refuse() -> None:
    raise ModelRetry("try another city")


def following(n: int) -> int:
    return n + 1


def wrapped() -> ToolReturn:
    return ToolReturn(return_value={"rows": 3}, metadata={"secret": 1})


async def value(tools: Sequence[Tool | ToolSource], program: str, context: ExecutionContext | None = None) -> Any:
    result = await Corral(tools, check=False).execute(program, context=context)
    return result.value if result.error is None else result.error.message


async def test_tools_and_function_toolsets_keep_their_schemas(warm_deno: DenoSandbox) -> None:
    toolset = FunctionToolset([AgentTool(largest), AgentTool(wrapped)])
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    made = AgentTool[Any].from_schema(following, "next-number", "The next one.", schema)
    corral = Corral(
        [*tools_of(AgentTool(double)), *tools_of(toolset, "world"), *tools_of(made)], sandbox=warm_deno, check=False
    )
    declared = corral.model.declarations()
    assert "double(input: {\n    x: number; // The number.\n  }): Promise<number>" in declared
    assert "next_number(input: { n: number }): Promise<unknown>" in declared
    program = """
    const city = await tools.world.largest({ cities: [{ name: "Oslo", people: 7 }, { name: "Bergen" }] });
    return [await tools.double({ x: 4 }), await tools.next_number({ n: 1 }), city, await tools.world.wrapped()];
    """
    value = (await corral.execute(program)).value
    assert value == [8, 2, {"name": "Oslo", "people": 7}, {"rows": 3}]


async def test_tools_get_the_run_of_the_agent_or_else_the_caller_as_deps(warm_deno: DenoSandbox) -> None:
    program = 'return await tools.greet({ word: "Hello" })'
    async with Corral(tools_of(AgentTool(greet)), sandbox=warm_deno, check=False) as corral:
        model = PydanticModel(runs(program), "done")
        agent = Agent(model, deps_type=Deps, capabilities=[CodeMode(corral)])
        await agent.run("?", deps=Deps("bob"))
        assert model.texts == ['Result: "Hello, bob"']
        result = await corral.execute(program, context=ExecutionContext(user_id="ada"))
        assert result.value == "Hello, ada"


async def test_a_tool_may_be_withheld_for_a_run() -> None:
    async def prepare(ctx: RunContext[Any], definition: ToolDefinition) -> ToolDefinition | None:
        return definition if ctx.deps.user_id == "ada" else None

    tools = tools_of(AgentTool(double, prepare=prepare))
    program = "return await tools.double({ x: 2 })"
    assert await value(tools, program, ExecutionContext(user_id="ada")) == 4
    assert await value(tools, program) == "double is not available at present"


async def test_what_a_tool_says_to_a_model_it_says_to_the_program() -> None:
    def check(ctx: RunContext[Any], x: int) -> None:
        if x > 9:
            raise ModelRetry("x is too large")

    tools = [*tools_of(AgentTool(refuse)), *tools_of(AgentTool(double, args_validator=check))]
    calls = "[tools.refuse(), tools.double({ x: 10 }), tools.double({ x: 'ten' })]"
    refused, large, wrong = await value(
        tools, f"return (await Promise.allSettled({calls})).map(({{ reason }}) => reason.message)"
    )
    assert (refused, large) == ("try another city", "x is too large")
    assert wrong.startswith('tool "double": x')


async def test_tools_that_require_approval_are_approved_by_corral(warm_deno: DenoSandbox) -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.tool)
        return len(asked) == 1

    corral = Corral(
        tools_of(AgentTool(double, requires_approval=True)), approve=approve, sandbox=warm_deno, check=False
    )
    result = await corral.execute("console.log(await tools.double({ x: 1 })); await tools.double({ x: 2 })")
    assert result.console == "2\n"
    assert result.error is not None
    assert result.error.code == "approval_denied"


class Transfer(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    to: str
    euros: int = Field(10_000, alias="amount")


async def test_what_is_approved_is_what_pydantic_ai_hands_to_the_function(warm_deno: DenoSandbox) -> None:
    def transfer(transfer: Transfer, note: str = "none") -> int:
        return transfer.euros

    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.shown())
        return True

    corral = Corral(
        tools_of(AgentTool(transfer, requires_approval=True)), approve=approve, sandbox=warm_deno, check=False
    )
    calls = ["{ to: 'ann' }", "{ to: 'bob', euros: 1, amount: 9, seen: true }"]
    for each, euros in zip(calls, (10_000, 9), strict=True):
        assert (await corral.execute(f"return await tools.transfer({{ transfer: {each} }})")).value == euros
    assert asked == [
        '{"transfer": {"to": "ann", "euros": 10000}, "note": "none"}',
        '{"transfer": {"to": "bob", "euros": 9}, "note": "none"}',
    ]


async def test_any_other_toolset_lists_its_tools_when_the_corral_is_open(warm_deno: DenoSandbox) -> None:
    toolset = FunctionToolset([AgentTool(double), AgentTool(greet)]).prefixed("my")
    async with Corral(tools_of(toolset, "kit"), sandbox=warm_deno, check=False) as corral:
        assert "my_double(input: {" in corral.model.declarations()
        program = 'return [await tools.kit.my_double({ x: 4 }), await tools.kit.my_greet({ word: "Hi" })]'
        assert (await corral.execute(program)).value == [8, "Hi, anonymous"]


def everything(ctx: RunContext[Any], definition: ToolDefinition) -> bool:
    return True


async def test_a_tool_that_cannot_be_beside_the_hosts_own_is_left_out(
    caplog: pytest.LogCaptureFixture, warm_deno: DenoSandbox
) -> None:
    toolset = FunctionToolset([AgentTool(greet, name="search"), AgentTool(greet, name="add"), AgentTool(double)])
    async with Corral([add, *tools_of(toolset.filtered(everything))], sandbox=warm_deno, check=False) as corral:
        assert [str(name) for name in corral.tools.snapshot()] == ["add", "double"]
        assert corral.tools.get("add") is add
    assert "tool 'search' is left out; give a namespace: " in caplog.text
    assert "tool 'add' is left out; give a namespace: there is already a tool 'add'" in caplog.text


async def test_what_is_no_tool_or_runs_elsewhere_is_refused(warm_deno: DenoSandbox) -> None:
    with pytest.raises(ToolDefinitionError, match="not int"):
        tools_of(3)
    [source] = tools_of(ExternalToolset[Any]([ToolDefinition(name="far")]))
    assert isinstance(source, ToolSource)
    async with Corral([add, source], sandbox=warm_deno, check=False) as corral:
        assert [str(name) for name in corral.tools.snapshot()] == ["add"]


async def test_a_picture_of_a_tool_of_the_framework_reaches_the_model_as_one(warm_deno: DenoSandbox) -> None:
    def shot() -> BinaryContent:
        return BinaryContent(PNG, media_type="image/png")

    def shot_along() -> Any:
        return ToolReturn("saved", content=["Look:", BinaryContent(PNG, media_type="image/png")])

    model = PydanticModel(runs("return [await tools.shot()]"), runs("return await tools.shot_along()"), "done")
    async with Corral(
        [*tools_of(AgentTool(shot)), *tools_of(AgentTool(shot_along))], sandbox=warm_deno, check=False
    ) as corral:
        await Agent(model, capabilities=[CodeMode(corral)]).run("?")
    [part, along] = model.read
    assert along.content == [
        'Result: {"value":"saved","content":["[picture image/png, 70 bytes]"]}',
        BinaryContent(PNG, media_type="image/png"),
    ]
    assert part.content == [
        'Result: ["[picture image/png, 70 bytes]"]',
        BinaryContent(PNG, media_type="image/png"),
    ]


async def test_a_run_is_shown_the_tools_that_its_own_caller_may_call(warm_deno: DenoSandbox) -> None:
    @tool(scopes={"admin"})
    async def shred() -> str:
        return "gone"

    async with Corral([shred], hide_denied=True, sandbox=warm_deno, check=False) as corral:
        for scopes, shown in ((set[str](), False), ({"admin"}, True)):
            model = PydanticModel(runs("return await tools.shred()"), "done")
            agent = Agent(model, deps_type=ExecutionContext, capabilities=[CodeMode(corral)])
            await agent.run("?", deps=ExecutionContext(scopes=scopes))
            assert ("shred" in model.prompts[0]) is shown
            assert ("gone" in model.texts[0]) is shown
            assert 'no tool "shred"; there are none' in model.texts[0] or shown
