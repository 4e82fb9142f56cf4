"""An agent of each framework that follows a script, and what came of its run in words that all have."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from agents import Agent, Model, OpenAIResponsesModel, Runner, function_tool
from agents.tool_context import ToolContext as AgentsToolContext
from anthropic import AsyncAnthropic, beta_async_tool
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.tool_context import ToolContext as GoogleToolContext
from google.genai.types import Content, Part
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain.tools import ToolRuntime
from langchain.tools import tool as langchain_tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageFunctionToolCall
from openai.types.responses import ResponseFunctionToolCall
from pydantic import Field, PrivateAttr
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import BinaryContent, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from typing_extensions import override

from corral.integrations import anthropic, google_adk, langchain, openai, openai_agents, pydantic_ai
from tests.integrations.scenario import PICTURE_TEXT, PNG, QUESTION
from tests.integrations.stubs import Call, Script, Stub, Turn, stub, turns

__all__ = [
    "FRAMEWORKS",
    "Framework",
    "GoogleModel",
    "LangchainModel",
    "PydanticModel",
    "Said",
    "anthropic_api",
    "ask_google",
    "openai_api",
    "openai_model",
    "runs",
]

_BASE64 = base64.b64encode(PNG).decode()


@dataclass
class Said:
    """What a run came to, and what the framework told the model."""

    answer: str
    prompt: str
    tools: dict[str, Any]
    """The schema of each by its name."""
    call_id: str | None
    """Of the call that the model made first; None if the framework does not tell tools."""
    content: Any
    """What the model last read of a tool, as the framework writes it."""


@dataclass(frozen=True)
class Framework:
    name: str
    run: Callable[..., Coroutine[Any, Any, Said]]
    """Takes a script, a Corral or several, `instructions` and `tools` of the agent's own, `context` and `on_event`."""
    mine: Any
    """A tool of the framework's own of that name."""
    taken: Sequence[Any]
    """Tools of its own with the name of Corral's, each in another form."""
    call: type | None
    """What a function for the context is called with."""
    pictures: Any
    """What the model reads of a picture that comes twice."""
    errors: tuple[bool, bool, bool] = (True, True, True)
    """Whether it marks as errors a program that was rejected, one that failed, and a call without one."""
    misread: str = "The call was rejected; nothing ran."
    """Begins what it says of a call without a program."""
    ends_with_run: bool = True
    """Whether a run that is cancelled waits for its tools to end."""

    def __str__(self) -> str:
        return self.name


def runs(code: str, tool: str = "execute_code") -> Call:
    return Call(tool, {"code": code})


def scripted(given: Sequence[Any]) -> Script:
    """The script that is given, or one of the turns that are."""
    script: Any = given[0]
    return cast("Script", script) if isinstance(script, Generator) else turns(*given)


# --- Anthropic's SDK


@asynccontextmanager
async def anthropic_api(script: Script) -> AsyncGenerator[tuple[AsyncAnthropic, Stub]]:
    with stub(script) as model:
        async with AsyncAnthropic(base_url=model.url, api_key="none", max_retries=0) as client:
            yield client, model


async def _anthropic(
    script: Script,
    corrals: Any,
    *,
    instructions: str = "",
    tools: Sequence[Any] = (),
    question: str = QUESTION,
    **options: Any,
) -> Said:
    async with anthropic_api(script) as (client, model):
        messages: list[Any] = [{"role": "user", "content": question}]
        parts = anthropic.CodeMode(corrals, **options).kwargs(system=instructions, tools=tools, messages=messages)
        runner = client.beta.messages.tool_runner(model="scripted", max_tokens=1_000, **parts)
        message = await runner.until_done()
    first = model.requests[0]
    return Said(
        answer="".join(block.text for block in message.content if block.type == "text"),
        prompt=first["system"],
        tools={each["name"]: each["input_schema"] for each in first["tools"]},
        call_id=None,
        content=model.requests[-1]["messages"][-1]["content"][-1]["content"],
    )


@beta_async_tool(name="mine")
async def _mine_of_anthropic(number: int) -> str:
    """Mine."""
    return f"mine {number}"


@beta_async_tool(name="execute_code")
async def _taken_of_anthropic() -> str:
    """Mine."""
    return ""


# --- OpenAI's SDK by itself


@asynccontextmanager
async def openai_api(script: Script) -> AsyncGenerator[tuple[AsyncOpenAI, Stub]]:
    with stub(script) as model:
        async with AsyncOpenAI(base_url=f"{model.url}/v1", api_key="none", max_retries=0) as client:
            yield client, model


async def _openai(
    script: Script,
    corrals: Any,
    *,
    instructions: str = "",
    tools: Sequence[Any] = (),
    question: str = QUESTION,
    **options: Any,
) -> Said:
    items: list[Any] = [{"role": "user", "content": question}]
    async with openai_api(script) as (client, model):
        kit = openai.CodeMode(corrals, **options)
        request = kit.kwargs(instructions=instructions, tools=tools)
        while True:
            response = await client.responses.create(model="scripted", input=items, **request)
            answers: dict[str, Any] = {
                str(each.get("call_id")): each for each in await kit.outputs(response, conversation=items)
            }
            calls = [item for item in response.output if item.type == "function_call"]
            own = {"type": "function_call_output", "output": "mine 3"}
            items += [
                *response.output,
                *(answers.get(each.call_id, {**own, "call_id": each.call_id}) for each in calls),
            ]
            if not calls:
                break
    first = model.requests[0]
    return Said(
        answer=response.output_text,
        prompt=first["instructions"],
        tools={each["name"]: each.get("parameters") for each in first["tools"]},
        call_id="call_1_0",
        content=model.requests[-1]["input"][-1]["output"],
    )


async def _openai_chat(
    script: Script,
    corrals: Any,
    *,
    instructions: str = "",
    tools: Sequence[Any] = (),
    question: str = QUESTION,
    **options: Any,
) -> Said:
    async with openai_api(script) as (client, model):
        kit = openai.CodeMode(corrals, **options)
        messages: list[Any] = [{"role": "user", "content": question}]
        while True:
            request = kit.chat_kwargs(messages, instructions=instructions, tools=tools)
            completion = await client.chat.completions.create(model="scripted", **request)
            answers: dict[str, Any] = {
                each["tool_call_id"]: each for each in await kit.outputs(completion, conversation=messages)
            }
            answer = completion.choices[0].message
            calls = answer.tool_calls or []
            own = {"role": "tool", "content": "mine 3"}
            messages += [answer, *(answers.get(each.id, {**own, "tool_call_id": each.id}) for each in calls)]
            if not calls:
                break
    first = model.requests[0]
    return Said(
        answer=answer.content or "",
        prompt=first["messages"][0]["content"],
        tools={each["function"]["name"]: each["function"].get("parameters") for each in first["tools"]},
        call_id="call_1_0",
        content=model.requests[-1]["messages"][-1]["content"],
    )


_NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}}
_IMAGE_OF_OPENAI = {"type": "input_image", "image_url": f"data:image/png;base64,{_BASE64}"}
_TAKEN_OF_OPENAI = [
    {"type": "function", "name": "execute_code"},
    {"type": "function", "function": {"name": "execute_code"}},
]

# --- the OpenAI Agents SDK


@asynccontextmanager
async def openai_model(script: Script) -> AsyncGenerator[tuple[Model, Stub]]:
    async with openai_api(script) as (client, model):
        yield OpenAIResponsesModel("scripted", client), model


async def _openai_agents(
    script: Script,
    corrals: Any,
    *,
    instructions: str = "",
    tools: Sequence[Any] = (),
    question: str = QUESTION,
    **options: Any,
) -> Said:
    async with openai_model(script) as (model, requested):
        parts = openai_agents.CodeMode(corrals, **options).kwargs(instructions=instructions, tools=tools)
        agent = Agent[None](name="agent", model=model, **parts)
        result = await Runner.run(agent, question)
    first = requested.requests[0]
    output: Any = requested.requests[-1]["input"][-1]["output"]
    if not isinstance(output, str):
        output = [{key: each[key] for key in ("type", "text", "image_url") if key in each} for each in output]
    return Said(
        answer=result.final_output,
        prompt=first["instructions"],
        tools={each["name"]: each["parameters"] for each in first["tools"]},
        call_id="call_1_0",
        content=output,
    )


@function_tool(name_override="mine")
def _mine_of_agents(number: int) -> str:
    return f"mine {number}"


@function_tool(name_override="execute_code")
def _taken_of_agents() -> None: ...


# --- Google's ADK


class GoogleModel(BaseLlm):
    model: str = "scripted"
    script: Any
    requests: list[LlmRequest] = Field(default_factory=list[LlmRequest])

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.requests.append(llm_request)
        read = [
            "".join(f"{'is_error: ' if key == 'error' else ''}{text}" for key, text in (each.response or {}).items())
            for part in llm_request.contents[-1].parts or []
            if (each := part.function_response) is not None
        ]
        turn: Turn = self.script.send(read) if len(self.requests) > 1 else next(self.script)
        parts = (
            [Part(text=turn)]
            if isinstance(turn, str)
            else [Part.from_function_call(name=call.name, args=call.arguments) for call in turn]
        )
        yield LlmResponse(content=Content(role="model", parts=parts))


async def ask_google(
    model: GoogleModel, parts: Any, state: dict[str, Any] | None = None, question: str = QUESTION
) -> list[Any]:
    """The events of an agent that ann asks in the session s-1."""
    agent = LlmAgent(name="agent", model=model, **parts)
    async with InMemoryRunner(agent=agent, app_name="tests") as runner:
        await runner.session_service.create_session(app_name="tests", user_id="ann", session_id="s-1", state=state)
        message = Content(role="user", parts=[Part(text=question)])
        return [event async for event in runner.run_async(user_id="ann", session_id="s-1", new_message=message)]


async def _google_adk(
    script: Script,
    corrals: Any,
    *,
    instructions: str = "",
    tools: Sequence[Any] = (),
    question: str = QUESTION,
    **options: Any,
) -> Said:
    model = GoogleModel(script=script)
    parts = google_adk.CodeMode(corrals, **options).kwargs(instruction=instructions, tools=tools)
    events = await ask_google(model, parts, question=question)
    sent = model.requests[0].config.model_dump(exclude_none=True)
    last = (model.requests[-1].contents[-1].parts or [])[-1].function_response
    pictures = [] if last is None else [each.inline_data for each in last.parts or []]
    return Said(
        answer="".join(part.text or "" for part in events[-1].content.parts),
        prompt=sent["system_instruction"],
        tools={each["name"]: each.get("parameters_json_schema") for each in sent["tools"][0]["function_declarations"]},
        call_id=next(call.id for event in events for call in event.get_function_calls()),
        content=[last and last.response, *[(each.mime_type, each.data) for each in pictures if each is not None]],
    )


def _mine_of_google(number: int) -> str:
    """Mine."""
    return f"mine {number}"


def _execute_code(code: str) -> str:
    """Mine."""
    return code


_mine_of_google.__name__ = "mine"
_execute_code.__name__ = "execute_code"

# --- LangChain


@dataclass
class SeenByLangchain:
    """What a model was given."""

    prompts: list[str] = field(default_factory=list[str])
    tools: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    read: list[ToolMessage] = field(default_factory=list[ToolMessage])
    """The results of tools."""

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.read]


class LangchainModel(BaseChatModel):
    """Follows a script, or takes these turns, of which one may be a message."""

    _script: Script = PrivateAttr()
    _seen: SeenByLangchain = PrivateAttr(default_factory=SeenByLangchain)

    def __init__(self, *turns: Any) -> None:
        super().__init__()
        self._script = scripted(turns)

    @property
    def seen(self) -> SeenByLangchain:
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
        first = not self._seen.prompts
        self._seen.prompts.append(messages[0].text)
        made = max((number for number, each in enumerate(messages) if isinstance(each, AIMessage)), default=0)
        read = [each for each in messages[made:] if isinstance(each, ToolMessage)]
        self._seen.read += read
        texts = [f"{'is_error: ' if each.status == 'error' else ''}{each.text}" for each in read]
        turn: Any = next(self._script) if first else self._script.send(texts)
        return ChatResult(generations=[ChatGeneration(message=_message_of_langchain(turn))])


def _message_of_langchain(turn: Any) -> AIMessage:
    if isinstance(turn, AIMessage | str):
        return turn if isinstance(turn, AIMessage) else AIMessage(turn)
    calls = [{"name": each.name, "args": each.arguments, "id": f"call-{place}"} for place, each in enumerate(turn)]
    return AIMessage("", tool_calls=calls)


async def _langchain(
    script: Script,
    corrals: Any,
    *,
    instructions: str = "",
    tools: Sequence[Any] = (),
    question: str = QUESTION,
    **options: Any,
) -> Said:
    model = LangchainModel(script)
    middleware = [langchain.CodeMode(corrals, **options)]
    agent: Any = create_agent(model, tools, system_prompt=instructions or None, middleware=middleware)  # pyright: ignore[reportUnknownVariableType]
    result = await agent.ainvoke({"messages": [HumanMessage(question)]})
    functions = [each["function"] for each in model.seen.tools]
    return Said(
        answer=result["messages"][-1].text,
        prompt=model.seen.prompts[0],
        tools={each["name"]: each["parameters"] for each in functions},
        call_id="call-0",
        content=model.seen.read[-1].content,
    )


_IMAGE_OF_LANGCHAIN = {"type": "image", "base64": _BASE64, "mime_type": "image/png"}

# --- pydantic-ai


class PydanticModel(FunctionModel):
    """Follows a script, or takes these turns; it keeps what it was given."""

    def __init__(self, *turns: Turn | Call | Script) -> None:
        super().__init__(self._answer, stream_function=self._stream)
        self._script = scripted(turns)
        self.given: list[AgentInfo] = []
        self.read: list[ToolReturnPart] = []
        """The results of tools."""

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> Turn:
        last = messages[-1]
        assert isinstance(last, ModelRequest)
        read = [part for part in last.parts if isinstance(part, ToolReturnPart)]
        self.read += read
        self.given.append(info)
        texts = [f"{'is_error: ' if each.outcome == 'retried' else ''}{each.content}" for each in read]
        return self._script.send(texts) if len(self.given) > 1 else next(self._script)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = self._next(messages, info)
        if isinstance(turn, str):
            return ModelResponse(parts=[TextPart(turn)])
        return ModelResponse(parts=[ToolCallPart(call.name, call.arguments) for call in turn])

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        turn = self._next(messages, info)
        if isinstance(turn, str):
            yield turn
        else:
            yield {
                place: DeltaToolCall(name=call.name, json_args=json.dumps(call.arguments))
                for place, call in enumerate(turn)
            }

    @property
    def texts(self) -> list[str]:
        return [str(part.content) for part in self.read]

    @property
    def prompts(self) -> list[str]:
        return [info.instructions or "" for info in self.given]

    def tools(self) -> list[str]:
        return [each.name for each in self.given[-1].function_tools]


async def _pydantic_ai(
    script: Script,
    corrals: Any,
    *,
    instructions: str = "",
    tools: Sequence[Any] = (),
    question: str = QUESTION,
    **options: Any,
) -> Said:
    model = PydanticModel(script)
    mode = pydantic_ai.CodeMode(corrals, **options)
    agent = PydanticAgent(model, capabilities=[mode], instructions=instructions or None, tools=tools)
    result = await agent.run(question)
    return Said(
        answer=result.output,
        prompt=model.prompts[0],
        tools={each.name: each.parameters_json_schema for each in model.given[0].function_tools},
        call_id=model.read[0].tool_call_id,
        content=model.read[-1].content,
    )


_PICTURE_OF_PYDANTIC = BinaryContent(PNG, media_type="image/png")
_IMAGE_OF_ANTHROPIC = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _BASE64}}

FRAMEWORKS = [
    Framework(
        "anthropic",
        _anthropic,
        mine=_mine_of_anthropic,
        taken=[_taken_of_anthropic, {"name": "execute_code", "input_schema": {"type": "object"}}],
        call=None,
        pictures=[{"type": "text", "text": PICTURE_TEXT}, _IMAGE_OF_ANTHROPIC, _IMAGE_OF_ANTHROPIC],
    ),
    Framework(
        "openai",
        _openai,
        mine={"type": "function", "name": "mine", "parameters": _NUMBER, "strict": False},
        taken=_TAKEN_OF_OPENAI,
        call=ResponseFunctionToolCall,
        pictures=[{"type": "input_text", "text": PICTURE_TEXT}, _IMAGE_OF_OPENAI, _IMAGE_OF_OPENAI],
        errors=(False, False, False),
    ),
    Framework(
        "openai-chat",
        _openai_chat,
        mine={"type": "function", "function": {"name": "mine", "parameters": _NUMBER}},
        taken=_TAKEN_OF_OPENAI[::-1],
        call=ChatCompletionMessageFunctionToolCall,
        pictures=PICTURE_TEXT,
        errors=(False, False, False),
    ),
    Framework(
        "openai-agents",
        _openai_agents,
        mine=_mine_of_agents,
        taken=[_taken_of_agents],
        call=AgentsToolContext,
        pictures=[{"type": "input_text", "text": PICTURE_TEXT}, _IMAGE_OF_OPENAI, _IMAGE_OF_OPENAI],
        errors=(False, False, False),
        ends_with_run=False,
    ),
    Framework(
        "google-adk",
        _google_adk,
        mine=_mine_of_google,
        taken=[_execute_code],
        call=GoogleToolContext,
        pictures=[{"result": PICTURE_TEXT}, ("image/png", PNG), ("image/png", PNG)],
    ),
    Framework(
        "langchain",
        _langchain,
        mine=langchain_tool("mine")(_mine_of_google),
        taken=[
            _execute_code,
            langchain_tool("execute_code")(_execute_code),
            {"type": "function", "function": {"name": "execute_code"}},
        ],
        call=ToolRuntime,
        pictures=[{"type": "text", "text": PICTURE_TEXT}, _IMAGE_OF_LANGCHAIN, _IMAGE_OF_LANGCHAIN],
    ),
    Framework(
        "pydantic-ai",
        _pydantic_ai,
        mine=_mine_of_google,
        taken=[_execute_code],
        call=RunContext,
        pictures=[PICTURE_TEXT, _PICTURE_OF_PYDANTIC, _PICTURE_OF_PYDANTIC],
        errors=(True, False, True),
        misread='tool "execute_code": 2 problems: ',
    ),
]
