"""`E2BShell`: commands and files of a sandbox of E2B."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from typing_extensions import override

from corral.concurrency.task_owned import spawn
from corral.errors import ConfigError, FileError, MissingExtra, ShellLost
from corral.isolation import Isolation
from corral.shells.base import Process, Shell, ShellCapabilities
from corral.shells.command_files import CommandFiles
from corral.shells.environment import checked_environment, expect_command
from corral.shells.files import Files

__all__ = ["E2BShell"]

_MARK = "CORRAL_SHELL_COMMAND"
_PIECES = 16
"""Pieces of output that wait to be read; the service's stream waits meanwhile."""
_KILL_SECONDS = 10.0
_CLOSE_SECONDS = 2.0


class E2BShell(Shell):
    """Bash in a sandbox of E2B, a virtual machine: `await E2BShell.create()`.

    The settings are the SDK's own, by its environment variables: E2B_API_KEY, E2B_DOMAIN. `aclose` ends the sandbox.
    """

    def __init__(self, sandbox: Any) -> None:
        """Takes an `e2b.AsyncSandbox`, which it will end."""
        self._sandbox = sandbox
        self._files = CommandFiles(self)
        self._closed = False
        self.description = "Bash in a Linux virtual machine of E2B."

    @classmethod
    async def create(cls, template: str | None = None, *, lifetime_seconds: int = 300, **options: Any) -> Self:
        """Starts a sandbox. The service ends it after `lifetime_seconds`, even if this process is gone.

        `options` are those of `e2b.AsyncSandbox.create`.

        Raises:
            MissingExtra: the SDK is not installed.
            ShellLost: the service refuses or cannot be reached.
        """
        try:
            sdk = import_module("e2b")
        except ImportError as error:
            raise MissingExtra("E2BShell needs the SDK of E2B: pip install 'corral[e2b]'") from error
        try:
            return cls(await sdk.AsyncSandbox.create(template, timeout=lifetime_seconds, **options))
        except Exception as error:
            raise ShellLost(f"no sandbox of E2B was started: {error}") from error

    @property
    @override
    def files(self) -> Files:
        return self._files

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return ShellCapabilities(isolation=Isolation("e2b", "vm"), binary_output=False)

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        expect_command(command, cwd)
        variables = checked_environment(env or {})
        enter = ""
        if cwd is not None:
            folder = shlex.quote(cwd if cwd.startswith("/") else f"./{cwd}")
            if (await self.run(f"[ -d {folder} ]")).exit_code != 0:
                raise FileError(f"{cwd}: there is no such folder to run the command in")
            enter = f"cd {folder} && "
        process = _E2BProcess(self._sandbox, uuid.uuid4().hex, stdin=stdin)
        await process.start(f"{enter}exec /bin/bash -c {shlex.quote(command)}", variables)
        return process

    @override
    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True), anyio.move_on_after(_KILL_SECONDS):
            try:
                await self._sandbox.kill()
            except Exception as error:
                raise ShellLost(f"the sandbox of E2B could not be ended: {error}") from error


class _E2BProcess(Process):
    def __init__(self, sandbox: Any, mark: str, *, stdin: bool) -> None:
        self._sandbox = sandbox
        self._mark = mark
        self._stdin = stdin
        self._handle: Any = None
        self._input: Any = None
        self._input_ended = False
        self._ended = anyio.Event()
        self._code: int | None = None
        self._lost: Exception | None = None
        self._sinks: dict[str, MemoryObjectSendStream[bytes]] = {}
        self._outputs: dict[str, MemoryObjectReceiveStream[bytes]] = {}
        for name in ("stdout", "stderr"):
            self._sinks[name], self._outputs[name] = anyio.create_memory_object_stream[bytes](_PIECES)

    async def start(self, command: str, env: Mapping[str, str]) -> None:
        # What a command leaves behind is found by a variable that all its descendants inherit.
        marked = f"{_MARK}={self._mark} /bin/bash -c {shlex.quote(command)}; c=$?; {_sweep(self._mark)}; exit $c"
        try:
            self._handle = await self._sandbox.commands.run(
                marked,
                background=True,
                envs=dict(env),
                stdin=self._stdin,
                timeout=0,  # its own would be 60 s
                on_stdout=partial(self._take, "stdout"),
                on_stderr=partial(self._take, "stderr"),
                retain_output=False,
            )
        except BaseException as error:
            for stream in (*self._sinks.values(), *self._outputs.values()):
                stream.close()
            if not isinstance(error, Exception):
                raise
            raise ShellLost(f"the sandbox of E2B does not start a command: {error}") from error
        self.pid = self._handle.pid
        spawn(self._watch)

    @property
    @override
    def stdout(self) -> AsyncIterator[bytes]:
        return self._outputs["stdout"]

    @property
    @override
    def stderr(self) -> AsyncIterator[bytes]:
        return self._outputs["stderr"]

    @override
    async def write(self, data: bytes) -> None:
        if not self._stdin:
            raise ConfigError("the command has no standard input; start it with stdin=True")
        if self._input is None:
            self._input = self._sandbox.commands.stream_input(self.pid, timeout=0)
        with suppress(Exception):  # the command has ended, or `wait` tells the reason
            await self._input.send(data)

    @override
    async def close_stdin(self) -> None:
        if not self._stdin or self._input_ended:
            return
        self._input_ended = True
        with suppress(Exception):  # likewise
            if self._input is not None:
                await self._input.close()
            if not self._ended.is_set():
                await self._handle.close_stdin()

    @override
    async def wait(self) -> int:
        await self._ended.wait()
        if self._code is None:
            raise ShellLost(f"the sandbox of E2B lost the command: {self._lost}")
        return self._code

    @override
    async def kill(self) -> None:
        for stream in self._outputs.values():
            stream.close()  # the watcher must not wait for a reader
        if not self._ended.is_set():
            await self._end()
        with anyio.move_on_after(_CLOSE_SECONDS):
            await self.close_stdin()  # or its request would stay open

    async def _end(self) -> None:
        with anyio.move_on_after(_KILL_SECONDS):
            try:
                await self._sandbox.commands.run(_sweep(self._mark), timeout=_KILL_SECONDS)
            except Exception as error:
                self._lost = error
            await self._ended.wait()
        if not self._ended.is_set():
            raise ShellLost("a command in the sandbox of E2B did not end; close the shell")

    async def _take(self, name: str, text: str) -> None:
        try:
            await self._sinks[name].send(text.encode())
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return

    async def _watch(self) -> None:
        try:
            self._code = (await self._handle.wait()).exit_code
        except Exception as error:
            code = getattr(error, "exit_code", None)  # the SDK raises for every code but 0
            self._code = code if isinstance(code, int) else None
            self._lost = error
        finally:
            for sink in self._sinks.values():
                sink.close()
            self._ended.set()


def _sweep(mark: str) -> str:
    """A script that ends all processes with the mark in their environment, until there are none."""
    return (
        f"while f=$(grep -lz '^{_MARK}={mark}$' /proc/[0-9]*/environ 2>/dev/null); [ -n \"$f\" ]; do "
        'for e in $f; do p=${e#/proc/}; kill -9 "${p%/environ}" 2>/dev/null; done; done; true'
    )
