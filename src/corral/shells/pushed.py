"""Commands whose output a library or service delivers piece by piece."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from typing_extensions import override

from corral.errors import ConfigError, ShellLost
from corral.sessions.shell import Process, StreamName

_PIECES = 16
"""Maximum number of unread pieces of output; the sender waits meanwhile."""


class PushedProcess(Process):
    """A command that receives output by `take` and its end by `finish`. The subclass starts, feeds and ends it."""

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
        """Records the end. Without a code the computer has lost the command, for the reason `lost`. Idempotent."""
        if self.ended:
            return
        self._code = code
        self._lost = lost
        for sink in self._sinks.values():
            sink.close()
        self._over.set()

    def discard(self) -> None:
        """Closes the streams; unread output is lost."""
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
        """Writes to standard input; data for a command that has ended is lost."""
