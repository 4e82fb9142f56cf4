"""Streams of a local command, read and written by raw descriptors."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
from typing_extensions import override

from corral.errors import ConfigError
from corral.sessions.shell import Process

_READ_BYTES = 1 << 16


class PipeProcess(Process):
    """A command whose streams are non-blocking pipes. The subclass ends it."""

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
                    return  # it has closed its input, or ended

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
                self._free()  # without notifying readers: there are none, and this can be another thread

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
