"""`ShellTool` and `ApplyPatchTool` of openai-agents over a shell. Needs the extra `openai-agents`."""

from __future__ import annotations

from corral.errors import requires_extra
from corral.shells import Shell
from corral.shells.integrations.operations import apply_operation, run_commands

with requires_extra("corral.shells.integrations.openai_agents", "openai-agents"):
    from agents import (
        ApplyPatchTool,
        ShellCallOutcome,
        ShellCommandOutput,
        ShellCommandRequest,
        ShellResult,
        ShellTool,
        Tool,
    )
    from agents.editor import ApplyPatchOperation, ApplyPatchResult

__all__ = ["shell_and_patches"]


def shell_and_patches(shell: Shell) -> list[Tool]:
    """Makes the framework's tools `shell` and `apply_patch`, for `Agent(tools=...)`."""
    restricted = shell.restricted()
    return [ShellTool(executor=_Executor(restricted)), ApplyPatchTool(editor=_Editor(restricted))]


class _Executor:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def __call__(self, request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        ended = await run_commands(self._shell, action.commands, action.timeout_ms, action.max_output_length)
        output = [
            ShellCommandOutput(
                stdout=done.stdout,
                stderr=done.stderr,
                outcome=ShellCallOutcome(type="timeout" if done.timed_out else "exit", exit_code=done.exit_code),
                command=command,
            )
            for command, done in zip(action.commands, ended, strict=False)
        ]
        return ShellResult(output=output, max_output_length=action.max_output_length)


class _Editor:
    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def _apply(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        if operation.move_to is not None:
            return ApplyPatchResult(status="failed", output=f"{operation.path}: patches cannot move files here")
        status, output = await apply_operation(self._shell, operation.type, operation.path, operation.diff)
        return ApplyPatchResult(status=status, output=output)

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        return await self._apply(operation)

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        return await self._apply(operation)

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        return await self._apply(operation)
