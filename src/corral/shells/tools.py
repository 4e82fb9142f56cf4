"""Tools over a shell, for programs and agents: run commands; read, write, edit and find files."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from corral.concurrency.event_loop import periodic
from corral.errors import ToolError
from corral.sessions.shell import Shell, StreamName, current_shell
from corral.tools import Tool, tool
from corral.tools.tool_call import ToolCall

_EDITED_BYTES = 10_000_000
"""Maximum size of a file for `edit_file`, before and after the edit, because it is searched and copied on the event
loop."""
_MOST_LINES = 2_000
_MOST_ENTRIES = 1_000
_OUTPUT_BYTES = 64_000
_TAIL_BYTES = 900
"""Maximum bytes of the latest output in a progress report."""
_REPORT_SECONDS = 0.25


class CommandResult(TypedDict):
    """Outcome of a command. Without an exit code if it timed out."""

    exit_code: int | None
    stdout: str
    stderr: str


def shell_tools(shell: Shell | None = None) -> list[Tool[..., Any]]:
    """Makes the tools `bash`, `read_file`, `write_file`, `edit_file`, `list_files`, `glob` and `grep`.

    They use `shell` or, if it is None, the current shell of each call. Tools that change files or run commands are not
    read-only, so that a Corral can ask for approvals.
    """
    fixed = None if shell is None else shell.restricted()

    def here() -> Shell:
        return current_shell() if fixed is None else fixed

    async def bash(
        call: ToolCall,
        command: str,
        cwd: str | None = None,
        input: str | None = None,
        timeout_seconds: Annotated[float, Field(gt=0, le=3600)] = 60,
    ) -> CommandResult:
        """Runs a command in bash, in the working directory or `cwd`.

        `cd` affects this command only. The middle of a long output is left out.
        """
        live = _LiveOutput(call)
        async with periodic(live.report):
            done = await here().run(
                command,
                cwd=cwd,
                input=input,
                timeout_seconds=timeout_seconds,
                output_bytes=_OUTPUT_BYTES,
                on_output=live.add,
            )
        return CommandResult(exit_code=done.exit_code, stdout=done.stdout, stderr=done.stderr)

    async def read_file(
        path: str,
        first_line: Annotated[int, Field(ge=1)] = 1,
        last_line: Annotated[int | None, Field(ge=1)] = None,
    ) -> str:
        """Reads a text file, or its lines from `first_line` to `last_line`, counted from 1; at most 2,000 lines."""
        most = first_line + _MOST_LINES - 1
        lines = first_line, most if last_line is None else min(last_line, most)
        text = await here().files.read_text(path, lines=lines)
        if text is None:
            raise ToolError(f"there is no file {path!r}")
        return text

    async def write_file(path: str, text: str) -> None:
        """Writes a text file, and makes its folders. Replaces an existing file."""
        await here().files.write_text(path, text)

    async def edit_file(path: str, old: Annotated[str, Field(min_length=1)], new: str, all: bool = False) -> int:
        """Replaces text in a file, and returns the number of replacements.

        `old` must occur exactly once, unless `all` is true.
        """
        files = here().files
        text = await files.read_text(path, max_bytes=_EDITED_BYTES)
        if text is None:
            raise ToolError(f"there is no file {path!r}")
        count = text.count(old)
        if count == 0:
            raise ToolError(f"{path}: the text to replace does not occur; read the file and copy it exactly")
        if count > 1 and not all:
            raise ToolError(f"{path}: the text to replace occurs {count} times; add lines around it, or set all=true")
        if len(text) + count * (len(new) - len(old)) > _EDITED_BYTES:
            raise ToolError(f"{path}: it would be larger than {_EDITED_BYTES:,} characters; change it with a command")
        await files.write_text(path, text.replace(old, new))
        return count

    async def list_files(path: str = "", recursive: bool = False) -> list[str]:
        """Lists a folder, at most 1,000 entries; names of folders end in a slash."""
        entries = await here().files.list(path, recursive=recursive)
        if entries is None:
            raise ToolError(f"there is no folder {path!r}")
        return [f"{each.path}/" if each.kind == "directory" else each.path for each in entries[:_MOST_ENTRIES]]

    async def glob(pattern: str, path: str = "") -> list[str]:
        """Finds files by a pattern such as `**/*.py`, sorted, at most 1,000."""
        script = f"shopt -s globstar nullglob; IFS=; printf '%s\\n' {_pattern(pattern)} | head -n {_MOST_ENTRIES}"
        done = await here().run(script, cwd=path or None, output_bytes=1_000_000)
        return [line for line in done.stdout.splitlines() if line]

    async def grep(pattern: str, path: str = ".", ignore_case: bool = False, glob: str | None = None) -> list[str]:
        """Searches files below a path with a POSIX extended regular expression; returns `file:line:text`.

        At most 1,000 lines. `glob` is a pattern for file names, such as `*.py`.
        """
        options = ["-rnIE", *(["-i"] if ignore_case else []), *([f"--include={glob}"] if glob else [])]
        words = shlex.join(["grep", *options, "-e", pattern, "--", path])
        done = await here().run(f"{words} | head -n {_MOST_ENTRIES}; exit ${{PIPESTATUS[0]}}", output_bytes=1_000_000)
        if done.exit_code not in (0, 1, 141):  # 141: there were more lines
            raise ToolError(f"grep: {done.stderr.strip()[:500] or f'exit code {done.exit_code}'}")
        return done.stdout.splitlines()

    reading, writing = tool(read_only=True), tool(read_only=False)
    return [
        writing(bash),
        reading(read_file),
        writing(write_file),
        writing(edit_file),
        reading(list_files),
        reading(glob),
        reading(grep),
    ]


def _pattern(pattern: str) -> str:
    """Escapes a pattern for bash, so that only `*`, `?`, brackets and braces are special."""
    return "".join(each if each.isalnum() or each in "*?[]!^-_./{},@%+=:~" else f"\\{each}" for each in pattern)


class _LiveOutput:
    """Reports the latest output of a command as progress of its call, a few times a second."""

    def __init__(self, call: ToolCall) -> None:
        self._call = call
        self._bytes = self._reported = 0
        self._tail = b""

    def add(self, _stream: StreamName, data: bytes, /) -> None:
        self._bytes += len(data)
        self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]

    def report(self) -> float:
        """Reports new output, and returns the seconds until the next report."""
        if self._bytes > self._reported:
            self._reported = self._bytes
            self._call.progress(self._bytes, message=self._tail.decode(errors="replace"))
        return _REPORT_SECONDS
