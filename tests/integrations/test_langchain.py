"""Code mode in agents of LangChain, and their tools in programs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import anyio.to_thread
import pytest
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain.tools import InjectedState, ToolException, ToolRuntime
from langchain.tools import tool as agent_tool
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import Tool as TextTool
from langgraph.types import Command
from pydantic import BaseModel, field_validator
from typing_extensions import override

from corral import Corral, ExecutionContext, Tool, tool
from corral.errors import ToolDefinitionError
from corral.integrations.langchain import CodeMode, runtime_of, tools_of
from corral.sandboxes import DenoSandbox
from corral.tools import ToolSource
from tests.integrations.frameworks import LangchainModel, runs
from tests.integrations.scenario import add, caller
from tests.integrations.stubs import Call

pytestmark = pytest.mark.anyio


def agent_of(model: LangchainModel, mode: CodeMode, *tools: Any, **options: Any) -> Any:
    return create_agent(model, tools, middleware=[mode], **options)


async def ask(agent: Any, question: str = "?", **options: Any) -> str:
    result = await agent.ainvoke({"messages": [HumanMessage(question)]}, **options)
    return result["messages"][-1].text


@pytest.fixture(scope="module")
async def corral(warm_deno: DenoSandbox) -> AsyncIterator[Corral]:
    async with Corral([add, caller], sandbox=warm_deno, check=False) as corral:
        yield corral


async def test_own_tools_and_the_own_prompt_stay(corral: Corral) -> None:
    @agent_tool
    def own() -> str:
        """Mine."""
        return "mine"

    def plain() -> str:
        """Also mine."""
        return "plain"

    model = LangchainModel("done")
    await ask(agent_of(model, CodeMode(corral), own, plain))
    assert [each["function"]["name"] for each in model.seen.tools] == ["own", "plain", "execute_code"]


@dataclass
class Customer:
    name: str


WHO = "return await tools.caller()"


async def test_a_runtime_context_that_is_a_context_is_whom_programs_run_for(corral: Corral) -> None:
    model = LangchainModel(runs(WHO), "done")
    agent = agent_of(model, CodeMode(corral), context_schema=ExecutionContext)
    await ask(agent, context=ExecutionContext(user_id="ada"))
    assert model.seen.texts == ['Result: "ada"']


async def test_a_function_of_the_runtime_says_whom_programs_run_for(corral: Corral) -> None:
    def whose(runtime: ToolRuntime[Any, Any]) -> ExecutionContext:
        return ExecutionContext(user_id=runtime.config.get("configurable", {})["user_id"])

    model = LangchainModel(runs(WHO), "done")
    await ask(agent_of(model, CodeMode(corral, context=whose)), config={"configurable": {"user_id": "bob"}})
    assert model.seen.texts == ['Result: "bob"']


async def test_tools_find_the_runtime_they_are_called_in(warm_deno: DenoSandbox) -> None:
    @tool
    async def customer(*, context: ExecutionContext) -> str:
        runtime = runtime_of(context)
        assert runtime is not None
        return runtime.context.name

    async with Corral([customer], sandbox=warm_deno, check=False) as corral:
        model = LangchainModel(runs("return await tools.customer()"), "done")
        await ask(agent_of(model, CodeMode(corral), context_schema=Customer), context=Customer("bob"))
    assert model.seen.texts == ['Result: "bob"']


def test_an_agent_need_not_be_awaited(warm_deno: DenoSandbox) -> None:
    with Corral([add], sandbox=warm_deno, check=False) as corral:
        model = LangchainModel([runs("return await tools.add({ a: 1, b: 2 })"), runs("return 4")], "done")
        agent = agent_of(model, CodeMode(corral))
        result = agent.invoke({"messages": [HumanMessage("?")]})
    assert result["messages"][-1].text == "done"
    assert model.seen.texts == ["Result: 3", "Result: 4"]


# --- the agent's own tools in programs


@agent_tool
def list_orders() -> list[int]:
    """The numbers of the orders."""
    return [7, 9]


@agent_tool
async def get_status(order: int) -> str:
    """Where an order is."""
    return f"order {order} is in Bergen"


@agent_tool
def cancel(order: int) -> str:
    """Cancels an order."""
    return f"order {order} is cancelled"


PROGRAM = "const [first] = await tools.list_orders(); return await tools.get_status({ order: first })"


@pytest.mark.parametrize("awaited", [True, False])
async def test_one_line_makes_an_agents_tools_what_its_programs_call(awaited: bool) -> None:
    model = LangchainModel(runs(PROGRAM), "done")
    mode = CodeMode(outside=["cancel"])
    tools = [list_orders, get_status, cancel]
    agent: Any = create_agent(model, tools, system_prompt="Be brief.", middleware=[mode])
    asked = {"messages": [HumanMessage("?")]}
    if awaited:
        await agent.ainvoke(asked)
    else:
        await anyio.to_thread.run_sync(agent.invoke, asked)
    assert [each["function"]["name"] for each in model.seen.tools] == ["cancel", "execute_code"]
    assert model.seen.texts == ['Result: "order 7 is in Bergen"']
    first, second = model.seen.prompts
    assert first == second
    assert first.startswith("Be brief.\n\nYou call tools from programs in TypeScript.")
    assert "get_status(input: { order: number }): Promise<string>" in first
    assert "cancel" not in first


async def test_many_tools_are_searched_and_what_programs_cannot_call_stays(
    warm_deno: DenoSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    @agent_tool
    def remember(word: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Remembers a word."""
        return word

    model = LangchainModel(Call("search_tools", {"query": "status"}), "done")
    async with Corral([add], sandbox=warm_deno, check=False) as corral:
        mode = CodeMode(corral, tools="all", budget_tokens=500)
        many = [get_status.model_copy(update={"name": f"get_status_of_{number}"}) for number in range(40)]
        agent: Any = create_agent(model, [*many, remember], middleware=[mode])
        await ask(agent)
    names = [each["function"]["name"] for each in model.seen.tools]
    assert names == ["remember", "execute_code", "search_tools", "describe_tools"]
    assert "get_status_of_" in model.seen.texts[0]
    assert "a tool of the agent stays with the model" in caplog.text


# --- their tools in programs


class City(BaseModel):
    name: str
    people: int = 0

    @field_validator("name")
    @classmethod
    def is_known(cls, name: str) -> str:
        if name == "Atlantis":
            raise ValueError("no such city")
        return name


@agent_tool(parse_docstring=True)
def double(x: int) -> int:
    """Doubles a number.

    Args:
        x: The number.
    """
    return 2 * x


@agent_tool
async def largest(cities: list[City]) -> City:
    """The largest of them."""
    return max(cities, key=lambda city: city.people)


@agent_tool(args_schema=City)
async def visit(name: str, people: int) -> str:
    """Visits it."""
    City.model_validate({})  # what is wrong in the middle of a tool is nobody's business
    return name


@agent_tool(response_format="content_and_artifact")
def fetch() -> tuple[str, list[int]]:
    """Fetches."""
    return "3 rows", [1, 2, 3]


@agent_tool
def refuse() -> None:
    """Refuses."""
    raise ToolException("try another city")


@agent_tool
def whose(word: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Greets."""
    return f"{word}, {runtime.context.name}"


class Reverse(BaseTool):
    name: str = "reverse-text"
    description: str = "Reverses."

    @override
    def _run(self, text: str) -> str:
        return text[::-1]


def made(*tools: object, namespace: str | None = None) -> list[Tool | ToolSource]:
    return [each for tool in tools for each in tools_of(tool, namespace)]


async def test_tools_of_all_kinds_keep_their_schemas(warm_deno: DenoSandbox) -> None:
    async def following(n: int) -> int:
        return n + 1

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    by_schema = StructuredTool(name="following", description="The next.", args_schema=schema, coroutine=following)
    text = TextTool("shout", str.upper, "Shouts.")
    corral = Corral(
        [*made(double, by_schema, Reverse(), fetch, text), *made(largest, namespace="world")],
        sandbox=warm_deno,
        check=False,
    )
    declared = corral.model.declarations()
    assert "// Doubles a number.\n" in declared
    assert "x: number; // The number.\n  }): Promise<number>" in declared
    assert "following(input: { n: number }): Promise<number>" in declared
    result = await corral.execute("""
        return [
            await tools.double({ x: 4 }),
            await tools.following({ n: 1 }),
            await tools.reverse_text({ text: "abc" }),
            await tools.fetch(),
            await tools.shout({ tool_input: "hey" }),
            await tools.world.largest({ cities: [{ name: "Oslo", people: 7 }, { name: "Bergen" }] }),
        ];
    """)
    assert (result.error, result.value) == (
        None,
        [8, 2, "cba", "3 rows", "HEY", {"name": "Oslo", "people": 7}],
    )


async def test_what_a_tool_says_to_a_model_it_says_to_the_program(warm_deno: DenoSandbox) -> None:
    handled = refuse.model_copy(update={"name": "handled", "handle_tool_error": "please {}".format})
    said = refuse.model_copy(update={"name": "said", "handle_tool_error": "no"})

    @agent_tool
    def go() -> Command[Any]:
        """Goes."""
        return Command(goto="end")

    @agent_tool
    def answer() -> ToolMessage:
        """Answers by itself."""
        return ToolMessage("broken", tool_call_id="1", status="error")

    corral = Corral(made(refuse, handled, said, go, answer, visit), sandbox=warm_deno, check=False)
    result = await corral.execute("""
        const calls = [tools.refuse(), tools.handled(), tools.said(), tools.go(), tools.answer(),
                       tools.visit({ name: "Atlantis" }), tools.visit({ name: "Oslo" })];
        return (await Promise.allSettled(calls)).map(({ reason }) => reason.message);
    """)
    *told, hidden = result.value
    assert told == [
        "try another city",
        "please try another city",
        "no",
        "go changes the agent's state, which a program cannot do",
        "broken",
        'tool "visit": name: Value error, no such city',
    ]
    assert "tools.visit failed" in hidden


async def test_a_tool_gets_the_runtime_of_the_agent(warm_deno: DenoSandbox) -> None:
    greeting = 'return await tools.whose({ word: "Hello" })'
    async with Corral(made(whose), sandbox=warm_deno, check=False) as corral:
        assert "whose(input: { word: string }): Promise<string>" in corral.model.declarations()
        model = LangchainModel(runs(greeting), "done")
        await ask(agent_of(model, CodeMode(corral), context_schema=Customer), context=Customer("bob"))
        result = await corral.execute(greeting)
    assert model.seen.texts == ['Result: "Hello, bob"']
    assert result.error is not None
    assert result.error.message == "whose can only be called by programs of a LangChain agent"


async def test_calls_of_a_tool_are_told_as_steps_of_the_agents_run(warm_deno: DenoSandbox) -> None:
    model = LangchainModel(runs("return await tools.double({ x: 2 })"), "done")
    agent = agent_of(model, CodeMode(Corral(made(double), sandbox=warm_deno, check=False)))
    program, call = [
        event
        async for event in agent.astream_events({"messages": [HumanMessage("?")]})
        if event["event"] == "on_tool_start"
    ]
    assert (program["name"], call["name"], call["data"]["input"]) == ("execute_code", "double", {"x": 2})
    assert program["parent_ids"] == call["parent_ids"]


async def test_what_is_no_tool_or_needs_more_of_langchain_is_refused() -> None:
    @agent_tool
    def count(state: Annotated[dict[str, Any], InjectedState]) -> int:
        """Counts."""
        return len(state)

    with pytest.raises(ToolDefinitionError, match="not int"):
        tools_of(3)
    with pytest.raises(ToolDefinitionError, match="'state'; take `runtime: ToolRuntime`"):
        tools_of(count)
