"""Code mode for agents of the OpenAI Agents SDK. Needs the extra `openai-agents`."""

from __future__ import annotations

import asyncio
import copy
import inspect
import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_type_hints

from pydantic import ValidationError
from pydantic_core import to_json
from typing_extensions import Unpack

from corral import ApprovalRequest, Approved, Denied, ExecutionContext, ExecutionResult
from corral.arguments import checked
from corral.concurrency.ref_counted import RefCounted
from corral.errors import CorralError, InvalidArguments, ToolDefinitionError, ToolError, requires_extra
from corral.events import Event, ToolCallFinished, ToolCallStarted
from corral.integrations.kit import (
    AgentCodeMode,
    Ask,
    Corrals,
    Decide,
    Entry,
    Kit,
    OnEvent,
    Options,
    Pause,
    carrying,
    context_for,
    entries_of,
    in_conversation,
    invalid,
    own_tools,
    parts_of,
    read_arguments,
    register,
    result_of,
)
from corral.integrations.name_conflicts import offer_usable
from corral.logs import get_logger
from corral.model import ModelTool
from corral.rendering.images import Picture
from corral.rendering.preview import preview_json
from corral.tools import Offer, Tool, ToolSource, define_tool
from corral.tools.tool import ToolSettings

with requires_extra("corral.integrations.openai_agents", "openai-agents"):
    from agents import (
        Agent,
        FunctionTool,
        Model,
        ModelBehaviorError,
        ModelResponse,
        RunConfig,
        RunContextWrapper,
        ToolOutputImage,
        ToolOutputText,
        ToolTimeoutError,
        Usage,
        default_tool_error_function,
    )
    from agents import Tool as AgentTool
    from agents.function_schema import function_schema
    from agents.mcp import MCPServer, MCPServerManager, MCPUtil
    from agents.tool import (
        invoke_function_tool,
        resolve_function_tool_failure_error_function,
        set_function_tool_failure_error_function,
    )
    from agents.tool_context import ToolContext
    from agents.tracing import FunctionSpanData, Span, SpanError, function_span, get_current_span
    from mcp_types import Tool as ListedTool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    from corral.sources.mcp.tool_listing import distinct_tools, made
    from corral.sources.mcp.tool_results import as_sent

__all__ = ["RUN_CONTEXT", "CodeMode", "tools_of"]

RUN_CONTEXT = "openai_agents.run_context"
"""The key in `ExecutionContext.local` under which tools find the `RunContextWrapper` of the agent run that runs the
program."""

_CONNECT_SECONDS = 30

_logger = get_logger("corral.tools")


def tools_of(thing: object, namespace: str | None) -> Sequence[Tool | ToolSource]:
    """Makes a tool from a `FunctionTool`, or a source from an `MCPServer`.

    Raises:
        ToolDefinitionError: it does not run in this process, or cannot be declared.
    """
    match thing:
        case FunctionTool():
            return [_tool(thing, namespace)]
        case MCPServer():
            return [_ServerTools(thing, namespace)]
        case _:
            raise ToolDefinitionError(
                f"programs cannot call a {type(thing).__name__} of the Agents SDK, only FunctionTool and MCPServer; "
                "leave it to the agent: CodeMode(...).kwargs(tools=[...])"
            )


def _tool(function: FunctionTool, namespace: str | None) -> Tool:
    _refuse_guardrails(function)
    raising = set_function_tool_failure_error_function(copy.copy(function), None)
    raising.timeout_behavior = "raise_exception"

    async def execute(input: Any, context: ExecutionContext) -> Any:
        arguments = to_json(input, bytes_mode="base64", inf_nan_mode="constants").decode()
        call = _call_of(function, context, arguments)
        try:
            if not await _is_enabled(function, call):
                raise ToolError(f"{function.name} is not enabled")
            return await invoke_function_tool(function_tool=raising, context=call, arguments=arguments)
        except CorralError:
            raise
        except Exception as error:
            if (message := await _error_for_models(function, call, error)) is None:
                raise
            raise message from error

    tool = define_tool(
        name=function.name,
        description=function.description,
        namespace=namespace,
        input_schema=function.params_json_schema,
        output_schema=_returned(function),
        needs_approval=_needs_approval(function),
        execute=execute,
    )
    return replace(tool, resolve=_resolve(function))


def _resolve(function: FunctionTool) -> Callable[[Any, ExecutionContext], Awaitable[Any]] | None:
    """Makes a function that parses the arguments for the tool's Python function, if it has one."""
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is None:
        return None

    async def resolve(input: Any, _context: ExecutionContext) -> Any:
        parameters = function_schema(wrapped, use_docstring_info=False, strict_json_schema=False).params_pydantic_model
        try:
            return dict(parameters(**input))
        except ValidationError as error:
            raise invalid(function.name, error) from error

    return resolve


def _refuse_guardrails(function: FunctionTool) -> None:
    if function.tool_input_guardrails or function.tool_output_guardrails:
        raise ToolDefinitionError(
            f"tool {function.name!r} has guardrails, which only the Agents SDK runs; leave it to the agent, "
            "CodeMode(...).kwargs(tools=[...]), or guard it in Corral"
        )


def _call_of(function: FunctionTool, context: ExecutionContext, arguments: str) -> ToolContext[Any]:
    """Makes a tool's context for a call, from the agent run's context if the program is part of one."""
    run: RunContextWrapper[Any] = context.local.get(RUN_CONTEXT) or RunContextWrapper(context)
    return ToolContext[Any].from_agent_context(
        run,
        tool_call_id=f"corral-{secrets.token_hex(8)}",
        tool_name=function.name,
        tool_arguments=arguments,
    )


async def _is_enabled(function: FunctionTool, call: ToolContext[Any]) -> bool:
    if isinstance(function.is_enabled, bool):
        return function.is_enabled
    enabled = function.is_enabled(call, call.agent)  # pyright: ignore[reportArgumentType] - None outside a run
    return await enabled if inspect.isawaitable(enabled) else enabled


async def _error_for_models(function: FunctionTool, call: ToolContext[Any], error: Exception) -> ToolError | None:
    """Returns an error with the message for models, if it has one; other errors' texts stay on the host."""
    handler = resolve_function_tool_failure_error_function(function)
    if isinstance(error, ToolTimeoutError):
        return ToolError(str(error))
    if handler is not None and handler is not default_tool_error_function:
        text = handler(call, error)
        return ToolError(await text if inspect.isawaitable(text) else text)
    return InvalidArguments(str(error)) if isinstance(error, ModelBehaviorError) else None


def _returned(function: FunctionTool) -> object:
    """Returns the declared result: a JSON Schema, or the return annotation of its Python function."""
    if function.output_json_schema is not None:
        return function.output_json_schema
    wrapped = getattr(function, "__wrapped__", None)
    return None if wrapped is None else get_type_hints(wrapped, include_extras=True).get("return")


def _needs_approval(function: FunctionTool) -> bool | Callable[[Any, ExecutionContext], Awaitable[bool]]:
    needed = function.needs_approval
    if isinstance(needed, bool):
        return needed

    async def needs_approval(input: Any, context: ExecutionContext) -> bool:
        call = _call_of(function, context, to_json(input).decode())
        return await needed(call, input, call.tool_call_id)

    return needs_approval


def _held(server: MCPServer) -> MCPServerManager:
    """Makes a manager that connects and disconnects a server in the same task, as the server requires."""
    return MCPServerManager([server], strict=True, connect_in_parallel=True, connect_timeout_seconds=_CONNECT_SECONDS)


_servers = RefCounted[MCPServer](open_=_held, is_open=lambda server: getattr(server, "session", None) is not None)
"""Servers in use by Corrals, which can share one."""


class _ServerTools(ToolSource):
    """The tools that a server has when the Corral is opened. A server that was connected before stays connected."""

    def __init__(self, server: MCPServer, namespace: str | None) -> None:
        self._server = server
        self.namespace = namespace

    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            try:
                await _servers.enter(self._server)
                stack.push_async_callback(_servers.leave, self._server)
                async with asyncio.timeout(_CONNECT_SECONDS):
                    tools = self._converted(await self._server.list_tools())
            except Exception:
                _logger.warning("an MCP server of the Agents SDK does not answer", exc_info=True)
                offer((), problem="the MCP server does not answer")
            else:
                offer_usable(offer, tools, self.namespace)
            yield

    def _converted(self, listed: Iterable[ListedTool]) -> Sequence[Tool]:
        owner = f"MCP server {self.namespace or ''}".rstrip()
        return made(
            distinct_tools(listed, _logger.log), owner=owner, call=self._call, settings=self._settings, log=_logger.log
        )

    async def _call(self, name: str, arguments: Any, _: ExecutionContext) -> object:
        return as_sent(await self._server.call_tool(name, arguments))

    def _settings(self, listed: ListedTool) -> ToolSettings:
        function = MCPUtil.to_function_tool(listed, self._server, convert_schemas_to_strict=False)
        _refuse_guardrails(function)
        return {"namespace": self.namespace, "needs_approval": _needs_approval(function)}


# --- code mode ----------------------------------------------------------------------------------------------

Instructions: TypeAlias = str | Callable[[RunContextWrapper[Any], Agent[Any]], str | Awaitable[str]]


_SPAN_CHARS = 10_000


@checked
class CodeMode(AgentCodeMode[[ToolContext[Any]]]):
    """Instructions and tools for an agent: `Agent(name="...", **CodeMode().kwargs(instructions="...", tools=[...]))`.

    Without a Corral, or with `tools`, programs call the agent's own function tools: all of them, or those that `tools`
    names, except those in `outside`. The others stay with the model, as do tools that programs cannot call: with
    guardrails or hosted by OpenAI, with a warning, and those that need approval if neither `approve` nor the Corral
    decides about it. With a Corral and no `tools`, all of the agent's tools stay with the model.

    `context` can be a function of the `ToolContext`; default: the context of the run, if it is an `ExecutionContext`. A
    program opens a Corral that is not open; it is closed after a minute without programs.

    Raises:
        ConfigError: the name of a Corral cannot be part of a tool's name.
    """

    def __init__(
        self,
        corrals: Corrals | None = None,
        *,
        tools: Literal["all"] | Collection[str] | None = None,
        outside: Collection[str] = (),
        **options: Unpack[Options[[ToolContext[Any]]]],
    ) -> None:
        super().__init__(corrals, tools=tools, outside=outside, **options)

    @checked
    def kwargs(self, *, instructions: Instructions = "", tools: Iterable[AgentTool] = ()) -> dict[str, Any]:
        """Returns `instructions` and `tools` with those of programs.

        Raises:
            ConfigError: two tools have the same name, one is Corral's, or `describe_shell` has no open shell.
        """
        own = own_tools(tools)
        registry = self.corral.tools.copy()
        inside = [each.name for each in own if self._asks(each) and register(registry, partial(tools_of, each, None))]
        outside = [each for each in own if each.name not in inside]
        registry.outside = frozenset(each.name for each in outside)
        added = self.kit([each.name for each in own], tools=None if self.choice is None else registry)
        made = [self._function_tool(added, tool) for tool in added.tools]
        return {"instructions": _with_prompt(instructions, added.prompt), "tools": [*made, *outside]}

    def _function_tool(self, kit: Kit, tool: ModelTool) -> FunctionTool:
        async def run(
            call: ToolContext[Any], arguments: str, name: str | None = None, ask: Ask | None = None
        ) -> ExecutionResult | Pause:
            caller = carrying(context_for(self.context, call, call.context), RUN_CONTEXT, call)
            caller = in_conversation(caller, tool.name, self.asked, call, partial(_entries, call))
            read = read_arguments(arguments)
            with _spans(call, self.listener) as traced:
                return await kit.run(
                    tool, read, caller, on_event=traced, tool_call_id=call.tool_call_id, run=[name], ask=ask
                )

        async def invoke(call: ToolContext[Any], arguments: str) -> str | list[ToolOutputText | ToolOutputImage]:
            return parts_of(await run(call, arguments), _output)

        async def invoke_durably(
            call: ToolContext[Any], arguments: str
        ) -> str | list[ToolOutputText | ToolOutputImage] | Any:
            async def go_on(name: str, ask: Ask | None) -> Pause | None:
                result = await run(call, arguments, name, ask)
                if isinstance(result, Pause):
                    return result
                current.result = result
                return None

            current = _Invocation(go_on)
            token = _invocation.set(current)
            try:
                # the SDK keeps this name with the state of a run that was interrupted
                output = await through(call, to_json({"input": secrets.token_hex(16)}).decode())
            finally:
                _invocation.reset(token)
            return output if current.result is None else parts_of(current.result, _output)

        made = FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.input_schema,
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )
        corral = kit.corrals.get(tool.name)
        if corral is None or not corral.can_be_durable(self.language):
            return made
        made = _pausing(made)
        through, made.on_invoke_tool = made.on_invoke_tool, invoke_durably
        return made

    def _asks(self, tool: AgentTool) -> bool:
        """True if programs call a tool, and its approval, if needed, has a decider."""
        needs_approval = isinstance(tool, FunctionTool) and tool.needs_approval is not False
        answers = self.approve is not None or self.corral.approve is not None
        answers = answers or self.corral.can_be_durable(self.language)
        return self.takes(tool.name) and (answers or not needs_approval)


def _with_prompt(own: Instructions, prompt: str) -> Instructions:
    if isinstance(own, str):
        return f"{own}\n\n{prompt}" if own else prompt

    async def instructions(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        rendered = own(context, agent)
        return f"{await rendered if inspect.isawaitable(rendered) else rendered}\n\n{prompt}"

    return instructions


def _entries(call: ToolContext[Any]) -> Iterator[Entry]:
    """Yields the texts of persons, and the tools whose results the model can have read.

    The SDK does not show the results of a run in progress, so any of the agent's other tools counts.
    """
    agent = call.agent
    if isinstance(agent, Agent):
        yield from (result_of(each.name) for each in agent.tools)
        yield from (result_of(server.name) for server in agent.mcp_servers)
    # with a `tool_input`, the agent is a tool of another one, whose model wrote the prompt
    yield from entries_of(call.turn_input, is_nested=call.tool_input is not None)


@dataclass
class _Invocation:
    """A call of the tool that runs programs. `run` runs or continues its program, and keeps the result."""

    run: Callable[[str, Ask | None], Awaitable[Pause | None]]
    result: ExecutionResult | None = None


_invocation: ContextVar[_Invocation] = ContextVar("corral.openai_agents.invocation")


class _Program(Model):
    """The model of an agent that is the tool which runs programs. The calls that it makes are those of its program that
    wait: the SDK asks about them, stores them, and gives the answers to this model when it continues."""

    async def get_response(
        self,
        system_instructions: str | None,  # noqa: ARG002
        input: str | list[Any],
        *_: object,
        **__: object,
    ) -> ModelResponse:
        items = [{"content": input}] if isinstance(input, str) else input
        answers = {each["call_id"]: each["output"] for each in items if each.get("type") == "function_call_output"}

        def ask(pause: Pause) -> Decide | None:
            if _call_id(pause, pause.calls[0]) not in answers:
                return None

            def decide(call: ApprovalRequest) -> Approved | Denied:
                answer = answers.get(_call_id(pause, call), "")
                return Approved() if answer == _APPROVED else Denied(str(answer))

            return decide

        pause = await _invocation.get().run(items[0]["content"], ask)
        if pause is None:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            ended = ResponseOutputMessage(
                type="message", id="program", role="assistant", status="completed", content=[text]
            )
            return ModelResponse(output=[ended], usage=Usage(), response_id=None)
        waiting = [
            ResponseFunctionToolCall(
                type="function_call",
                call_id=_call_id(pause, call),
                name=_ASKING,
                arguments=to_json(shown, inf_nan_mode="constants").decode(),
            )
            for call, shown in zip(pause.calls, pause.to_dict()["calls"], strict=True)
        ]
        return ModelResponse(output=[*waiting], usage=Usage(), response_id=None)

    def stream_response(self, *_: object, **__: object) -> AsyncIterator[Any]:
        raise NotImplementedError  # the SDK runs agents that are tools without a stream


_ASKING = "call_of_program"
_APPROVED = '{"approved": true}'
_MOST_PAUSES = 10_000


def _call_id(pause: Pause, call: ApprovalRequest) -> str:
    return f"{pause.execution_id}-{pause.number}-{call.sequence}"


async def _approved(_: ToolContext[Any], __: str) -> str:
    return _APPROVED


def _pausing(tool: FunctionTool) -> FunctionTool:
    """Returns a tool that ends the run while its program waits for approvals, and continues it with the next one."""
    asking = FunctionTool(
        name=_ASKING,
        description="A call of a program that needs approval.",
        params_json_schema={"type": "object"},
        on_invoke_tool=_approved,
        strict_json_schema=False,
        needs_approval=True,
    )
    agent = Agent[Any](name=tool.name, model=_Program(), tools=[asking])
    made = agent.as_tool(
        tool.name,
        tool.description,
        run_config=RunConfig(),
        max_turns=_MOST_PAUSES,
        failure_error_function=None,
    )
    made.params_json_schema, made.strict_json_schema = tool.params_json_schema, False
    return made


@contextmanager
def _spans(call: ToolContext[Any], on_event: OnEvent | None) -> Generator[OnEvent]:
    """Makes an SDK function span for each call by a program, below the program's span."""
    parent = get_current_span()
    shows_data = call.run_config is None or call.run_config.trace_include_sensitive_data
    open_spans: dict[int, Span[FunctionSpanData]] = {}

    def traced(event: Event) -> object:
        if isinstance(event, ToolCallStarted):
            shown = preview_json(event.call.input, _SPAN_CHARS) if shows_data else None
            span = function_span(event.call.name, shown, parent=parent)
            open_spans[event.call.sequence] = span
            span.start()
        elif isinstance(event, ToolCallFinished) and (span := open_spans.pop(event.call.sequence, None)) is not None:
            if shows_data:
                span.span_data.output = preview_json(event.call.output, _SPAN_CHARS)
            if (error := event.call.error) is not None:
                span.set_error(SpanError(message=error.message, data={"code": error.code}))
            span.finish()
        return None if on_event is None else on_event(event)

    try:
        yield traced
    finally:
        for span in open_spans.values():
            span.finish()


def _output(part: str | Picture) -> ToolOutputText | ToolOutputImage:
    return ToolOutputText(text=part) if isinstance(part, str) else ToolOutputImage(image_url=part.url)
