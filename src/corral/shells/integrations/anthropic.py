"""Anthropic's computer tools over a shell: `bash`, `str_replace_based_edit_tool` and `memory`."""

from __future__ import annotations

import posixpath
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

import anyio
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from typing_extensions import override

from corral.errors import ConfigError, CorralError, FileError, ToolError, requires_extra
from corral.sessions.shell import Closing, KeptOutput
from corral.shells import Completed, Process, Shell

with requires_extra("corral.shells.integrations.anthropic", "anthropic"):
    from anthropic.types.beta import BetaMessage, BetaToolResultBlockParam, BetaToolUnionParam, BetaToolUseBlock

__all__ = ["ComputerTools"]

_TIMEOUT_SECONDS = 120.0
_OUTPUT_BYTES = 64_000
_COMMAND_BYTES = 1_000_000
_CODE = re.compile("[0-9]{1,3}")


class _Output:
    """Output of bash, read up to a mark."""

    def __init__(self, stream: AsyncIterator[bytes], most: int) -> None:
        self._stream = stream
        self._most = most
        self._rest = bytearray()
        self.kept = KeptOutput(most)

    def begin(self) -> None:
        self._rest.clear()
        self.kept = KeptOutput(self._most)

    async def until(self, mark: bytes) -> str | None:
        """Reads up to the mark, and returns the remainder of the mark's line; None if the output ended first."""
        while True:
            at = self._rest.find(mark)
            if at >= 0 and (end := self._rest.find(b"\n", at + len(mark))) >= 0:
                after = self._rest[at + len(mark) : end].decode(errors="replace")
                del self._rest[at:]
                return after
            if at < 0:
                self._keep(len(self._rest) - len(mark))  # the mark can be split across pieces
            try:
                self._rest += await anext(self._stream)
            except StopAsyncIteration:
                return None

    def text(self) -> str:
        """Returns the output up to the mark, or everything so far."""
        self._keep(len(self._rest))
        return self.kept.text()

    def _keep(self, size: int) -> None:
        if size > 0:
            self.kept.add(bytes(self._rest[:size]))
            del self._rest[:size]


class LastingBash(Closing):
    """Persistent bash over a shell, started by its first command. Use `async with`, or call `aclose`.

    After each command, bash writes a random mark to both outputs, and the exit code. Functions, aliases, PATH or traps
    that a command sets can falsify later exit codes. If an exit code matters, run the command with `shell.run`.
    """

    def __init__(
        self, shell: Shell, *, timeout_seconds: float = _TIMEOUT_SECONDS, output_bytes: int = _OUTPUT_BYTES
    ) -> None:
        if not shell.capabilities.stdin:
            raise ConfigError("a persistent bash needs standard input, which this shell lacks; use shell.run")
        self._shell = shell
        self._timeout = timeout_seconds
        self._most = output_bytes
        self._process: Process | None = None
        self._outputs: tuple[_Output, _Output] | None = None
        self._lock = anyio.Lock()

    async def run(self, command: str) -> Completed:
        """Runs a command, one at a time. If bash ended, `exit_code` is None, and the next command starts another bash.

        Bash ends on `exit` and after a time-out; the error output says which. Incomplete syntax is an error, and can
        end bash.
        """
        async with self._lock:
            if len(data := command.encode(errors="replace")) > _COMMAND_BYTES or "\0" in command:
                return _refused(f"a command can have at most {_COMMAND_BYTES} bytes, and no NUL")
            done = False
            try:
                completed = await self._run(data)
                done = completed.exit_code is not None
                return completed
            finally:
                if not done:  # also if cancelled, because the state of the command is unknown
                    with anyio.CancelScope(shield=True):
                        await self._end()

    async def restart(self) -> None:
        """Ends bash with all its descendants. The next command starts another one."""
        async with self._lock:
            await self._end()

    async def aclose(self) -> None:
        """Ends bash with all its descendants. Idempotent."""
        await self.restart()

    async def _run(self, command: bytes) -> Completed:
        if self._process is None:
            self._process = await self._shell.spawn("exec bash --noprofile --norc", stdin=True)
            self._outputs = _Output(self._process.stdout, self._most), _Output(self._process.stderr, self._most)
        process, outputs = self._process, self._outputs
        assert outputs is not None
        for each in outputs:
            each.begin()
        mark = secrets.token_hex(16)
        # Bash reads the command as one word, so that the mark cannot become part of its quotes or here-documents, and
        # the command cannot read the mark as its input.
        word = command.decode(errors="replace").replace("'", "'\\''")
        separate = self._shell.capabilities.separate_stderr
        write = "\\builtin printf"  # because the command can define its own printf
        ending = f"{write} '\\n{mark} %s\\n' $?" + (f"; {write} '\\n{mark} \\n' >&2" if separate else "")
        line = f"eval '{word}' < /dev/null\n{ending}\n"
        rests: list[str | None] = [None, None]

        async def follow(number: int) -> None:
            rests[number] = await outputs[number].until(f"\n{mark} ".encode())

        with anyio.move_on_after(self._timeout) as deadline:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow, 0)
                if separate:
                    tasks.start_soon(follow, 1)
                await process.write(line.encode())
        code = None if deadline.cancelled_caught else rests[0]
        errors = outputs[1].text()
        if deadline.cancelled_caught:
            errors += f"\n[bash was ended after {self._timeout:g} seconds; the next command starts another one]"
        elif code is None:
            errors += "\n[bash has ended; the next command starts another one]"
        return Completed(
            exit_code=int(code) if code is not None and _CODE.fullmatch(code) else None,
            stdout=outputs[0].text(),
            stderr=errors,
            timed_out=deadline.cancelled_caught,
            truncated=any(each.kept.left_out for each in outputs),
        )

    async def _end(self) -> None:
        process, self._process, self._outputs = self._process, None, None
        if process is not None:
            await process.aclose()


def _refused(reason: str) -> Completed:
    return Completed(exit_code=None, stdout="", stderr=reason)


Name: TypeAlias = Literal["bash", "text_editor", "memory"]
_DEFINITIONS: Mapping[Name, Mapping[str, str]] = {
    "bash": {"type": "bash_20250124", "name": "bash"},
    "text_editor": {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    "memory": {"type": "memory_20250818", "name": "memory"},
}
_MEMORIES = "/memories"
_READ_BYTES = 1_000_000
_SHOWN_CHARS = 64_000
_MOST_ENTRIES = 1_000


class _Bash(BaseModel):
    command: str | None = None
    restart: bool = False


class _View(BaseModel):
    command: Literal["view"]
    path: str
    view_range: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None


class _Create(BaseModel):
    command: Literal["create"]
    path: str
    file_text: str


class _Replace(BaseModel):
    command: Literal["str_replace"]
    path: str
    old_str: Annotated[str, Field(min_length=1)]
    new_str: str = ""


class _Insert(BaseModel):
    command: Literal["insert"]
    path: str
    insert_line: Annotated[int, Field(ge=0)]
    insert_text: str


class _Delete(BaseModel):
    command: Literal["delete"]
    path: str


class _Rename(BaseModel):
    command: Literal["rename"]
    old_path: str
    new_path: str


_EDIT: TypeAdapter[_View | _Create | _Replace | _Insert] = TypeAdapter(
    Annotated[_View | _Create | _Replace | _Insert, Field(discriminator="command")]
)
_REMEMBER: TypeAdapter[_View | _Create | _Replace | _Insert | _Delete | _Rename] = TypeAdapter(
    Annotated[_View | _Create | _Replace | _Insert | _Delete | _Rename, Field(discriminator="command")]
)


class ComputerTools(Closing):
    """Definitions for requests, and results for the `tool_use` blocks of responses. Use it with `async with`.

    `bash` is one bash for the whole block. `memory` is the folder `memories` in the shell's files, which models see as
    `/memories`.

    Raises:
        ConfigError: a tool is unknown, or `bash` needs standard input, which the shell lacks.
    """

    def __init__(
        self,
        shell: Shell,
        *,
        tools: Sequence[Name] = ("bash", "text_editor"),
        memories: str = "memories",
        timeout_seconds: float = 120,
    ) -> None:
        for name in tools:
            if name not in _DEFINITIONS:
                raise ConfigError(f"{name!r:.50} is not a tool; the tools are 'bash', 'text_editor' and 'memory'")
        restricted = shell.restricted()
        self.tools: list[BetaToolUnionParam] = [
            cast("BetaToolUnionParam", dict(_DEFINITIONS[name])) for name in dict.fromkeys(tools)
        ]
        """Definitions for `client.beta.messages.create(tools=...)`."""
        self._names = {_DEFINITIONS[name]["name"] for name in tools}
        self._bash = LastingBash(restricted, timeout_seconds=timeout_seconds) if "bash" in tools else None
        self._editor = _Editor(restricted)
        self._memory = _Memory(restricted, memories)

    async def call(self, block: object) -> BetaToolResultBlockParam | None:
        """Runs the call in a block of a response; returns None if the call is not for these tools. Invalid input gives
        an error result."""
        if not isinstance(block, BetaToolUseBlock) or block.name not in self._names:
            return None
        failed = False
        try:
            text = await self._run(block.name, block.input)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, problem["loc"]))
            failed, text = True, f"{place}: {problem['msg']}" if place else problem["msg"]
        except CorralError as error:
            failed, text = True, str(error)
        return {"type": "tool_result", "tool_use_id": block.id, "content": _bounded(text), "is_error": failed}

    async def results(self, message: BetaMessage) -> list[BetaToolResultBlockParam]:
        """Runs all calls of these tools in a message, one after the other, and returns their results."""
        answers = [await self.call(block) for block in message.content]
        return [answer for answer in answers if answer is not None]

    async def aclose(self) -> None:
        """Ends bash. The shell stays open. Idempotent."""
        if self._bash is not None:
            await self._bash.aclose()

    async def _run(self, name: str, arguments: object) -> str:
        if name == "bash":
            return await self._command(_Bash.model_validate(arguments))
        if name == "memory":
            return await self._memory.run(_REMEMBER.validate_python(arguments))
        return await self._editor.run(_EDIT.validate_python(arguments))

    async def _command(self, arguments: _Bash) -> str:
        assert self._bash is not None
        if arguments.restart:
            await self._bash.restart()
            return "bash has been restarted"
        if arguments.command is None:
            raise ToolError("bash needs `command`, or `restart`: true")
        done = await self._bash.run(arguments.command)
        output = "\n".join(each.rstrip("\n") for each in (done.stdout, done.stderr) if each)
        if done.exit_code is None:
            raise ToolError(output)
        return output if done.exit_code == 0 else f"{output}\n[exit code {done.exit_code}]".lstrip("\n")


class _Editor:
    """Views and changes files, by the model's paths."""

    def __init__(self, shell: Shell) -> None:
        self.files = shell.files

    def place(self, path: str) -> str:
        """Translates a model's path to a path of the shell."""
        return path

    async def run(self, command: Any) -> str:
        match command:
            case _View(path=path, view_range=lines):
                return await self._view(path, lines)
            case _Create(path=path, file_text=text):
                await self.files.write_text(self.place(path), text)
                return f"{path} has been written"
            case _Replace(path=path, old_str=old, new_str=new):
                return await self._change(path, lambda text: _replaced(path, text, old, new))
            case _Insert(path=path, insert_line=line, insert_text=inserted):
                return await self._change(path, lambda text: _inserted(path, text, line, inserted))
            case _:
                raise ToolError("no such command")

    async def _view(self, path: str, lines: list[int] | None) -> str:
        info = await self.files.stat(self.place(path))
        if info is not None and info.kind == "directory":
            entries = await self.files.list(self.place(path)) or []
            names = [f"{each.path}/" if each.kind == "directory" else each.path for each in entries[:_MOST_ENTRIES]]
            return "\n".join([f"{path}:", *names])
        text = await self._read(path)
        every = text.splitlines()
        first, last = lines or [1, -1]
        last = len(every) if last == -1 else min(last, len(every))
        if lines and not 1 <= first <= max(last, 1):
            raise ToolError(f"view_range: {lines} is outside {path}, which has {len(every)} lines; -1 is the last")
        return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(every[first - 1 : last], first))

    async def _read(self, path: str) -> str:
        text = await self.files.read_text(self.place(path), max_bytes=_READ_BYTES)
        if text is None:
            raise ToolError(f"there is no file {path!r:.300}")
        return text

    async def _change(self, path: str, change: Callable[[str], str]) -> str:
        await self.files.write_text(self.place(path), change(await self._read(path)))
        return f"{path} has been changed"


class _Memory(_Editor):
    """The same, but only below `/memories`. Can also move and delete files there."""

    def __init__(self, shell: Shell, folder: str) -> None:
        super().__init__(shell)
        self._folder = folder
        self._links = shell.capabilities.links

    @override
    def place(self, path: str) -> str:
        parts = path.split("/")
        below = path == _MEMORIES or path.startswith(f"{_MEMORIES}/")
        if not below or ".." in parts or "\0" in path:
            raise ToolError(f"{path!r:.300} is not in {_MEMORIES}")
        return posixpath.join(self._folder, *filter(None, parts[2:]))

    @override
    async def run(self, command: Any) -> str:
        for path in {command.old_path, command.new_path} if isinstance(command, _Rename) else {command.path}:
            await self._without_links(path)
        match command:
            case _View(path=path) if path.rstrip("/") == _MEMORIES:
                await self.files.mkdir(self.place(path))
            case _Delete(path=path):
                if self.place(path) == self._folder or not await self.files.delete(self.place(path)):
                    raise ToolError(f"there is no file {path!r:.300}, or it is {_MEMORIES} itself")
                return f"{path} has been deleted"
            case _Rename(old_path=old, new_path=new):
                return await self._rename(old, new)
            case _:
                pass
        return await super().run(command)

    async def _rename(self, old: str, new: str) -> str:
        source, target = self.place(old), self.place(new)
        if await self.files.stat(target) is not None:
            raise ToolError(f"the file {new!r:.300} already exists")
        data = await self.files.read_bytes(source, max_bytes=_READ_BYTES)
        if data is None:
            raise ToolError(f"there is no file {old!r:.300}")
        await self.files.write_bytes(target, data)
        await self.files.delete(source)
        return f"{old} has been renamed to {new}"

    async def _without_links(self, path: str) -> None:
        """Raises ToolError if a part of the path below the folder is a link, because that could lead elsewhere."""
        place = self.place(path)
        folder = self._folder
        for name in posixpath.relpath(place, folder).split("/") if self._links else ():
            try:
                entries = await self.files.list(folder)
            except FileError:
                return
            if any(each.path == name and each.kind == "link" for each in entries or ()):
                raise ToolError(f"{path!r:.300} is behind a link; links are not allowed in memories")
            folder = posixpath.join(folder, name)


def _replaced(path: str, text: str, old: str, new: str) -> str:
    if (number := text.count(old)) != 1:
        raise ToolError(f"{path}: old_str occurs {number} times, and must occur exactly once")
    return text.replace(old, new)


def _inserted(path: str, text: str, line: int, addition: str) -> str:
    lines = text.splitlines(keepends=True)
    if line > len(lines):
        raise ToolError(f"{path} has {len(lines)} lines; insert_line must be 0 to {len(lines)}")
    if line and not lines[line - 1].endswith("\n"):
        lines[line - 1] += "\n"
    if not addition.endswith("\n") and line < len(lines):
        addition += "\n"
    return "".join([*lines[:line], addition, *lines[line:]])


def _bounded(text: str) -> str:
    left_out = len(text) - _SHOWN_CHARS
    half = _SHOWN_CHARS // 2
    return text if left_out <= 0 else f"{text[:half]}\n[{left_out} characters left out]\n{text[-half:]}"
