"""An agent of each framework whose program pauses, and is continued by the framework's own answer."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import agents
from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai.types import Content, FunctionResponse, Part
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from openai.types.responses import Response
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from typing_extensions import override

from corral import ApprovalRequest, Approved, Corral, Denied, ExecutionContext, Tool, tool
from corral.integrations import anthropic, google_adk, langchain, openai, openai_agents, pydantic_ai
from corral.integrations.kit import read_decision
from tests.integrations.frameworks import (
    GoogleModel,
    LangchainModel,
    PydanticModel,
    anthropic_api,
    openai_api,
    openai_model,
    runs,
    scripted,
)

__all__ = ["AGENTS", "ANN", "World"]

ANN = ExecutionContext(user_id="ann")


class World:
    """Tools that note what they did."""

    def __init__(self) -> None:
        self.done: list[int] = []

    @property
    def tools(self) -> list[Tool]:
        @tool
        async def put(n: int) -> int:
            self.done.append(n)
            return n * 10

        @tool(needs_approval=True)
        async def pay(n: int) -> int:
            """Sends money."""
            self.done.append(n)
            return n * 10

        return [put, pay]


class Agent(ABC):
    """An agent that runs one program, and is stored as its framework stores it."""

    shown: list[Any]
    """What the framework shows of the calls that wait."""

    def __init__(self, source: str) -> None:
        self.source = source

    @abstractmethod
    async def start(self, corral: Corral) -> str | None:
        """Runs the agent until its program pauses; None, or what the model reads of the program."""

    @abstractmethod
    async def answer(
        self, corral: Corral, decisions: bool | str | Mapping[int, bool | str], context: ExecutionContext = ANN
    ) -> str | None:
        """Continues a copy of the stored agent. A text denies with a reason."""


class Pydantic(Agent):
    _history: bytes
    _requests: DeferredToolRequests

    def _agent(self, corral: Corral, context: ExecutionContext, *turns: Any) -> tuple[PydanticAgent[None, Any], Any]:
        model = PydanticModel(*turns)
        mode = pydantic_ai.CodeMode(corral, context=context)
        return PydanticAgent(model, capabilities=[mode], output_type=[str, DeferredToolRequests]), model

    @override
    async def start(self, corral: Corral) -> str | None:
        agent, model = self._agent(corral, ANN, runs(self.source), "done")
        return self._read(await agent.run("?"), model)

    @override
    async def answer(
        self, corral: Corral, decisions: bool | str | Mapping[int, bool | str], context: ExecutionContext = ANN
    ) -> str | None:
        agent, model = self._agent(corral, context, "done")
        history: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(self._history)
        [part], metadata = self._requests.approvals, self._requests.metadata
        answer: Any = ToolDenied(decisions) if isinstance(decisions, str) else decisions
        if isinstance(decisions, Mapping):
            own = {str(sequence): each for sequence, each in decisions.items()}
            answer, metadata = True, {part.tool_call_id: {**metadata[part.tool_call_id], "decisions": own}}
        results = DeferredToolResults(approvals={part.tool_call_id: answer}, metadata=metadata)
        return self._read(await agent.run(message_history=history, deferred_tool_results=results), model)

    def _read(self, result: Any, model: PydanticModel) -> str | None:
        if isinstance(result.output, DeferredToolRequests):
            self._requests, self._history = result.output, result.all_messages_json()
            self.shown = next(iter(result.output.metadata.values()))["calls"]
            return None
        return model.texts[-1]


class Langchain(Agent):
    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.stored = InMemorySaver()  # keeps states as serialised bytes

    def __getstate__(self) -> dict[str, Any]:
        stored = {name: _plain(getattr(self.stored, name)) for name in ("storage", "writes", "blobs")}
        return {**vars(self), "stored": stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, stored=InMemorySaver())
        for thread, namespaces in state["stored"].pop("storage").items():
            self.stored.storage[thread].update(namespaces)
        for name, rows in state["stored"].items():
            getattr(self.stored, name).update(rows)

    async def _run(self, corral: Corral, context: ExecutionContext, given: Any, *turns: Any) -> str | None:
        model, stored = LangchainModel(*turns), InMemorySaver()
        for name in ("storage", "writes", "blobs"):
            setattr(stored, name, copy.deepcopy(getattr(self.stored, name)))
        middleware = [langchain.CodeMode(corral, context=context)]
        agent: Any = create_agent(model, middleware=middleware, checkpointer=stored)  # pyright: ignore[reportUnknownVariableType]
        result = await agent.ainvoke(given, {"configurable": {"thread_id": "1"}})
        if "__interrupt__" in result:
            self.stored, [asked] = stored, result["__interrupt__"]
            self.shown = asked.value["action_requests"]
            return None
        return model.seen.texts[-1].removeprefix("is_error: ")

    @override
    async def start(self, corral: Corral) -> str | None:
        return await self._run(corral, ANN, {"messages": [HumanMessage("?")]}, runs(self.source), "done")

    @override
    async def answer(
        self, corral: Corral, decisions: bool | str | Mapping[int, bool | str], context: ExecutionContext = ANN
    ) -> str | None:
        each = decisions.values() if isinstance(decisions, Mapping) else [decisions] * len(self.shown)
        answers = [{"type": "approve"} if one is True else {"type": "reject", "message": one or ""} for one in each]
        return await self._run(corral, context, Command(resume={"decisions": answers}), "done")


class OpenAIAgents(Agent):
    _state: str

    @override
    async def start(self, corral: Corral) -> str | None:
        return await self._run(corral, ANN, None, runs(self.source))

    @override
    async def answer(
        self, corral: Corral, decisions: bool | str | Mapping[int, bool | str], context: ExecutionContext = ANN
    ) -> str | None:
        async def given(agent: agents.Agent[Any]) -> Any:
            state = await agents.RunState.from_json(agent, json.loads(self._state))
            for item in state.get_interruptions():
                sequence = json.loads(item.arguments or "")["sequence"]
                one = decisions[sequence] if isinstance(decisions, Mapping) else decisions
                if one is True:
                    state.approve(item)
                else:
                    state.reject(item, rejection_message=one or None)
            return state

        return await self._run(corral, context, given)

    async def _run(self, corral: Corral, context: ExecutionContext, given: Any, *turns: Any) -> str | None:
        async with openai_model(scripted([*turns, "done"])) as (model, requested):
            parts = openai_agents.CodeMode(corral, context=context).kwargs()
            agent = agents.Agent[None](name="agent", model=model, **parts)
            result = await agents.Runner.run(agent, "?" if given is None else await given(agent))
        if result.interruptions:
            self.shown = [item.arguments for item in result.interruptions]
            self._state = json.dumps(result.to_state().to_json())
            return None
        return requested.requests[-1]["input"][-1]["output"]


class GoogleADK(Agent):
    """The ADK asks once for each call of a tool; the host continues a program that pauses again."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._sessions = InMemorySessionService()
        self._asked: Any = None
        self._paused = ""

    @override
    async def start(self, corral: Corral) -> str | None:
        await self._sessions.create_session(app_name="tests", user_id="ann", session_id="s-1")
        return await self._run(corral, ANN, Part(text="?"), runs(self.source), "done")

    @override
    async def answer(
        self, corral: Corral, decisions: bool | str | Mapping[int, bool | str], context: ExecutionContext = ANN
    ) -> str | None:
        if self._paused:
            mode = google_adk.CodeMode(corral)
            text = (await mode.resume(self._paused, by_call(self.shown, decisions), context)).model_text()
            return None if text.startswith("The program is paused") else text
        own = decisions if isinstance(decisions, Mapping) else {each["sequence"]: decisions for each in self.shown}
        payload = {**self._asked.args["toolConfirmation"]["payload"], "decisions": {str(k): v for k, v in own.items()}}
        response = {"confirmed": True, "payload": payload}
        answer = FunctionResponse(id=self._asked.id, name=self._asked.name, response=response)
        return await self._run(corral, context, Part(function_response=answer), "done")

    async def _run(self, corral: Corral, context: ExecutionContext, part: Part, *turns: Any) -> str | None:
        model, sessions = GoogleModel(script=scripted(turns)), copy.deepcopy(self._sessions)
        agent = LlmAgent(name="agent", model=model, **google_adk.CodeMode(corral, context=context).kwargs())
        async with Runner(app_name="tests", agent=agent, session_service=sessions) as runner:
            message = Content(role="user", parts=[part])
            run = runner.run_async(user_id="ann", session_id="s-1", new_message=message)
            events: list[Any] = [event async for event in run]
        calls = [call for event in events for call in event.get_function_calls()]
        texts = [each.response["result"] for event in events for each in event.get_function_responses()]
        if calls and calls[-1].name == "adk_request_confirmation":
            self._asked, self._sessions = calls[-1], sessions
            self.shown = calls[-1].args["toolConfirmation"]["payload"]["calls"]
            return None
        if texts[-1].startswith("The program is paused"):
            self._paused, self._sessions = texts[-1].rpartition(" ")[2].rstrip("."), sessions
            self.shown = [{"sequence": each.sequence} for each in (await corral.executions.get(self._paused)).pending]
            return None
        return texts[-1]


class OpenAI(Agent):
    """The host keeps a response whose program has paused, and answers it later."""

    _response: str

    @override
    async def start(self, corral: Corral) -> str | None:
        async with openai_api(scripted([runs(self.source)])) as (client, _):
            request = openai.CodeMode(corral).kwargs()
            response = await client.responses.create(model="scripted", input="?", **request)
            self._response = response.model_dump_json()
        return await self._outputs(corral, ANN)

    async def _outputs(self, corral: Corral, context: ExecutionContext) -> str | None:
        [output] = await openai.CodeMode(corral).outputs(Response.model_validate_json(self._response), context)
        text = str(output["output"])
        if not text.startswith("The program is paused"):
            return text
        [waiting] = await corral.executions.waiting()
        self._paused, self.shown = waiting.execution_id, [vars_of(each) for each in waiting.calls]
        return None

    @override
    async def answer(
        self, corral: Corral, decisions: bool | str | Mapping[int, bool | str], context: ExecutionContext = ANN
    ) -> str | None:
        await openai.CodeMode(corral).resume(self._paused, by_call(self.shown, decisions), context)
        return await self._outputs(corral, context)


class Anthropic(Agent):
    """The model reads that its program has paused, and the host tells it the result later."""

    _paused: str

    @override
    async def start(self, corral: Corral) -> str | None:
        async with anthropic_api(scripted([runs(self.source), "done"])) as (client, model):
            parts = anthropic.CodeMode(corral, context=ANN).kwargs()
            messages: list[Any] = [{"role": "user", "content": "?"}]
            runner = client.beta.messages.tool_runner(model="scripted", max_tokens=9, messages=messages, **parts)
            await runner.until_done()
        return await self._read(corral, model.requests[-1]["messages"][-1]["content"][-1]["content"])

    async def _read(self, corral: Corral, text: str) -> str | None:
        if not text.startswith("The program is paused"):
            return text
        self._paused = text.rpartition(" ")[2].rstrip(".")
        self.shown = [vars_of(each) for each in (await corral.executions.get(self._paused)).pending]
        return None

    @override
    async def answer(
        self, corral: Corral, decisions: bool | str | Mapping[int, bool | str], context: ExecutionContext = ANN
    ) -> str | None:
        mode = anthropic.CodeMode(corral)
        result = await mode.resume(self._paused, by_call(self.shown, decisions), context)
        return await self._read(corral, result.model_text())


def vars_of(call: ApprovalRequest) -> dict[str, Any]:
    return {"sequence": call.sequence, "tool": call.tool}


def _plain(value: Any) -> Any:
    """Returns dictionaries without the functions that make their defaults, which cannot be stored."""
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value  # pyright: ignore


def by_call(shown: list[Any], decisions: bool | str | Mapping[int, bool | str]) -> dict[int, Approved | Denied]:
    own = decisions if isinstance(decisions, Mapping) else {each["sequence"]: decisions for each in shown}
    return {sequence: read_decision(each) for sequence, each in own.items()}


AGENTS: Mapping[str, type[Agent]] = {
    "pydantic-ai": Pydantic,
    "langchain": Langchain,
    "openai-agents": OpenAIAgents,
    "google-adk": GoogleADK,
    "openai": OpenAI,
    "anthropic": Anthropic,
}
