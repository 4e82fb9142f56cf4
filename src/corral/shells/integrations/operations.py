"""Calls of OpenAI's `shell` and `apply_patch` over a shell, for the SDK and for openai-agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from corral.errors import CorralError, ToolError
from corral.jail.workers import WorkerError, run_bounded
from corral.shells import Completed, Shell
from corral.shells.integrations.patches import created, updated

_MOST_COMMANDS = 100
_MOST_SECONDS = 3_600.0
_SECONDS = 120.0
_OUTPUT_BYTES = 64_000
_PATCH_SECONDS = 5.0
"""Of processor time, for applying a patch."""


async def run_commands(
    shell: Shell, commands: Sequence[str], timeout_ms: int | None, max_output_length: int | None
) -> list[Completed]:
    """Runs commands one after the other, each from the working directory. What the shell refuses is exit code 126.

    `timeout_ms` is for each command, an hour at most. After a time-out the others do not run.
    """
    seconds = _SECONDS if not timeout_ms or timeout_ms < 0 else min(timeout_ms / 1000, _MOST_SECONDS)
    kept = _OUTPUT_BYTES if max_output_length is None else max(0, min(max_output_length, _OUTPUT_BYTES))
    ended: list[Completed] = []
    for command in commands[:_MOST_COMMANDS]:
        try:
            done = await shell.run(command, timeout_seconds=seconds, output_bytes=kept)
        except CorralError as error:
            done = Completed(exit_code=126, stdout="", stderr=str(error)[:1_000])
        ended.append(done)
        if done.timed_out:
            break
    return ended


async def apply_operation(
    shell: Shell, kind: str, path: str, diff: str | None
) -> tuple[Literal["completed", "failed"], str]:
    """Creates, updates or deletes a file; returns the status and a text for the model."""
    files = shell.files
    try:
        if kind == "create_file":
            if await files.stat(path) is not None:
                raise ToolError("it is there already; update it")
            await files.write_text(path, created(diff or ""))
        elif kind == "update_file":
            if (text := await files.read_text(path)) is None:
                raise ToolError("there is no such file")
            try:
                changed = await run_bounded(
                    updated, text, diff or "", size=len(text) + len(diff or ""), seconds=_PATCH_SECONDS, tenant=shell
                )
            except WorkerError as error:
                raise ToolError(f"the patch cannot be applied: {error}") from error
            await files.write_text(path, changed)
        elif kind == "delete_file":
            found = await files.stat(path)
            if found is not None and found.kind == "directory":
                raise ToolError("it is a folder; delete its files, or use a command")
            if not await files.delete(path):
                raise ToolError("there is no such file")
        else:
            raise ToolError(f"{kind!r:.50} is none of create_file, update_file and delete_file")
    except CorralError as error:
        return "failed", f"{path}: {error}"
    return "completed", f"{path}: done"
