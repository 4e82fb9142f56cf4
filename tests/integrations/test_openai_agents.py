"""Corral for agents of the OpenAI Agents SDK, against the Responses API on loopback; and its tools for Corral."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import anyio
import pytest
from agents import (
    Agent,
    RunConfig,
    RunContextWrapper,
    Runner,
    WebSearchTool,
    function_tool,
    set_trace_processors,
    set_tracing_disabled,
)
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from agents.tool_context import ToolContext
from agents.tool_guardrails import ToolGuardrailFunctionOutput, ToolInputGuardrailData, tool_input_guardrail
from agents.tracing import FunctionSpanData, Span, Trace, TracingProcessor
from mcp.server.mcpserver import MCPServer as McpServer
from mcp.server.mcpserver.exceptions import ToolError as McpToolError
from mcp_types import Tool as ListedTool
from pydantic import AfterValidator, BaseModel
from typing_extensions import override

from corral import ApprovalRequest, Corral, ExecutionContext, ToolError, tool, tools_from
from corral.errors import ToolDefinitionError
from corral.integrations.openai_agents import RUN_CONTEXT, CodeMode
from corral.sandboxes import DenoSandbox
from tests.integrations.frameworks import openai_model, runs
from tests.integrations.mcp.serving import listening
from tests.integrations.scenario import ANSWER, QUESTION, Scenario, caller
from tests.integrations.stubs import calling, mending

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True, scope="module")
def traces_stay_here() -> None:
    set_tracing_disabled(True)


@pytest.mark.matrix("test_frameworks has it without streaming, which is the SDK's own")
async def test_a_model_mends_its_program_while_its_replies_stream(warm_deno: DenoSandbox) -> None:
    scenario = Scenario()
    async with openai_model(mending(scenario)) as (model, requested), scenario.corral(warm_deno) as corral:
        agent = Agent[None](name="agent", model=model, **CodeMode(corral).kwargs())
        result = Runner.run_streamed(agent, QUESTION)
        items = [event.name async for event in result.stream_events() if event.type == "run_item_stream_event"]
    assert result.final_output == ANSWER
    assert items == ["tool_called", "tool_output", "tool_called", "tool_output", "message_output_created"]
    assert requested.requests[0]["stream"] is True


class Spans(TracingProcessor):
    """What a run's trace has of tools."""

    def __init__(self) -> None:
        self.functions: list[Span[Any]] = []

    @override
    def on_span_end(self, span: Span[Any]) -> None:
        if isinstance(span.span_data, FunctionSpanData):
            self.functions.append(span)

    @override
    def on_span_start(self, span: Span[Any]) -> None: ...

    @override
    def on_trace_start(self, trace: Trace) -> None: ...

    @override
    def on_trace_end(self, trace: Trace) -> None: ...

    @override
    def shutdown(self) -> None: ...

    @override
    def force_flush(self) -> None: ...


@pytest.mark.parametrize("shows_data", [True, False])
async def test_calls_are_spans_below_that_of_their_program(warm_deno: DenoSandbox, shows_data: bool) -> None:
    program = "await tools.caller(); await tools.fail().catch(() => {})"
    spans = Spans()
    set_trace_processors([spans])
    set_tracing_disabled(False)
    try:
        async with (
            openai_model(calling(runs(program))) as (model, _),
            Corral([caller, fail], sandbox=warm_deno, check=False) as corral,
        ):
            agent = Agent[None](name="Ada", model=model, **CodeMode(corral).kwargs())
            await Runner.run(agent, QUESTION, run_config=RunConfig(trace_include_sensitive_data=shows_data))
    finally:
        set_tracing_disabled(True)
        set_trace_processors([])
    called, failed, ran = spans.functions
    assert [span.span_data.name for span in spans.functions] == ["caller", "fail", "execute_code"]
    assert called.parent_id == failed.parent_id == ran.span_id
    assert (called.span_data.input, called.span_data.output) == (("{}", '"anonymous"') if shows_data else (None, None))
    assert failed.error == {"message": "it is closed", "data": {"code": "tool_error"}}


@tool
def fail() -> None:
    raise ToolError("it is closed")


async def test_instructions_may_be_a_function_and_context_a_function_of_the_call(warm_deno: DenoSandbox) -> None:
    async def instructions(context: RunContextWrapper[str], agent: Agent[str]) -> str:
        return f"You are {agent.name}, for {context.context}."

    def context(call: ToolContext[str]) -> ExecutionContext:
        return ExecutionContext(user_id=f"{call.context} by {call.tool_name}")

    read: list[str] = []
    script = calling(runs("return await tools.caller()"), read=read)
    async with (
        openai_model(script) as (model, requested),
        Corral([caller], sandbox=warm_deno, check=False) as corral,
    ):
        agent = Agent[str](
            name="Ada", model=model, **CodeMode(corral, context=context).kwargs(instructions=instructions)
        )
        await Runner.run(agent, QUESTION, context="bob")
    assert requested.requests[0]["instructions"].startswith("You are Ada, for bob.\n\nYou call tools")
    assert requested.requests[0]["tools"][0]["strict"] is False
    assert read == ['Result: "bob by execute_code"']


async def test_a_context_of_the_run_that_is_a_context_is_whom_programs_run_for(warm_deno: DenoSandbox) -> None:
    read: list[str] = []
    script = calling(runs("return await tools.caller()"), read=read)
    async with openai_model(script) as (model, _), Corral([caller], sandbox=warm_deno, check=False) as corral:
        agent = Agent[ExecutionContext](name="agent", model=model, **CodeMode(corral).kwargs())
        await Runner.run(agent, QUESTION, context=ExecutionContext(user_id="ann"))
    assert read == ['Result: "ann"']


async def test_one_expression_makes_an_agents_tools_what_its_programs_call(caplog: pytest.LogCaptureFixture) -> None:
    @function_tool
    def list_orders() -> list[int]:
        return [7, 9]

    @function_tool
    async def get_status(call: ToolContext[str], order: int) -> str:
        return f"{call.context}'s order {order} is in Bergen"

    @function_tool(needs_approval=True)
    def cancel(order: int) -> str:
        return f"order {order} is cancelled"

    @tool_input_guardrail
    def guard(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow()

    @function_tool(tool_input_guardrails=[guard])
    def guarded() -> None: ...

    read: list[str] = []
    program = "return await tools.get_status({ order: (await tools.list_orders())[0] })"
    script = calling(runs(program), runs("return await tools.cancel({ order: 7 })"), read=read)
    async with openai_model(script) as (model, requested):
        own = [list_orders, get_status, cancel, guarded]
        agent = Agent[str](name="Ada", model=model, **CodeMode().kwargs(instructions="Be brief.", tools=own))
        await Runner.run(agent, QUESTION, context="ann")
    assert [each["name"] for each in requested.requests[0]["tools"]] == ["execute_code", "cancel", "guarded"]
    assert "list_orders(): Promise<number[]>" in requested.requests[0]["instructions"]
    assert read[0] == 'Result: "ann\'s order 7 is in Bergen"'
    assert 'no tool "cancel" in programs; call it as a separate tool' in read[1]
    assert "a tool of the agent stays with the model: tool 'guarded' has guardrails" in caplog.text


async def test_one_that_is_asked_for_approvals_has_those_of_the_agents_tools(warm_deno: DenoSandbox) -> None:
    @function_tool(needs_approval=True)
    def cancel(order: int) -> str:
        return f"order {order} is cancelled"

    read: list[str] = []
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.tool)
        return len(asked) == 1

    script = calling(*[runs("return await tools.cancel({ order: 7 })")] * 2, read=read)
    async with openai_model(script) as (model, _), Corral(sandbox=warm_deno, check=False) as corral:
        mode = CodeMode(corral, tools="all", approve=approve)
        await Runner.run(Agent[None](name="Ada", model=model, **mode.kwargs(tools=[cancel])), QUESTION)
    assert asked == ["cancel"] * 2
    approved, denied = sorted(
        read, key=lambda text: "ApprovalDenied" in text
    )  # either program may be asked about first
    assert approved == 'Result: "order 7 is cancelled"'
    assert "ApprovalDenied" in denied


# --- tools of agents, for programs --------------------------------------------------------------------------


class City(BaseModel):
    name: str
    people: int


async def run(corral: Corral, program: str, **options: Any) -> Any:
    result = await corral.execute(program, **options)
    return result.value if result.success else result.error


async def test_a_function_tool_takes_and_gives_data_and_is_declared_with_its_types(warm_deno: DenoSandbox) -> None:
    @function_tool
    async def find(name: str, limit: int) -> list[City]:
        """Finds cities."""
        return [City(name=name, people=limit)]

    async with Corral(tools_from(find, namespace="geo"), sandbox=warm_deno, check=False) as corral:
        assert "Promise<City[]>" in corral.model.declarations()
        assert "Finds cities." in corral.model.declarations()
        found = await run(corral, 'return (await tools.geo.find({ name: "Oslo", limit: 7 }))[0].people')
        wrong = await run(corral, 'return await tools.geo.find({ name: "Oslo", limit: "x" })')
    assert found == 7
    assert wrong.message.startswith('tool "geo.find": limit: ')


def known(name: str) -> str:
    if name == "Atlantis":
        raise ValueError("no such city")
    return name


async def test_arguments_that_cannot_be_approved_are_refused_with_a_message_of_one_line(warm_deno: DenoSandbox) -> None:
    @function_tool(needs_approval=True)
    def visit(name: Annotated[str, AfterValidator(known)]) -> str:
        return name

    async with Corral(tools_from(visit), approve=lambda _: True, sandbox=warm_deno, check=False) as corral:
        error = await run(corral, 'return await tools.visit({ name: "Atlantis" })')
    assert (error.name, error.message) == ("InvalidArguments", 'tool "visit": name: Value error, no such city')


async def test_what_a_function_tool_raises_stays_in_the_host_unless_it_has_a_text_for_models(
    warm_deno: DenoSandbox,
) -> None:
    @function_tool
    def leak() -> str:
        raise ValueError("password=hunter2")

    def say(context: RunContextWrapper[Any], error: Exception) -> str:
        return f"there is no such city: {type(error).__name__}"

    @function_tool(failure_error_function=say)
    def look() -> str:
        raise KeyError("Rome")

    @function_tool(timeout=0.01)
    async def slow() -> str:
        await anyio.sleep_forever()
        return ""

    async with Corral(tools_from(leak, look, slow), sandbox=warm_deno, check=False) as corral:
        errors = [await run(corral, f"return await tools.{name}()") for name in ("leak", "look", "slow")]
        told = (await corral.execute("try { await tools.look() } catch (error) { return error.code }")).value
    assert [error.name for error in errors] == ["ToolFailed", "ToolError", "ToolError"]
    assert "hunter2" not in errors[0].message
    assert errors[1].message == "there is no such city: KeyError"
    assert "timed out after 0.01 seconds" in errors[2].message
    assert told == "tool_error"


async def test_a_function_tool_knows_the_run_that_the_program_is_part_of(warm_deno: DenoSandbox) -> None:
    seen: list[RunContextWrapper[Any]] = []

    @function_tool
    async def look(context: ToolContext[Any], place: str) -> str:
        seen.append(context)
        return f"{context.tool_name} {context.tool_arguments}"

    @tool
    async def own(*, context: ExecutionContext) -> None:
        seen.append(context.local[RUN_CONTEXT])

    read: list[str] = []
    look_there = 'return await tools.look({ place: "Oslo" })'
    script = calling(runs(f"await tools.own(); {look_there}"), read=read)
    async with (
        openai_model(script) as (model, _),
        Corral(tools_from(look, own), sandbox=warm_deno, check=False) as corral,
    ):
        agent = Agent[dict[str, str]](name="agent", model=model, **CodeMode(corral).kwargs())
        context = {"account": "ann"}
        await Runner.run(agent, QUESTION, context=context)
        alone = ExecutionContext(user_id="bob")
        await run(corral, look_there, context=alone)
    assert read == ['Result: "look {\\"place\\":\\"Oslo\\"}"']
    from_own, inside, outside = seen
    assert from_own.context is context
    assert isinstance(inside, ToolContext)
    assert inside.context is context
    assert inside.agent is agent
    assert outside.context == alone


async def test_approvals_of_a_function_tool_are_corrals(warm_deno: DenoSandbox) -> None:
    asked: list[Any] = []

    async def large(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return arguments["amount"] > 10

    @function_tool(needs_approval=large)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    @function_tool(needs_approval=True)
    def close() -> str:
        return "closed"

    def approve(request: Any) -> bool:
        asked.append((request.tool, request.input))
        return request.tool == "pay"

    async with Corral(tools_from(pay, close), approve=approve, sandbox=warm_deno, check=False) as corral:
        assert await run(corral, "return await Promise.all([1, 20].map((amount) => tools.pay({ amount })))") == [
            "paid 1",
            "paid 20",
        ]
        assert (await run(corral, "return await tools.close()")).code == "approval_denied"
    assert asked == [("pay", {"amount": 20}), ("close", {})]


async def test_what_is_approved_is_what_the_function_gets(warm_deno: DenoSandbox) -> None:
    @function_tool(needs_approval=True, strict_mode=False)
    def pay(amount: int, currency: str = "EUR") -> str:
        return f"paid {amount} {currency}"

    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.shown())
        return True

    async with Corral(tools_from(pay), approve=approve, sandbox=warm_deno, check=False) as corral:
        assert await run(corral, "return await tools.pay({ amount: 7 })") == "paid 7 EUR"
    assert asked == ['{"amount": 7, "currency": "EUR"}']


async def test_a_function_tool_that_is_not_enabled_is_not_called(warm_deno: DenoSandbox) -> None:
    @function_tool(is_enabled=lambda context, agent: context.context.user_id == "ann")
    def secret() -> str:
        return "secret"

    async with Corral(tools_from(secret), sandbox=warm_deno, check=False) as corral:
        values = [
            await run(corral, "return await tools.secret()", context=ExecutionContext(user_id=user))
            for user in ("ann", "bob")
        ]
    assert values[0] == "secret"
    assert values[1].message == "secret is not enabled"


async def test_what_does_not_run_here_or_is_guarded_elsewhere_is_no_tool() -> None:
    @tool_input_guardrail
    def guard(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow()

    @function_tool(tool_input_guardrails=[guard])
    def guarded() -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"programs cannot call a WebSearchTool .* leave it to the agent"):
        tools_from(WebSearchTool())
    with pytest.raises(ToolDefinitionError, match="'guarded' has guardrails"):
        tools_from(guarded)


# --- their MCP servers --------------------------------------------------------------------------------------


@pytest.fixture
def cities() -> Any:
    server = McpServer[Any]("cities")

    @server.tool()
    def population(city: str) -> int:
        """How many people live in a city."""
        if city != "Oslo":
            raise McpToolError(f"{city} is unknown")
        return 709_000

    @server.tool()
    def forget(city: str) -> str:
        """Forgets a city."""
        return f"forgot {city}"

    return server


async def test_the_tools_of_an_mcp_server_are_there_while_the_corral_is_open(
    cities: Any, warm_deno: DenoSandbox
) -> None:
    async with listening(cities) as url:
        server = MCPServerStreamableHttp({"url": url}, require_approval={"forget": "always"})
        async with Corral(tools_from(server, namespace="cities"), sandbox=warm_deno, check=False) as corral:
            assert "population(input: { city: string }): Promise<number>" in corral.model.declarations()
            assert await run(corral, 'return await tools.cities.population({ city: "Oslo" })') == 709_000
            failed = await run(corral, 'return await tools.cities.population({ city: "Rome" })')
            denied = await run(corral, 'return await tools.cities.forget({ city: "Oslo" })')
        assert server.session is None
    assert failed.name == "ToolError"
    assert "Rome is unknown" in failed.message
    assert denied.code == "approval_denied"


async def test_an_mcp_server_that_was_connected_stays_so(cities: Any, warm_deno: DenoSandbox) -> None:
    async with listening(cities) as url, MCPServerStreamableHttp({"url": url}) as server:
        async with Corral(tools_from(server), sandbox=warm_deno, check=False) as corral:
            assert await run(corral, 'return await tools.forget({ city: "Oslo" })') == "forgot Oslo"
        assert len(await server.list_tools()) == 2


async def test_corrals_that_share_an_mcp_server_keep_it_connected_until_the_last_is_closed(
    cities: Any, warm_deno: DenoSandbox
) -> None:
    forget = 'return await tools.cities.forget({ city: "Oslo" })'
    async with listening(cities) as url:
        server = MCPServerStreamableHttp({"url": url})
        first, second = (
            Corral(tools_from(server, namespace="cities"), sandbox=warm_deno, check=False) for _ in range(2)
        )
        async with second:
            async with first:
                assert await run(first, forget) == "forgot Oslo"
            assert await run(second, forget) == "forgot Oslo"
            async with first:
                await second.aclose()
                assert await run(first, forget) == "forgot Oslo"
            assert server.session is None


class Crowded(MCPServerStdio):
    """A server that lists more than is taken. No process is started: what it says of its tools is what is asked."""

    async def connect(self) -> None: ...

    async def list_tools(self, run_context: object = None, agent: object = None) -> list[ListedTool]:
        names = ["search", "first", "first", *map("tool_{}".format, range(1_200))]
        return [ListedTool(name=name, input_schema={"type": "object"}) for name in names]


async def test_the_tools_of_an_mcp_server_are_bounded_and_distinct(
    caplog: pytest.LogCaptureFixture, warm_deno: DenoSandbox
) -> None:
    async with Corral(tools_from(Crowded({"command": "none"})), sandbox=warm_deno, check=False) as corral:
        assert len(corral.tools) == 999
        assert "first" in corral.tools
    assert "called 'first'; the second is omitted" in caplog.text
    assert "only the first 1000 are offered" in caplog.text
    assert "tool 'search' is left out; give a namespace" in caplog.text


async def test_an_mcp_server_that_does_not_answer_keeps_nothing_else_from_working(
    caplog: pytest.LogCaptureFixture, warm_deno: DenoSandbox
) -> None:
    server = MCPServerStdio({"command": sys.executable, "args": ["-c", "raise SystemExit(1)"]})

    @function_tool
    def count() -> int:
        return 7

    async with Corral(
        [*tools_from(server, namespace="cities"), *tools_from(count)], sandbox=warm_deno, check=False
    ) as corral:
        assert await run(corral, "return await tools.count()") == 7
        failed = await run(corral, "return await tools.cities.forget()")
    assert failed.message == 'no tool "cities.forget": the MCP server does not answer'
    assert "an MCP server of the Agents SDK does not answer" in caplog.text
