"""One bash that goes on from command to command: its folder, variables and functions stay."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator
from typing import Self

import anyio

from corral.errors import ConfigError
from corral.sessions.shell import KeptOutput
from corral.shells import Completed, Process, Shell

_TIMEOUT_SECONDS = 120.0
_OUTPUT_BYTES = 64_000
_COMMAND_BYTES = 1_000_000
_CODE = re.compile("[0-9]{1,3}")


class _Output:
    """One output of bash, read up to a mark."""

    def __init__(self, stream: AsyncIterator[bytes], most: int) -> None:
        self._stream = stream
        self._most = most
        self._rest = bytearray()
        self.kept = KeptOutput(most)

    def begin(self) -> None:
        self._rest.clear()
        self.kept = KeptOutput(self._most)

    async def until(self, mark: bytes) -> str | None:
        """Returns what follows the mark on its line; None if the output ended first."""
        while True:
            at = self._rest.find(mark)
            if at >= 0 and (end := self._rest.find(b"\n", at + len(mark))) >= 0:
                after = self._rest[at + len(mark) : end].decode(errors="replace")
                del self._rest[at:]
                return after
            if at < 0:
                self._keep(len(self._rest) - len(mark))  # a mark may be in two pieces
            try:
                self._rest += await anext(self._stream)
            except StopAsyncIteration:
                return None

    def text(self) -> str:
        """Returns the output up to the mark, or up to now."""
        self._keep(len(self._rest))
        return self.kept.text()

    def _keep(self, size: int) -> None:
        if size > 0:
            self.kept.add(bytes(self._rest[:size]))
            del self._rest[:size]


class LastingBash:
    """A bash over a shell, started by its first command. Leave it with `async with`, or call `aclose`.

    Each command ends with a random mark on both outputs, and its exit code, which bash writes. What a command runs or
    sources in this bash can change any later exit code, by a function, an alias, PATH or a trap. Where a code decides
    something, run the command with `shell.run`.
    """

    def __init__(
        self, shell: Shell, *, timeout_seconds: float = _TIMEOUT_SECONDS, output_bytes: int = _OUTPUT_BYTES
    ) -> None:
        if not shell.capabilities.stdin:
            raise ConfigError("a bash that goes on needs standard input, which this shell does not have; use shell.run")
        self._shell = shell
        self._timeout = timeout_seconds
        self._most = output_bytes
        self._process: Process | None = None
        self._outputs: tuple[_Output, _Output] | None = None
        self._lock = anyio.Lock()

    async def run(self, command: str) -> Completed:
        """Runs a command; one at a time. `exit_code` is None if bash ended, or was ended, and begins anew.

        Bash ends by `exit` and by the time-out, which the errors say. Unfinished syntax is an error; some ends bash.
        """
        async with self._lock:
            if len(data := command.encode(errors="replace")) > _COMMAND_BYTES or "\0" in command:
                return _refused(f"a command has at most {_COMMAND_BYTES} bytes, and no NUL")
            done = False
            try:
                completed = await self._run(data)
                done = completed.exit_code is not None
                return completed
            finally:
                if not done:  # cancelled too: nobody knows how far the command is
                    with anyio.CancelScope(shield=True):
                        await self._end()

    async def restart(self) -> None:
        """Ends bash with all that it started. The next command starts another one."""
        async with self._lock:
            await self._end()

    async def aclose(self) -> None:
        """Ends bash with all that it started. Idempotent."""
        await self.restart()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()

    async def _run(self, command: bytes) -> Completed:
        if self._process is None:
            self._process = await self._shell.spawn("exec bash --noprofile --norc", stdin=True)
            self._outputs = _Output(self._process.stdout, self._most), _Output(self._process.stderr, self._most)
        process, outputs = self._process, self._outputs
        assert outputs is not None
        for each in outputs:
            each.begin()
        mark = secrets.token_hex(16)
        # Bash reads the command as one word, so that the mark is not within a quote or a here-document of it, and the
        # command does not read the mark as its input.
        word = command.decode(errors="replace").replace("'", "'\\''")
        separate = self._shell.capabilities.separate_stderr
        write = "\\builtin printf"  # the command may have defined a printf of its own
        ending = f"{write} '\\n{mark} %s\\n' $?" + (f"; {write} '\\n{mark} \\n' >&2" if separate else "")
        line = f"eval '{word}' < /dev/null\n{ending}\n"
        found: list[str | None] = [None, None]

        async def follow(number: int) -> None:
            found[number] = await outputs[number].until(f"\n{mark} ".encode())

        with anyio.move_on_after(self._timeout) as deadline:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow, 0)
                if separate:
                    tasks.start_soon(follow, 1)
                await process.write(line.encode())
        code = None if deadline.cancelled_caught else found[0]
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
