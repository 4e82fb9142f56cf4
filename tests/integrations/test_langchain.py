"""Code mode in agents of LangChain, and their tools in programs."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
import pytest
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain.tools import InjectedState, ToolException, ToolRuntime
from langchain.tools import tool as agent_tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.tools import Tool as TextTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command
from pydantic import BaseModel, PrivateAttr, field_validator
from typing_extensions import override

from corral import Corral, Event, ExecutionContext, Tool, tool
from corral.errors import ConfigError, ToolDefinitionError
from corral.integrations.langchain import AgentParts, code_mode, runtime_of, tools_of
from corral.sandboxes import DenoSandbox
from corral.tools import ToolSource
from tests.integrations.scenario import (
    ANSWER,
    PICTURE,
    PICTURE_TEXT,
    PNG,
    QUESTION,
    RIGHT,
    WRONG,
    Endless,
    Scenario,
    add,
    caller,
    picture,
    screenshot,
)

pytestmark = pytest.mark.anyio


def runs(code: str, name: str = "execute_code") -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": {"code": code}, "id": "call", "type": "tool_call"}])


@dataclass
class Seen:
    """What a model was given."""

    prompts: list[str] = field(default_factory=list[str])
    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    read: list[ToolMessage] = field(default_factory=list[ToolMessage])
    """The results of tools."""

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.read]

    @property
    def names(self) -> list[str]:
        return [each["function"]["name"] for each in self.tools]


class Script(BaseChatModel):
    """A model that gives these answers in turn. `judges` see the results of tools when the model does."""

    _answers: list[AIMessage] = PrivateAttr()
    _judges: list[Callable[[str], None]] = PrivateAttr()
    _seen: Seen = PrivateAttr(default_factory=Seen)

    def __init__(self, *answers: AIMessage | str, judges: Sequence[Callable[[str], None]] = ()) -> None:
        super().__init__()
        self._answers = [AIMessage(each) if isinstance(each, str) else each for each in answers]
        self._judges = list(judges)

    @property
    def seen(self) -> Seen:
        return self._seen

    @property
    @override
    def _llm_type(self) -> str:
        return "script"

    @override
    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        self._seen.tools = [convert_to_openai_tool(each) for each in tools]
        return self

    @override
    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self._seen.prompts.append(messages[0].text)
        if isinstance(last := messages[-1], ToolMessage):
            self._seen.read.append(last)
            if self._judges:
                self._judges.pop(0)(last.text)
        return ChatResult(generations=[ChatGeneration(message=self._answers.pop(0))])


def agent_of(model: Script, parts: AgentParts, **options: Any) -> Any:
    return create_agent(model, **parts, **options)


async def ask(agent: Any, question: str = "?", **options: Any) -> str:
    result = await agent.ainvoke({"messages": [HumanMessage(question)]}, **options)
    return result["messages"][-1].text


@pytest.fixture(scope="module")
async def corral(warm_deno: DenoSandbox) -> AsyncIterator[Corral]:
    async with Corral([add, caller], sandbox=warm_deno, check=False) as corral:
        yield corral


async def test_a_model_reads_what_is_wrong_with_its_program_mends_it_and_answers(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()
    model = Script(runs(WRONG), runs(RIGHT), ANSWER, judges=[scenario.after_wrong, scenario.after_right])
    async with scenario.corral(warm_deno) as corral:
        assert await ask(agent_of(model, code_mode(corral)), QUESTION) == ANSWER
    assert [message.status for message in model.seen.read] == ["error", "success"]
    assert len(set(model.seen.prompts)) == 1
    assert "get_weather(input: { city: string })" in model.seen.prompts[0]


async def test_events_have_the_id_of_the_call_that_the_model_made(corral: Corral) -> None:
    heard: list[Event] = []
    model = Script(runs("return await tools.add({ a: 1, b: 2 })"), "done")
    await ask(agent_of(model, code_mode(corral, on_event=heard.append)))
    [message] = model.seen.read
    assert {each.tool_call_id for each in heard} == {message.tool_call_id} == {"call"}
    assert {each.type for each in heard} >= {"started", "call", "result", "finished"}


async def test_own_tools_and_the_own_prompt_stay(corral: Corral) -> None:
    @agent_tool
    def own() -> str:
        """Mine."""
        return "mine"

    def plain() -> str:
        """Also mine."""
        return "plain"

    model = Script("done")
    await ask(agent_of(model, code_mode(corral, system_prompt="You count.", tools=[own, plain])))
    assert model.seen.names == ["own", "plain", "execute_code"]
    assert model.seen.prompts[0].startswith("You count.\n\nYou call tools from programs in TypeScript.")
    assert model.seen.tools[-1]["function"]["parameters"]["required"] == ["code"]
    assert [*model.seen.tools[-1]["function"]["parameters"]["properties"]] == ["code"]


async def test_a_tool_of_the_same_name_is_refused_with_the_way_out(corral: Corral) -> None:
    def execute_code(code: str) -> str:
        """Mine."""
        return code

    for own in (execute_code, agent_tool(execute_code), {"type": "function", "function": {"name": "execute_code"}}):
        with pytest.raises(ConfigError, match="already; name the Corral"):
            code_mode(corral, tools=[own])
    assert len(code_mode({"math": corral}, tools=[execute_code])["tools"]) == 2


async def test_several_corrals_have_a_tool_each(corral: Corral, warm_deno: DenoSandbox) -> None:
    @tool
    async def total() -> int:
        return 7

    async with Corral([total], sandbox=warm_deno, check=False) as sales:
        model = Script(
            runs("return await tools.add({ a: 1, b: 2 })", "execute_code_math"),
            runs("return await tools.total()", "execute_code_sales"),
            "done",
        )
        await ask(agent_of(model, code_mode({"math": corral, "sales": sales})))
    assert model.seen.texts == ["Result: 3", "Result: 7"]
    assert "Programs that `execute_code_sales` runs" in model.seen.prompts[0]


async def test_what_is_wrong_with_arguments_is_told(corral: Corral) -> None:
    call = AIMessage("", tool_calls=[{"name": "execute_code", "args": {"cod": "1"}, "id": "1", "type": "tool_call"}])
    model = Script(call, runs("throw new Error('oops')"), "done")
    await ask(agent_of(model, code_mode(corral)))
    wrong, failed = model.seen.read
    assert "code: field required" in wrong.text
    assert "oops" in failed.text
    assert (wrong.status, failed.status) == ("error", "error")


@dataclass
class Customer:
    name: str


WHO = "return await tools.caller()"


async def test_a_runtime_context_that_is_a_context_is_whom_programs_run_for(corral: Corral) -> None:
    model = Script(runs(WHO), "done")
    agent = agent_of(model, code_mode(corral), context_schema=ExecutionContext)
    await ask(agent, context=ExecutionContext(user_id="ada"))
    assert model.seen.texts == ['Result: "ada"']


async def test_a_function_of_the_runtime_says_whom_programs_run_for(corral: Corral) -> None:
    def whose(runtime: ToolRuntime[Any, Any]) -> ExecutionContext:
        return ExecutionContext(user_id=runtime.config.get("configurable", {})["user_id"])

    model = Script(runs(WHO), "done")
    await ask(agent_of(model, code_mode(corral, context=whose)), config={"configurable": {"user_id": "bob"}})
    assert model.seen.texts == ['Result: "bob"']


async def test_tools_find_the_runtime_they_are_called_in(warm_deno: DenoSandbox) -> None:
    @tool
    async def customer(*, context: ExecutionContext) -> str:
        runtime = runtime_of(context)
        assert runtime is not None
        return runtime.context.name

    async with Corral([customer], sandbox=warm_deno, check=False) as corral:
        model = Script(runs("return await tools.customer()"), "done")
        await ask(agent_of(model, code_mode(corral), context_schema=Customer), context=Customer("bob"))
    assert model.seen.texts == ['Result: "bob"']


async def test_what_programs_do_is_told(corral: Corral) -> None:
    heard: list[str] = []
    model = Script(runs("await tools.add({ a: 1, b: 2 })"), "done")
    await ask(agent_of(model, code_mode(corral, on_event=lambda event: heard.append(event.type))))
    assert heard == ["started", "call", "result", "finished"]


async def test_cancelling_the_agent_cancels_the_program(warm_deno: DenoSandbox) -> None:
    endless = Endless()
    async with Corral([endless.tool], sandbox=warm_deno, check=False) as corral:
        agent = agent_of(Script(runs("await tools.wait()")), code_mode(corral))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, agent)
            with anyio.fail_after(20):
                await endless.begun.wait()
            tasks.cancel_scope.cancel()
        assert endless.ended.is_set()


async def test_an_agent_that_is_not_awaited_is_told_to_be(corral: Corral) -> None:
    agent = agent_of(Script(runs("return 1")), code_mode(corral))
    with pytest.raises(ConfigError, match=r"await agent\.ainvoke"):
        agent.invoke({"messages": [HumanMessage("?")]})


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
    declared = corral.declarations()
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
    program = 'return await tools.whose({ word: "Hello" })'
    corral = Corral(made(whose), sandbox=warm_deno, check=False)
    assert "whose(input: { word: string }): Promise<string>" in corral.declarations()
    model = Script(runs(program), "done")
    await ask(agent_of(model, code_mode(corral), context_schema=Customer), context=Customer("bob"))
    assert model.seen.texts == ['Result: "Hello, bob"']
    result = await corral.execute(program)
    assert result.error is not None
    assert result.error.message == "whose can only be called by programs of a LangChain agent"


async def test_calls_of_a_tool_are_told_as_steps_of_the_agents_run(warm_deno: DenoSandbox) -> None:
    model = Script(runs("return await tools.double({ x: 2 })"), "done")
    agent = agent_of(model, code_mode(Corral(made(double), sandbox=warm_deno, check=False)))
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

    with pytest.raises(ToolDefinitionError, match="not of int"):
        tools_of(3)
    with pytest.raises(ToolDefinitionError, match="'state'; take `runtime: ToolRuntime`"):
        tools_of(count)


# --- without the framework


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)


def test_without_the_extra_one_line_says_what_to_install() -> None:
    run = python('import sys; sys.modules["langchain_core"] = None; import corral.integrations.langchain')
    line = run.stderr.strip().splitlines()[-1]
    assert line.startswith("corral.errors.MissingExtra: corral.integrations.langchain needs the module langchain_core")
    assert line.endswith(": pip install 'corral[langchain]'")


def test_corral_itself_does_not_import_it() -> None:
    run = python("import sys, corral, corral.integrations; print('langchain_core' in sys.modules)")
    assert (run.stdout, run.stderr) == ("False\n", "")


async def test_pictures_go_with_the_text(warm_deno: DenoSandbox) -> None:
    model = Script(runs(PICTURE), "done")
    async with Corral([screenshot, picture], sandbox=warm_deno, check=False) as corral:
        await ask(agent_of(model, code_mode(corral)))
    image = {"type": "image", "base64": base64.b64encode(PNG).decode(), "mime_type": "image/png"}
    [message] = model.seen.read
    assert message.content == [{"type": "text", "text": PICTURE_TEXT}, image, image]
