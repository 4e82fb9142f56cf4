"""OpenAI's `shell` and `apply_patch` over a shell, for the SDK and for openai-agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from corral.errors import CorralError, ToolError
from corral.jail.workers import WorkerError, run_bounded
from corral.shells import Completed, Shell

_PATCH_CHARS = 1_000_000
_FILE_CHARS = 10_000_000
_MOST_HUNKS = 1_000
_MOST_COMPARISONS = 5_000_000


@dataclass(slots=True)
class _Hunk:
    """Old lines, the new lines that replace them, and the headings before them."""

    headings: list[str] = field(default_factory=list[str])
    old: list[str] = field(default_factory=list[str])
    new: list[str] = field(default_factory=list[str])
    at_end: bool = False


def created(diff: str) -> str:
    """Returns the text of a new file from a patch whose lines all begin with `+`.

    Raises:
        ToolError: a line does not begin with `+`, or the patch is too large.
    """
    lines = _lines(diff)
    for number, line in enumerate(lines, 1):
        if not line.startswith("+"):
            raise ToolError(
                f"line {number} of the patch: each line of a new file must begin with '+', not {line[:80]!r}"
            )
    return "".join(f"{line[1:]}\n" for line in lines)


def updated(text: str, diff: str) -> str:
    """Applies hunks in order. Keeps the file's line ends, and whether it ends with a line break.

    If the exact lines of a hunk do not occur, they are matched without trailing blanks.

    Raises:
        ToolError: the lines of a hunk are missing, a line is not part of a patch, or the input is too large.
    """
    if len(text) > _FILE_CHARS:
        raise ToolError(f"the file is larger than {_FILE_CHARS} characters; change it with a command")
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").split("\n")
    closed = lines[-1] == ""
    if closed:
        lines.pop()
    finder = _Finder(lines)
    result: list[str] = []
    done = 0
    for number, hunk in enumerate(_hunks(_lines(diff)), 1):
        start = done
        for heading in hunk.headings:
            if (place := finder.find([heading], start, stripped=True)) is None:
                raise ToolError(f"hunk {number}: there is no line {heading[:200]!r} after line {start}")
            start = place + 1
        if hunk.old:
            place = finder.find(hunk.old, start, at_end=hunk.at_end)
            if place is None:
                raise ToolError(
                    f"hunk {number}: these lines are not in the file after line {start}: {_shown(hunk.old)}"
                )
        else:
            place = start if hunk.headings and not hunk.at_end else len(lines)
        result += [*lines[done:place], *hunk.new]
        done = place + len(hunk.old)
    result += lines[done:]
    return end.join(result) + (end if closed and result else "")


class _Finder:
    """Searches for lines, within a maximum number of comparisons."""

    def __init__(self, lines: list[str]) -> None:
        self._exact = lines
        self._right = [line.rstrip() for line in lines]
        self._both = [line.strip() for line in lines]
        self._left = _MOST_COMPARISONS

    def find(self, needle: list[str], start: int, *, stripped: bool = False, at_end: bool = False) -> int | None:
        """Returns the first match from `start` on, preferring an exact one."""
        tries = [(self._exact, needle), (self._right, [line.rstrip() for line in needle])]
        if stripped:
            tries.append((self._both, [line.strip() for line in needle]))
        for lines, parts in tries:
            last = len(lines) - len(parts)
            for place in range(max(start, last) if at_end else start, last + 1):
                if self._matches(lines, parts, place):
                    return place
        return None

    def _matches(self, lines: list[str], parts: list[str], place: int) -> bool:
        for number, part in enumerate(parts):
            self._left -= 1
            if self._left < 0:
                raise ToolError("the patch needs too many comparisons; make smaller patches, with distinctive lines")
            if lines[place + number] != part:
                return False
        return True


def _lines(diff: str) -> list[str]:
    if len(diff) > _PATCH_CHARS:
        raise ToolError(f"the patch is larger than {_PATCH_CHARS} characters; make smaller ones")
    lines = diff.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _hunks(lines: list[str]) -> list[_Hunk]:
    hunks: list[_Hunk] = []
    hunk = _Hunk()
    for number, line in enumerate(lines, 1):
        if line.startswith("@@"):
            if hunk.old or hunk.new:
                hunks.append(hunk)
                hunk = _Hunk()
            if heading := line[2:].strip():
                hunk.headings.append(heading)
        elif line.rstrip() == "*** End of File":
            hunk.at_end = True
        elif line == "" or line[0] == " ":
            hunk.old.append(line[1:])
            hunk.new.append(line[1:])
        elif line[0] == "-":
            hunk.old.append(line[1:])
        elif line[0] == "+":
            hunk.new.append(line[1:])
        else:
            raise ToolError(f"line {number} of the patch does not begin with '@@', ' ', '+' or '-': {line[:80]!r}")
    if hunk.old or hunk.new:
        hunks.append(hunk)
    if not hunks:
        raise ToolError("the patch changes nothing; include lines that begin with '+' or '-'")
    if len(hunks) > _MOST_HUNKS:
        raise ToolError(f"the patch has more than {_MOST_HUNKS} hunks; make smaller ones")
    return hunks


def _shown(lines: list[str]) -> str:
    return repr("\n".join(lines)[:300])


_MOST_COMMANDS = 100
_MOST_SECONDS = 3_600.0
_SECONDS = 120.0
_OUTPUT_BYTES = 64_000
_PATCH_SECONDS = 5.0
"""Maximum processor seconds for applying a patch."""


async def run_commands(
    shell: Shell, commands: Sequence[str], timeout_ms: int | None, max_output_length: int | None
) -> list[Completed]:
    """Runs commands one after the other, each starting in the working directory. Exit code 126 means that the shell
    refused one.

    `timeout_ms` applies to each command, and is at most an hour. After a time-out, the remaining commands do not run.
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
    """Creates, updates or deletes a file. Returns the status and a message for the model."""
    files = shell.files
    try:
        if kind == "create_file":
            if await files.stat(path) is not None:
                raise ToolError("the file already exists; update it")
            await files.write_text(path, created(diff or ""))
        elif kind == "update_file":
            if (text := await files.read_text(path)) is None:
                raise ToolError("there is no such file")
            try:
                changed = await run_bounded(
                    updated, text, diff or "", size=len(text) + len(diff or ""), seconds=_PATCH_SECONDS, owner=shell
                )
            except WorkerError as error:
                raise ToolError(f"the patch cannot be applied: {error}") from error
            await files.write_text(path, changed)
        elif kind == "delete_file":
            info = await files.stat(path)
            if info is not None and info.kind == "directory":
                raise ToolError("it is a folder; delete its files, or use a command")
            if not await files.delete(path):
                raise ToolError("there is no such file")
        else:
            raise ToolError(f"{kind!r:.50} is not create_file, update_file or delete_file")
    except CorralError as error:
        return "failed", f"{path}: {error}"
    return "completed", f"{path}: done"
