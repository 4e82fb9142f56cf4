"""Commands of shells: checks of their text and environment, and their streams, over pipes or from a service."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from typing_extensions import override

from corral.errors import ConfigError, ShellLost
from corral.sessions.shell import Process, StreamName

MARK = "_CORRAL_SHELL_COMMAND"
"""Environment variable by which a command's descendants are found, where no namespace or group contains them."""


def expect_command(command: str, cwd: str | None) -> None:
    """Raises ConfigError if a command or its folder contains a NUL."""
    if "\0" in command or "\0" in (cwd or ""):
        raise ConfigError("a command and its folder cannot contain a NUL")


def checked_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns a copy of the variables.

    Raises:
        ConfigError: a name is invalid, or a value contains a NUL.
    """
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"env: {name!r} is not a valid variable name, or its value contains a NUL")
    return dict(env)


_READ_BYTES = 1 << 16


class PipeProcess(Process):
    """Command whose streams are non-blocking pipes. The subclass ends it."""

    def __init__(self, stdin: int | None, stdout: int, stderr: int) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr
        self._accepts_input = stdin is not None
        self._closed = False
        self._sending = anyio.Lock()
        for descriptor in (stdin, stdout, stderr):
            if descriptor is not None:
                os.set_blocking(descriptor, False)

    @property
    @override
    def stdout(self) -> AsyncIterator[bytes]:
        return self._read(self._stdout)

    @property
    @override
    def stderr(self) -> AsyncIterator[bytes]:
        return self._read(self._stderr)

    @override
    async def write(self, data: bytes) -> None:
        if not self._accepts_input:
            raise ConfigError("this command has no standard input; start it with spawn(..., stdin=True)")
        rest = memoryview(data)
        async with self._sending:
            while rest and self._stdin is not None:
                try:
                    rest = rest[os.write(self._stdin, rest) :]
                except BlockingIOError:
                    with suppress(anyio.ClosedResourceError):
                        await anyio.wait_writable(self._stdin)
                except BrokenPipeError:
                    return  # the command has closed its input, or ended

    @override
    async def close_stdin(self) -> None:
        async with self._sending:
            self._close_stdin()

    @abstractmethod
    def end(self) -> None:
        """Ends the command with all its descendants, without waiting. Idempotent."""

    def close(self) -> None:
        """Ends the command without waiting, and closes the streams. Idempotent."""
        if not self._closed:
            for descriptor in self._descriptors():
                anyio.notify_closing(descriptor)
            self._free()

    def __del__(self) -> None:
        with suppress(AttributeError):  # `__init__` failed
            if not self._closed:
                self._free()  # without notifying readers, because there are none, and this can be another thread

    def _free(self) -> None:
        self._closed = True
        self.end()
        for descriptor in self._descriptors():
            os.close(descriptor)
        self._stdin = None

    def _descriptors(self) -> list[int]:
        return [each for each in (self._stdin, self._stdout, self._stderr) if each is not None]

    @override
    async def aclose(self) -> None:
        await self.kill()
        self.close()

    def _close_stdin(self) -> None:
        descriptor, self._stdin = self._stdin, None
        if descriptor is not None:
            anyio.notify_closing(descriptor)
            os.close(descriptor)

    async def _read(self, descriptor: int) -> AsyncIterator[bytes]:
        while not self._closed:
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                with suppress(anyio.ClosedResourceError):
                    await anyio.wait_readable(descriptor)
                continue
            if not data:
                return
            yield data


_PIECES = 16
"""Maximum number of unread pieces of output, beyond which the sender waits."""


class PushedProcess(Process):
    """Command that receives output through `take` and its end through `finish`. The subclass starts, feeds and ends
    it."""

    def __init__(self, place: str, *, stdin: bool) -> None:
        self._place = place
        self._stdin = stdin
        self._over = anyio.Event()
        self._code: int | None = None
        self._lost: BaseException | None = None
        self._sinks: dict[StreamName, MemoryObjectSendStream[bytes]] = {}
        self._outputs: dict[StreamName, MemoryObjectReceiveStream[bytes]] = {}
        names: tuple[StreamName, ...] = ("stdout", "stderr")
        for name in names:
            self._sinks[name], self._outputs[name] = anyio.create_memory_object_stream[bytes](_PIECES)

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    @property
    @override
    def stdout(self) -> AsyncIterator[bytes]:
        return self._outputs["stdout"]

    @property
    @override
    def stderr(self) -> AsyncIterator[bytes]:
        return self._outputs["stderr"]

    async def take(self, name: StreamName, data: bytes) -> None:
        """Adds a piece of output, and waits while too much is unread. Output is dropped once the streams are closed."""
        try:
            await self._sinks[name].send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    def finish(self, code: int | None, lost: BaseException | None = None) -> None:
        """Records the end. Without a code, the computer has lost the command, for the reason `lost`. Idempotent."""
        if self.ended:
            return
        self._code = code
        self._lost = lost
        for sink in self._sinks.values():
            sink.close()
        self._over.set()

    def discard(self) -> None:
        """Closes the streams. Unread output is lost."""
        for stream in self._outputs.values():
            stream.close()

    async def over(self) -> None:
        """Waits for the end."""
        await self._over.wait()

    @override
    async def wait(self) -> int:
        await self.over()
        if self._code is None:
            raise ShellLost(f"{self._place} lost the command: {self._lost or 'it was ended'}")
        return self._code

    @override
    async def write(self, data: bytes) -> None:
        if not self._stdin:
            raise ConfigError("the command has no standard input; start it with stdin=True")
        await self.feed(data)

    @abstractmethod
    async def feed(self, data: bytes) -> None:
        """Writes to standard input. Data for a command that has ended is dropped."""
