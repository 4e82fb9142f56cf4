"""An agent's own tools as what its programs call."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDenied,
    UsageLimits,
)
from pydantic_ai import Tool as AgentTool
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls, Hooks, Instrumentation
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ToolCallPart, ToolReturnPart
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset

from corral import ApprovalRequest, Corral
from corral.errors import ConfigError
from corral.integrations.pydantic_ai import CodeMode, ProgramCallEvent, ProgramResultEvent
from corral.sandboxes import DenoSandbox
from tests.integrations.frameworks import PydanticModel, runs
from tests.integrations.scenario import add

pytestmark = pytest.mark.anyio


@dataclass
class Deps:
    orders: dict[int, str]
    may_cancel: bool = True


DEPS = Deps({7: "Bergen", 9: "on its way"})


def list_orders(ctx: RunContext[Deps]) -> list[int]:
    """The numbers of the orders."""
    return list(ctx.deps.orders)


async def get_status(ctx: RunContext[Deps], order: int) -> str:
    """Where an order is."""
    if order not in ctx.deps.orders:
        raise ModelRetry(f"there is no order {order}")
    return ctx.deps.orders[order]


def cancel(ctx: RunContext[Deps], order: int, reason: str = "none") -> str:
    """Cancels an order."""
    return f"{order} is cancelled, {reason}"


async def only_if_allowed(ctx: RunContext[Deps], definition: ToolDefinition) -> ToolDefinition | None:
    return definition if ctx.deps.may_cancel else None


def agent_of(
    script: PydanticModel | TestModel,
    mode: CodeMode,
    *tools: AgentTool[Deps],
    more: Sequence[AbstractCapability[Deps]] = (),
    **options: Any,
) -> Agent[Deps, Any]:
    return Agent(script, deps_type=Deps, tools=tools, capabilities=[mode, *more], **options)


async def test_programs_call_all_that_an_agent_has_with_its_deps_and_on_its_account() -> None:
    program = """
        const orders = await tools.list_orders();
        const said = await tools.get_status({ order: 1 }).catch((error) => error.message);
        return [said, ...(await Promise.all(orders.map((order) => tools.get_status({ order }))))];
    """
    script = PydanticModel(runs(program), "done")
    agent = agent_of(script, CodeMode(), AgentTool(list_orders), AgentTool(get_status), instructions="Be brief.")
    result = await agent.run("?", deps=DEPS)
    assert script.tools() == ["execute_code"]
    assert script.texts == ['Result: ["there is no order 1","Bergen","on its way"]']
    assert result.usage.tool_calls == 4  # three that succeeded, and the program
    [first, second] = script.prompts
    assert first == second
    assert first.startswith("Be brief.")
    assert first.count("get_status(input: { order: number }): Promise<string>") == 1


@pytest.mark.parametrize("check", [True, False])
async def test_a_program_that_calls_a_tool_of_the_model_is_told_so(check: bool, warm_deno: DenoSandbox) -> None:
    corral = Corral(sandbox=warm_deno, check=check)
    script = PydanticModel(runs("return await tools.cancel({ order: 7 })"), "done")
    await agent_of(
        script, CodeMode(corral, tools="all", outside=["cancel"]), AgentTool(cancel), AgentTool(list_orders)
    ).run("?", deps=DEPS)
    assert 'no tool "cancel" in programs; call it as a separate tool' in script.texts[0]


async def test_what_is_named_outside_or_not_selected_stays_with_the_model() -> None:
    tools = AgentTool(list_orders), AgentTool(get_status), AgentTool(cancel)
    for mode in (CodeMode(outside=["cancel"]), CodeMode(tools=["list_orders", "get_status"])):
        script = PydanticModel(runs("return typeof tools.cancel"), "done")
        await agent_of(script, mode, *tools).run("?", deps=DEPS)
        assert script.tools() == ["cancel", "execute_code"]
        assert "cancel" not in script.prompts[0]


async def test_toolsets_and_the_corrals_own_tools_are_there_too_and_the_corral_stays_as_it_was(
    warm_deno: DenoSandbox,
) -> None:
    script = PydanticModel(runs("return [await tools.my_list_orders(), await tools.add({ a: 1, b: 2 })]"), "done")
    async with Corral([add], sandbox=warm_deno, check=False) as corral:
        mode = CodeMode(corral, tools="all")
        toolsets = [FunctionToolset([AgentTool(list_orders)]).prefixed("my")]
        await agent_of(script, mode, toolsets=toolsets).run("?", deps=DEPS)
        assert script.texts == ["Result: [[7,9],3]"]
        assert [str(name) for name in corral.tools] == ["add"]


async def test_a_run_knows_only_what_is_prepared_for_it(warm_deno: DenoSandbox) -> None:
    mode = CodeMode(Corral(sandbox=warm_deno, check=False), tools="all")
    for allowed in (True, False, True):
        script = PydanticModel(runs("return await tools.cancel({ order: 7 }).catch((error) => error.code)"), "done")
        agent = agent_of(script, mode, AgentTool(cancel, prepare=only_if_allowed))
        await agent.run("?", deps=Deps({}, may_cancel=allowed))
        assert script.texts == ['Result: "7 is cancelled, none"' if allowed else 'Result: "tool_not_found"']
        assert ("cancel" in script.prompts[0]) is allowed


async def test_tools_that_require_approval_ask_the_corral_and_without_one_end_the_run(warm_deno: DenoSandbox) -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.shown())
        return True

    held = AgentTool(cancel, requires_approval=True)
    script = PydanticModel(runs("return await tools.cancel({ order: 7 })"), "done")
    await agent_of(script, CodeMode(Corral(approve=approve, sandbox=warm_deno, check=False), tools="all"), held).run(
        "?", deps=DEPS
    )
    assert script.texts == ['Result: "7 is cancelled, none"']
    assert asked == ['{"order": 7, "reason": "none"}']

    model = TestModel(call_tools=["cancel"])
    agent = agent_of(model, CodeMode(), held, output_type=[str, DeferredToolRequests])
    output = (await agent.run("?", deps=DEPS)).output
    assert isinstance(output, DeferredToolRequests)
    assert [call.tool_name for call in output.approvals] == ["cancel"]


async def test_the_handler_of_deferred_calls_is_asked_while_the_program_waits() -> None:
    asked: list[tuple[str, Any]] = []

    def handle(run: RunContext[Deps], requests: DeferredToolRequests) -> DeferredToolResults:
        [call] = requests.approvals
        asked.append((call.tool_name, call.args))
        answers: list[Any] = [True, ToolApproved(override_args={"order": 9}), ToolDenied("not this one"), False]
        return DeferredToolResults(approvals={call.tool_call_id: answers[len(asked) - 1]})

    program = """
        const attempt = () => tools.cancel({ order: 7 }).catch((error) => [error.code, error.message]);
        return [await attempt(), await attempt(), await attempt(), await attempt()];
    """
    script = PydanticModel(runs(program), "done")
    held = AgentTool(cancel, requires_approval=True)
    agent = agent_of(script, CodeMode(), held, more=[HandleDeferredToolCalls(handler=handle)])
    result = await agent.run("?", deps=DEPS)
    assert script.tools() == ["execute_code"]
    assert asked == [("cancel", {"order": 7})] * 4
    denied = "tools.cancel was not approved"
    [text] = script.texts
    assert json.loads(text.removeprefix("Result: ")) == [
        "7 is cancelled, none",
        "9 is cancelled, none",
        ["approval_denied", f"{denied}: not this one"],
        ["approval_denied", denied],
    ]
    [returned] = parts_of(result.all_messages(), ToolReturnPart)
    assert [part.outcome for part in returned.metadata["tool_returns"].values()] == [
        "success", "success", "denied", "denied",
    ]  # fmt: skip


async def test_hooks_that_answer_nothing_leave_approvals_to_the_model() -> None:
    model = TestModel(call_tools=["cancel"])
    held = AgentTool(cancel, requires_approval=True)
    agent = agent_of(model, CodeMode(), held, more=[Hooks[Deps]()], output_type=[str, DeferredToolRequests])
    assert isinstance((await agent.run("?", deps=DEPS)).output, DeferredToolRequests)


async def test_calls_are_events_spans_hooks_and_history_of_the_run() -> None:
    exporter = InMemorySpanExporter()
    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    hooks = Hooks[Deps]()
    seen: list[str] = []

    @hooks.on.before_tool_execute
    def before(run: RunContext[Deps], /, *, call: ToolCallPart, **rest: Any) -> Any:
        seen.append(call.tool_name)
        return rest["args"]

    program = "const [first] = await tools.list_orders(); return await tools.get_status({ order: first })"
    script = PydanticModel(runs(program), "done")
    instrumented = Instrumentation(settings=InstrumentationSettings(tracer_provider=traces))
    agent = agent_of(script, CodeMode(), AgentTool(list_orders), AgentTool(get_status), more=[hooks, instrumented])
    async with agent.run_stream_events("?", deps=DEPS) as stream:
        events = [event async for event in stream]
    called = [event for event in events if isinstance(event, ProgramCallEvent | ProgramResultEvent)]
    assert [(type(each), each.tool, each.sequence) for each in called] == [
        (ProgramCallEvent, "list_orders", 1),
        (ProgramResultEvent, "list_orders", 1),
        (ProgramCallEvent, "get_status", 2),
        (ProgramResultEvent, "get_status", 2),
    ]
    assert seen == ["execute_code", "list_orders", "get_status"]

    [ran] = [span for span in exporter.get_finished_spans() if span.name == "execute_tool execute_code"]
    inner = [span for span in exporter.get_finished_spans() if span.parent is not None and span.parent == ran.context]
    assert [span.name for span in inner] == ["execute_tool list_orders", "execute_tool get_status"]

    [end] = [event for event in events if isinstance(event, AgentRunResultEvent)]
    [returned] = parts_of(end.result.all_messages(), ToolReturnPart)
    history = returned.metadata
    assert history["code_mode"] is True
    assert [(part.tool_name, part.args) for part in history["tool_calls"].values()] == [
        ("list_orders", {}),
        ("get_status", {"order": 7}),
    ]
    assert [(part.tool_call_id, part.content) for part in history["tool_returns"].values()] == [
        (f"{returned.tool_call_id}__1", [7, 9]),
        (f"{returned.tool_call_id}__2", "Bergen"),
    ]
    assert ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(end.result.all_messages()))


async def test_a_long_result_is_shortened_in_the_history(warm_deno: DenoSandbox) -> None:
    script = PydanticModel(runs("return (await tools.read()).length"), "done")
    agent = agent_of(script, CodeMode(Corral(sandbox=warm_deno, check=False), tools="all"), AgentTool(read))
    result = await agent.run("?", deps=DEPS)
    [returned] = parts_of(result.all_messages(), ToolReturnPart)
    [part] = returned.metadata["tool_returns"].values()
    assert len(part.content) <= 10_000
    assert "of 50000 characters left out" in part.content


def read() -> str:
    return 50_000 * "x"


T = TypeVar("T")


def parts_of(messages: list[ModelMessage], kind: type[T]) -> list[T]:
    return [part for message in messages for part in message.parts if isinstance(part, kind)]


async def test_what_a_run_has_opened_stays_open_for_the_next_one() -> None:
    script = PydanticModel(runs("return 1"), "done", runs("return 2"), "done")
    mode = CodeMode()
    agent = agent_of(script, mode, AgentTool(list_orders))
    await agent.run("?", deps=DEPS)
    [corral] = mode.named.values()
    assert corral.is_open
    await agent.run("?", deps=DEPS)
    assert corral.is_open
    async with agent:
        pass
    assert not corral.is_open


async def test_calls_of_programs_count_for_the_limit_of_the_run() -> None:
    program = "return await tools.list_orders().then(() => tools.list_orders()).catch((error) => error.code)"
    script = PydanticModel(runs(program), "done")
    agent = agent_of(script, CodeMode(), AgentTool(list_orders))
    await agent.run("?", deps=DEPS, usage_limits=UsageLimits(tool_calls_limit=2))
    assert script.texts == ['Result: "call_budget_exceeded"']


async def test_what_no_program_can_name_stays_with_the_model(caplog: pytest.LogCaptureFixture) -> None:
    script = PydanticModel("done")
    with caplog.at_level(logging.WARNING, "corral.tools"):
        agent = agent_of(script, CodeMode(), AgentTool(cancel, name="search"), AgentTool(list_orders))
        await agent.run("?", deps=DEPS)
    assert script.tools() == ["search", "execute_code"]
    assert "a tool of the agent stays with the model" in caplog.text


async def test_one_corral_is_open_as_long_as_its_agent(warm_deno: DenoSandbox) -> None:
    corral = Corral(sandbox=warm_deno, check=False)
    agent = agent_of(PydanticModel(runs("return 1"), "done"), CodeMode(corral, tools="all"), AgentTool(list_orders))
    async with agent:
        await agent.run("?", deps=DEPS)
        assert corral.is_open
    assert not corral.is_open


async def test_what_does_not_fit_together_is_refused(warm_deno: DenoSandbox) -> None:
    with pytest.raises(ConfigError, match="pass only one Corral"):
        CodeMode({"a": Corral(sandbox=warm_deno, check=False)}, tools="all")
    with pytest.raises(ConfigError, match="outside= excludes tools"):
        CodeMode(Corral(sandbox=warm_deno, check=False), outside=["cancel"])
    agent = agent_of(PydanticModel("done"), CodeMode(outside=["execute_code"]), AgentTool(cancel, name="execute_code"))
    with pytest.raises(ConfigError, match="there is already a tool 'execute_code'"):
        await agent.run("?", deps=DEPS)
