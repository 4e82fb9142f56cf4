"""Corral for the tool runner of Anthropic's SDK. Requires the extra `anthropic`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, TypedDict, cast

from corral import ExecutionContext, ExecutionResult
from corral.arguments import checked
from corral.errors import requires_extra
from corral.integrations.kit import CodeModeBase, Context, Kit, OnEvent, own_tools, parts_of
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


@checked
class CodeMode(CodeModeBase[[]]):
    """System prompt and tools for `AsyncAnthropic().beta.messages.tool_runner(**CodeMode(corral).kwargs(...))`.

    `context` can be a function without parameters, because the SDK does not pass the request to tools.

    Raises:
        ConfigError: the Corral is missing, or its name cannot be part of a tool's name.
    """

    @checked
    def kwargs(
        self,
        *,
        system: str = "",
        tools: Iterable[Any] = (),
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> _Kwargs:
        """Returns your `system` and `tools`, with those for programs added.

        With `cache_control`, {"type": "ephemeral"}, the provider caches the tools and the system prompt.

        Raises:
            ConfigError: two tools have the same name, one is Corral's, or `describe_shell` has no open shell.
        """
        own = own_tools(tools)
        added = self.kit(map(_name_of, own), instructions=system)
        runnable = [_runnable(added, tool, self.context, self.listener) for tool in added.tools]
        block = BetaTextBlockParam(type="text", text=added.prompt, cache_control=cache_control)
        return {"system": added.prompt if cache_control is None else [block], "tools": [*runnable, *own]}


def _runnable(kit: Kit, tool: ModelTool, context: Context[[]], on_event: OnEvent | None) -> BetaAsyncFunctionTool[Any]:
    async def run(**arguments: Any) -> str | list[Content]:
        caller = (context() if callable(context) else context) or ExecutionContext()
        call_id = TOOL_USE_ID.get()
        result = await kit.run(
            tool,
            arguments,
            caller,
            on_event=on_event,
            tool_call_id=call_id,
            run=[] if call_id else [secrets.token_hex(16)],
            ask=lambda _: None,
        )
        if isinstance(result, ExecutionResult) and not result.success:
            raise ToolError(result.model_text())
        return parts_of(result, _text, _image)

    schema = cast("Any", tool.input_schema)
    return beta_async_tool(run, name=tool.name, description=tool.description, input_schema=schema)


def _text(text: str) -> Content:
    return {"type": "text", "text": text}


def _image(picture: Picture) -> Content:
    media_type = cast("Any", picture.media_type)
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": picture.base64}}


def _name_of(tool: Any) -> str:
    return str(cast("Mapping[str, object]", tool).get("name") if isinstance(tool, Mapping) else tool.name)
