"""Corral for agents of Google's Agent Development Kit. Needs the extra `google-adk`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, cast

from corral import Denied, ExecutionContext
from corral.arguments import checked
from corral.errors import requires_extra
from corral.integrations.kit import (
    CodeModeBase,
    Decide,
    Entry,
    Kit,
    Pause,
    context_for,
    in_conversation,
    own_tools,
    parts_of,
    person,
    read_decision,
    result_of,
)
from corral.model import ModelTool
from corral.rendering.images import Picture

with requires_extra("corral.integrations.google_adk", "google-adk"):
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_confirmation import ToolConfirmation
    from google.adk.tools.tool_context import ToolContext
    from google.adk.utils.instructions_utils import InstructionProvider, inject_session_state
    from google.genai.types import FunctionDeclaration, Part

__all__ = ["CodeMode"]


@checked
class CodeMode(CodeModeBase[[ToolContext]]):
    """Instruction and tools for `LlmAgent(**CodeMode(corral).kwargs(...))`.

    `context` can be a function of the `ToolContext`. By default, programs run for the user and session of the call.

    Raises:
        ConfigError: the Corral is missing, or its name cannot be part of a tool's name.
    """

    @checked
    def kwargs(self, *, instruction: str | InstructionProvider = "", tools: Iterable[Any] = ()) -> dict[str, Any]:
        """Returns your `instruction` and `tools`, with those for programs added.

        Raises:
            ConfigError: two tools have the same name, one is Corral's, or `describe_shell` has no open shell.
        """
        own = own_tools(tools)
        added = self.kit(map(_name_of, own))
        made = [_CodeTool(added, tool, self) for tool in added.tools]
        return {"instruction": _with_prompt(instruction, added.prompt), "tools": [*made, *own]}


class _CodeTool(BaseTool):
    """`ModelTool` as a tool of the framework. Its answer has `result` or `error`, and sometimes `pictures`."""

    def __init__(self, kit: Kit, tool: ModelTool, mode: CodeMode) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._kit = kit
        self._tool = tool
        self._mode = mode

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._tool.input_schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        mode, call_id = self._mode, tool_context.function_call_id
        caller = context_for(mode.context or _of_session, tool_context)
        caller = in_conversation(caller, self.name, mode.asked, tool_context, lambda: _entries(tool_context))
        confirmation = tool_context.tool_confirmation
        result = await self._kit.run(
            self._tool,
            args,
            caller,
            on_event=mode.listener,
            tool_call_id=call_id,
            run=[tool_context.session.id],
            ask=partial(_answer, confirmation),
        )
        if isinstance(result, Pause):
            if confirmation is None:  # the framework asks once for each call
                tool_context.request_confirmation(hint=result.model_text(), payload=result.to_dict())
                tool_context.actions.skip_summarization = True
            return {"result": result.model_text()}
        parts = parts_of(result, _part)
        if isinstance(parts, list):
            return {"result": parts[0], "pictures": parts[1:]}
        return {"result" if result.success else "error": parts}


def _answer(confirmation: ToolConfirmation | None, pause: Pause) -> Decide | None:
    """Returns the user's answer to a pause. One without the payload of its request is for the first pause."""
    if confirmation is None:
        return None
    payload = cast("dict[str, Any]", confirmation.payload if isinstance(confirmation.payload, dict) else {})
    if payload.get("pause", 1) != pause.number:
        return None
    confirmed = confirmation.confirmed
    return lambda call: (
        read_decision(payload.get("decisions", {}).get(str(call.sequence), True)) if confirmed else Denied()
    )


def _entries(call: ToolContext) -> Iterator[Entry]:
    """Yields the texts of persons, and the tools whose results the model has read. Summaries of events are not part of
    their content, and answers to the framework's own questions are not results."""
    for event in call.session.events:
        for part in (event.content.parts if event.content else None) or ():
            if (response := part.function_response) is not None:
                if not (response.name or "").startswith("adk_"):
                    yield result_of(response.name)
            elif part.text and not part.thought and event.author == "user":
                yield person(part.text)


def _part(part: str | Picture) -> str | Part:
    """Makes a part of a picture. The framework takes it out of the answer and sends it separately."""
    return part if isinstance(part, str) else Part.from_bytes(data=part.data, mime_type=part.media_type)


def _of_session(call: ToolContext) -> ExecutionContext:
    return ExecutionContext(user_id=call.user_id, session_id=call.session.id)


def _with_prompt(own: str | InstructionProvider, prompt: str) -> InstructionProvider:
    """Returns a function, because the framework treats a text as a template with variables in braces."""

    async def instruction(context: ReadonlyContext) -> str:
        rendered = own(context) if callable(own) else inject_session_state(own, context)
        text = await rendered if inspect.isawaitable(rendered) else rendered
        return f"{text}\n\n{prompt}" if text else prompt

    return instruction


def _name_of(tool: Any) -> str:
    """Returns the name of a tool or function; empty for a toolset, whose tools are not known yet."""
    return str(getattr(tool, "name", None) or getattr(tool, "__name__", ""))
