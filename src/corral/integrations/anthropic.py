"""Corral for the tool runner of Anthropic's SDK. Requires the extra `anthropic`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypedDict, cast, overload

from corral import ExecutionContext, ExecutionResult
from corral.arguments import checked
from corral.errors import requires_extra
from corral.integrations.kit import (
    Asked,
    CodeModeBase,
    Entry,
    Kit,
    in_conversation,
    member,
    own_tools,
    parts_of,
    person,
    result_of,
)
from corral.model import ModelTool
from corral.rendering.images import Picture

with requires_extra("corral.integrations.anthropic", "anthropic"):
    from anthropic.lib.tools import BetaAsyncFunctionTool, ToolError, beta_async_tool
    from anthropic.types.beta import BetaCacheControlEphemeralParam, BetaTextBlockParam
    from anthropic.types.beta.beta_tool_result_block_param import Content

__all__ = ["TOOL_USE_ID", "CodeMode"]

TOOL_USE_ID: ContextVar[str | None] = ContextVar("tool_use_id", default=None)
"""Id of the current `tool_use` block, if your own loop sets it. The SDK's runner does not."""


class _Kwargs(TypedDict):
    system: str | list[BetaTextBlockParam]
    tools: list[Any]


class _RunKwargs(_Kwargs):
    messages: list[Any]


@checked
class CodeMode(CodeModeBase[[]]):
    """System prompt and tools for `AsyncAnthropic().beta.messages.tool_runner(**CodeMode(corral).kwargs(...))`.

    `context` can be a function without parameters, because the SDK does not pass the request to tools.

    Raises:
        ConfigError: the Corral is missing, or its name cannot be part of a tool's name.
    """

    @overload
    def kwargs(
        self,
        *,
        system: str = "",
        tools: Iterable[Any] = (),
        cache_control: BetaCacheControlEphemeralParam | None = None,
        messages: None = None,
    ) -> _Kwargs: ...
    @overload
    def kwargs(
        self,
        *,
        system: str = "",
        tools: Iterable[Any] = (),
        cache_control: BetaCacheControlEphemeralParam | None = None,
        messages: Sequence[Any],
    ) -> _RunKwargs: ...
    @checked
    def kwargs(
        self,
        *,
        system: str = "",
        tools: Iterable[Any] = (),
        cache_control: BetaCacheControlEphemeralParam | None = None,
        messages: Sequence[Any] | None = None,
    ) -> _Kwargs | _RunKwargs:
        """Returns your `system` and `tools`, with those for programs added.

        With `cache_control`, {"type": "ephemeral"}, the provider caches the tools and the system prompt. With
        `messages`, the conversation, these are among the arguments too, and a policy that follows data takes the user's
        texts from them. The SDK does not pass the conversation to tools, so make the arguments for each run.

        Raises:
            ConfigError: two tools have the same name, one is Corral's, or `describe_shell` has no open shell.
        """
        own = own_tools(tools)
        added = self.kit(map(_name_of, own), instructions=system)
        # the SDK does not show the results of a run in progress, so any of these tools can have been called
        others = [result_of(_name_of(each)) for each in own]
        runnable = [_runnable(added, tool, self, others, messages or ()) for tool in added.tools]
        block = BetaTextBlockParam(type="text", text=added.prompt, cache_control=cache_control)
        made: _Kwargs = {"system": added.prompt if cache_control is None else [block], "tools": [*runnable, *own]}
        return made if messages is None else {**made, "messages": [*messages]}


def _runnable(
    kit: Kit, tool: ModelTool, mode: CodeMode, others: Sequence[Entry], messages: Sequence[Any]
) -> BetaAsyncFunctionTool[Any]:
    async def run(**arguments: Any) -> str | list[Content]:
        caller = (mode.context() if callable(mode.context) else mode.context) or ExecutionContext()
        caller = in_conversation(
            caller, tool.name, _without_call(mode.asked), None, lambda: (*others, *_entries(messages))
        )
        call_id = TOOL_USE_ID.get()
        result = await kit.run(
            tool,
            arguments,
            caller,
            on_event=mode.listener,
            tool_call_id=call_id,
            run=[] if call_id else [secrets.token_hex(16)],
            ask=lambda _: None,
        )
        if isinstance(result, ExecutionResult) and not result.success:
            raise ToolError(result.model_text())
        return parts_of(result, _content)

    schema = cast("Any", tool.input_schema)
    return beta_async_tool(run, name=tool.name, description=tool.description, input_schema=schema)


def _without_call(asked: Asked[[]]) -> Asked[[None]]:
    return None if asked is None else lambda _: asked()


def _entries(messages: Iterable[Any]) -> Iterator[Entry]:
    """Yields the user's texts, without documents, and the tools whose results the model has read."""
    names: dict[str, str] = {}
    for message in messages:
        role, content = member(message, "role"), member(message, "content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
            kind = str(member(block, "type"))
            if kind == "text" and role == "user":
                yield person(str(member(block, "text")))
            elif kind.endswith("tool_use"):
                names[str(member(block, "id"))] = str(member(block, "name"))
            elif kind.endswith("tool_result"):
                yield result_of(names.get(str(member(block, "tool_use_id"))))


def _content(part: str | Picture) -> Content:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    media_type = cast("Any", part.media_type)
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": part.base64}}


def _name_of(tool: Any) -> str:
    return str(member(tool, "name"))
