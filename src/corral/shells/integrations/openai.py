"""The tools `shell` and `apply_patch` of OpenAI's Responses API, over a shell. Needs the extra `openai`."""

from __future__ import annotations

from corral.errors import requires_extra
from corral.shells import Completed, Shell
from corral.shells.integrations.operations import apply_operation, run_commands

with requires_extra("corral.shells.integrations.openai", "openai"):
    from openai.types.responses import (
        Response,
        ResponseApplyPatchToolCall,
        ResponseFunctionShellCallOutputContentParam,
        ResponseFunctionShellToolCall,
        ToolParam,
    )
    from openai.types.responses.response_input_item_param import ApplyPatchCallOutput, ShellCallOutput

__all__ = ["ShellAndPatches"]


class ShellAndPatches:
    """Definitions for requests, and outputs for the calls in their responses."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell.restricted()
        self.tools: list[ToolParam] = [
            {"type": "shell", "environment": {"type": "local"}},
            {"type": "apply_patch"},
        ]
        """Definitions for `client.responses.create(tools=...)`."""

    async def call(self, item: object) -> ShellCallOutput | ApplyPatchCallOutput | None:
        """Runs the call in an item; returns None if the call is not for these tools. A patch that does not apply is
        `failed`."""
        if isinstance(item, ResponseFunctionShellToolCall):
            action = item.action
            ended = await run_commands(self._shell, action.commands, action.timeout_ms, action.max_output_length)
            answer = ShellCallOutput(type="shell_call_output", call_id=item.call_id, output=list(map(_output, ended)))
            if action.max_output_length is not None:
                answer["max_output_length"] = action.max_output_length
            return answer
        if isinstance(item, ResponseApplyPatchToolCall):
            operation = item.operation
            diff = None if operation.type == "delete_file" else operation.diff
            status, output = await apply_operation(self._shell, operation.type, operation.path, diff)
            return ApplyPatchCallOutput(
                type="apply_patch_call_output", call_id=item.call_id, status=status, output=output
            )
        return None

    async def outputs(self, response: Response) -> list[ShellCallOutput | ApplyPatchCallOutput]:
        """Runs all calls of these tools in a response, one after the other, and returns their outputs."""
        answers = [await self.call(item) for item in response.output]
        return [answer for answer in answers if answer is not None]


def _output(done: Completed) -> ResponseFunctionShellCallOutputContentParam:
    if done.exit_code is None:
        return {"stdout": done.stdout, "stderr": done.stderr, "outcome": {"type": "timeout"}}
    return {
        "stdout": done.stdout,
        "stderr": done.stderr,
        "outcome": {"type": "exit", "exit_code": done.exit_code},
    }
