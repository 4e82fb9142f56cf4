"""Programs of agents that pause for approvals: each framework ends its run in its own way, and continues them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from agents import UserError
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.capabilities import HandleDeferredToolCalls

from corral import Approved, Corral, ExecutionContext
from corral.errors import AccessDenied
from corral.integrations.langchain import CodeMode as LangchainCodeMode
from corral.integrations.pydantic_ai import CodeMode
from corral.ledger import Ledger, MemoryLedger
from corral.sandboxes import DenoSandbox
from tests.integrations.frameworks import LangchainModel, PydanticModel, runs
from tests.integrations.pausing import AGENTS, Agent, World

pytestmark = pytest.mark.anyio

ONE = """
const first = await tools.put({ n: 1 });
let second;
try { second = await tools.pay({ n: 2 }); } catch (error) { second = error.message; }
return [first, second];
"""
TWO = """
await tools.put({ n: 1 });
return (await Promise.allSettled([tools.pay({ n: 2 }), tools.pay({ n: 3 })])).map((each) => each.status);
"""
OUTPUTS: Any = [str, DeferredToolRequests]
IN_TURN = "return [await tools.pay({ n: 1 }), await tools.pay({ n: 2 })];"


SAME = pytest.mark.matrix("two frameworks in the gate; others pause by the same code, as a restart shows in each")
FEW = pytest.mark.parametrize(
    "kind",
    [pytest.param(name, marks=[] if name in ("anthropic", "langchain") else [SAME]) for name in AGENTS],
    indirect=True,
)


@pytest.fixture(params=AGENTS)
def kind(request: pytest.FixtureRequest) -> type[Agent]:
    return AGENTS[request.param]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def ledger() -> Ledger:
    return MemoryLedger()


@pytest.fixture
def opened(world: World, ledger: Ledger, warm_deno: DenoSandbox) -> Any:
    """Makes a Corral over the same ledger, as another process does."""

    @asynccontextmanager
    async def open_corral(**options: Any) -> AsyncGenerator[Corral]:
        async with Corral(world.tools, sandbox=warm_deno, check=False, ledger=ledger, **options) as corral:
            yield corral

    return open_corral


async def test_an_approved_call_is_made_after_a_restart_and_nothing_twice(
    kind: type[Agent], world: World, opened: Any
) -> None:
    agent = kind(ONE)
    async with opened() as corral:
        assert await agent.start(corral) is None
    assert world.done == [1]
    assert "pay" in str(agent.shown)
    async with opened() as corral:
        assert await agent.answer(corral, True) == "Result: [10,20]"
        assert world.done == [1, 2]
        assert await agent.answer(corral, True) == "Result: [10,20]"  # its host was lost before it stored the result
    assert world.done == [1, 2]


@pytest.mark.matrix("test_two_calls_at_once_are_decided_one_by_one denies in every framework; this denies all calls")
async def test_a_denied_call_is_an_error_in_the_program(kind: type[Agent], world: World, opened: Any) -> None:
    agent = kind(ONE)
    async with opened() as corral:
        await agent.start(corral)
        assert await agent.answer(corral, "too much") == 'Result: [10,"tools.pay was not approved: too much"]'
    assert world.done == [1]


@FEW
async def test_two_calls_at_once_are_decided_one_by_one(kind: type[Agent], world: World, opened: Any) -> None:
    agent = kind(TWO)
    async with opened() as corral:
        await agent.start(corral)
        assert await agent.answer(corral, {2: "no", 3: True}) == 'Result: ["rejected","fulfilled"]'
    assert world.done == [1, 3]


@pytest.mark.matrix("test_an_approved_call_is_made_after_a_restart covers every framework; this loses the host earlier")
@FEW
async def test_a_decision_that_was_recorded_before_the_host_was_lost_holds(
    kind: type[Agent], world: World, opened: Any
) -> None:
    agent = kind(ONE)
    async with opened() as corral:
        await agent.start(corral)
        [waiting] = await corral.executions.waiting()
        await corral.executions.settle(waiting.execution_id, {2: Approved()})
        assert await agent.answer(corral, "too late") == "Result: [10,20]"
    assert world.done == [1, 2]


@FEW
async def test_an_approval_is_for_one_pause_alone(kind: type[Agent], world: World, opened: Any) -> None:
    agent = kind(IN_TURN)
    async with opened() as corral:
        await agent.start(corral)
        stored = dict(vars(agent))
        assert await agent.answer(corral, True) is None
        vars(agent).update(stored)  # its host was lost before it stored the second pause
        assert await agent.answer(corral, True) is None
        assert world.done == [1]
        assert await agent.answer(corral, True) == "Result: [10,20]"
    assert world.done == [1, 2]


@FEW
async def test_another_user_cannot_continue_a_program(kind: type[Agent], world: World, opened: Any) -> None:
    agent = kind(ONE)
    async with opened() as corral:
        await agent.start(corral)
        with pytest.raises((AccessDenied, UserError), match="belongs to another user"):
            await agent.answer(corral, True, ExecutionContext(user_id="eve"))
    assert world.done == [1]


# --- pydantic-ai alone


async def test_a_capability_of_pydantic_ai_answers_while_the_program_runs(world: World, opened: Any) -> None:
    def handle(ctx: RunContext[None], requests: DeferredToolRequests) -> DeferredToolResults:
        answers = {each.tool_call_id: each.args == {"n": 2} or ToolDenied("no") for each in requests.approvals}
        return requests.build_results(approvals=answers)

    async with opened() as corral:
        model = PydanticModel(runs(TWO), "done")
        capabilities: list[Any] = [CodeMode(corral), HandleDeferredToolCalls(handle)]
        await PydanticAgent(model, capabilities=capabilities).run("?")
    assert model.texts == ['Result: ["fulfilled","rejected"]']
    assert world.done == [1, 2]


async def test_an_own_tool_of_pydantic_ai_that_needs_approval_pauses_the_program(world: World, opened: Any) -> None:
    def wire(n: int) -> int:
        world.done.append(n)
        return -n

    async with opened() as corral:
        model = PydanticModel(runs("return [await tools.put({ n: 1 }), await tools.wire({ n: 2 })]"), "done")
        mode = CodeMode(corral, tools="all")
        agent = PydanticAgent(model, capabilities=[mode], output_type=OUTPUTS)
        agent.tool_plain(requires_approval=True)(wire)
        paused = await agent.run("?")
        results = paused.output.build_results(approve_all=True)
        await agent.run(message_history=paused.all_messages(), deferred_tool_results=results)
    assert model.texts == ["Result: [10,-2]"]
    assert world.done == [1, 2]


async def test_a_denied_call_of_execute_code_that_never_ran_stays_denied(world: World, opened: Any) -> None:
    async with opened() as corral:
        model = PydanticModel(runs(ONE), "done")
        toolset = CodeMode(corral).get_toolset().approval_required()
        agent = PydanticAgent(model, toolsets=[toolset], output_type=OUTPUTS)
        asked = await agent.run("?")
        [part] = asked.output.approvals
        results = DeferredToolResults(approvals={part.tool_call_id: ToolDenied("not now")})
        await agent.run(message_history=asked.all_messages(), deferred_tool_results=results)
    assert model.texts == ["not now"]
    assert world.done == []


# --- LangChain alone


async def test_parallel_programs_of_langchain_are_answered_by_the_ids_of_their_interrupts(
    world: World, opened: Any
) -> None:
    config: Any = {"configurable": {"thread_id": "1"}}
    async with opened() as corral:
        model = LangchainModel([runs(ONE), runs(TWO)], "done")
        agent: Any = create_agent(model, middleware=[LangchainCodeMode(corral)], checkpointer=InMemorySaver())  # pyright: ignore[reportUnknownVariableType]
        paused = await agent.ainvoke({"messages": [HumanMessage("?")]}, config)
        answers = {
            each.id: {"decisions": [{"type": "approve"}] * len(each.value["calls"])} for each in paused["__interrupt__"]
        }
        assert sorted(len(each["decisions"]) for each in answers.values()) == [1, 2]
        await agent.ainvoke(Command(resume=answers), config)
    assert sorted(model.seen.texts) == ['Result: ["fulfilled","fulfilled"]', "Result: [10,20]"]
    assert sorted(world.done) == [1, 1, 2, 2, 3]


def test_a_program_of_langchain_pauses_in_a_run_without_an_event_loop(
    world: World, ledger: Ledger, warm_deno: DenoSandbox
) -> None:
    config: Any = {"configurable": {"thread_id": "1"}}
    with Corral(world.tools, sandbox=warm_deno, check=False, ledger=ledger) as corral:
        model = LangchainModel(runs(ONE), "done")
        agent: Any = create_agent(model, middleware=[LangchainCodeMode(corral)], checkpointer=InMemorySaver())  # pyright: ignore[reportUnknownVariableType]
        assert "__interrupt__" in agent.invoke({"messages": [HumanMessage("?")]}, config)
        agent.invoke(Command(resume=True), config)
    assert model.seen.texts == ["Result: [10,20]"]
    assert world.done == [1, 2]


async def test_a_program_of_langchain_without_a_thread_does_not_pause(world: World, opened: Any) -> None:
    async with opened() as corral:
        model = LangchainModel(runs(ONE), "done")
        agent: Any = create_agent(model, middleware=[LangchainCodeMode(corral)])  # pyright: ignore[reportUnknownVariableType]
        await agent.ainvoke({"messages": [HumanMessage("?")]})
    assert "no one is available to approve it" in model.seen.texts[-1]
