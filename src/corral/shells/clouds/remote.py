"""Shells on computers of a service: their commands have no process here, and end by a mark that they carry."""

from __future__ import annotations

import shlex
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, cast

import anyio
from typing_extensions import override

from corral.errors import ConfigError, FileError, ShellLost
from corral.sessions.shell import Files, Process, Shell
from corral.shells.clouds.command_files import CommandFiles
from corral.shells.environment import MARK, checked_environment, expect_command
from corral.shells.pushed import PushedProcess

START_SECONDS = 60.0
"""Time that a service has to start a command, or to check its folder."""
KILL_SECONDS = 10.0
"""Time that a service has to end a command, or a computer."""
_GRACE_SECONDS = 1.0
"""SDKs give up by themselves first: some leave a failed task behind when they are cancelled."""
_OVER_SECONDS = 2.0
_FREE_SECONDS = 2.0
_KILLED = 128 + 9


class RemoteShell(Shell):
    """Bash on a computer of a service. Its files are read and written by commands."""

    service: ClassVar[str]

    def __init__(self) -> None:
        self._files = CommandFiles(self)
        self._closed = False
        self._live: set[RemoteProcess] = set()
        self.description = f"Bash on a Linux computer of {self.service}."

    @abstractmethod
    def process(self, *, stdin: bool) -> RemoteProcess:
        """Makes a command that has not started yet."""

    @abstractmethod
    async def end(self, seconds: float) -> None:
        """Ends the computer, within some seconds. One that is gone is fine. May raise anything."""

    @property
    @override
    def files(self) -> Files:
        return self._files

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        expect_command(command, cwd)
        if self._closed:
            raise ConfigError("this shell is closed")
        variables = checked_environment(env or {})
        if cwd is not None:
            folder = shlex.quote(cwd if cwd.startswith("/") else f"./{cwd}")
            if (await self.run(f"[ -d {folder} ]")).exit_code != 0:
                raise FileError(f"{cwd}: there is no such folder to run the command in")
            command = f"cd {folder} && exec /bin/bash -c -- {shlex.quote(command)}"
        process = self.process(stdin=stdin)
        try:
            with anyio.fail_after(START_SECONDS + _GRACE_SECONDS):
                await process.start(command, variables, START_SECONDS)
        except BaseException as error:
            process.finish(None, error)
            process.discard()
            with anyio.CancelScope(shield=True), anyio.move_on_after(KILL_SECONDS):
                await process.free()
            if not isinstance(error, Exception):
                raise
            raise ShellLost(f"{self.service} does not start a command: {refusal(error)}") from error
        self._live = {each for each in self._live if not each.ended} | {process}
        return process

    @override
    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_FREE_SECONDS):
                for process in self._live:
                    await process.leave()
            try:
                with anyio.fail_after(KILL_SECONDS + _GRACE_SECONDS):
                    await self.end(KILL_SECONDS)
            except Exception as error:
                raise ShellLost(
                    f"the computer of {self.service} could not be ended, and may go on until its lifetime is over: "
                    f"{refusal(error)}"
                ) from error


class RemoteProcess(PushedProcess):
    """A command that is found by a variable that all its descendants inherit."""

    def __init__(self, service: str, *, stdin: bool) -> None:
        super().__init__(service, stdin=stdin)
        self._service = service
        self.mark = uuid.uuid4().hex

    @abstractmethod
    async def start(self, command: str, env: Mapping[str, str], seconds: float) -> None:
        """Starts it, within some seconds. May raise anything."""

    @abstractmethod
    async def run_script(self, script: str, seconds: float) -> None:
        """Runs a script on the same computer, within some seconds. May raise anything."""

    @abstractmethod
    async def free(self) -> None:
        """Frees what the service and the SDK keep of it. Raises nothing; idempotent."""

    def marked(self, command: str, env: Mapping[str, str] | None = None) -> str:
        """The command by bash, with the mark, and with variables where the service takes none."""
        variables = "".join(f"{shlex.quote(f'{name}={value}')} " for name, value in (env or {}).items())
        return f"{f'env {variables}' if variables else ''}{MARK}={self.mark} /bin/bash -c -- {shlex.quote(command)}"

    @property
    def sweep(self) -> str:
        """A script that ends all processes with the mark in their environment, until there are none.

        All are stopped before one is killed, or a script would go on with its next line when its child ends before it.
        """
        return (
            f"while f=$(grep -lz '^{MARK}={self.mark}$' /proc/[0-9]*/environ 2>/dev/null); [ -n \"$f\" ]; do "
            'p=; for e in $f; do e=${e#/proc/}; p="$p ${e%/environ}"; done; '
            "kill -STOP $p 2>/dev/null; kill -9 $p 2>/dev/null; done; true"
        )

    async def leave(self) -> None:
        """Leaves it to the end of its computer."""
        self.finish(None, ConnectionError("the shell was closed"))
        self.discard()
        await self.free()

    @override
    async def kill(self) -> None:
        self.discard()  # nobody waits for a reader
        try:
            if not self.ended:
                await self._end()
        finally:
            with anyio.move_on_after(_FREE_SECONDS):
                await self.free()

    async def _end(self) -> None:
        lost: Exception | None = None
        with anyio.move_on_after(KILL_SECONDS + _GRACE_SECONDS):
            try:
                for _ in range(2):  # the first may have come before the command did
                    await self.run_script(self.sweep, KILL_SECONDS)
                    with anyio.move_on_after(_OVER_SECONDS):
                        await self.over()
                        return
            except Exception as error:
                lost = error
            else:
                self.finish(_KILLED)  # its end is behind output that nobody reads
        if not self.ended:
            self.finish(None, lost)
            raise ShellLost(
                f"a command on the computer of {self._service} may go on, for it could not be ended: close the shell"
                + (f" ({refusal(lost)})" if lost is not None else "")
            )


def refusal(error: BaseException) -> str:
    """The text of a service's error, with the time after which it takes requests again."""
    text = str(error) or type(error).__name__
    headers = cast("Mapping[str, object]", getattr(error, "headers", None) or {})
    after = next((value for name, value in headers.items() if name.lower() == "retry-after"), None)
    return text if after is None else f"{text} (retry after {str(after)[:20]} seconds)"
