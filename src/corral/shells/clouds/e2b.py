"""`E2BShell`: commands and files of an E2B sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Self

from typing_extensions import override

from corral.concurrency.task_owned import spawn
from corral.containment import ContainmentKind
from corral.errors import requires_extra
from corral.sessions.shell import ShellCapabilities, StreamName
from corral.shells.clouds.remote import RemoteProcess, RemoteShell


class E2BShell(RemoteShell):
    """Bash in an E2B sandbox, a virtual machine: `await E2BShell.create()`.

    The SDK reads its environment variables: E2B_API_KEY, E2B_DOMAIN. `aclose` ends the sandbox.
    """

    service: ClassVar[str] = "E2B"

    def __init__(self, sandbox: Any) -> None:
        """Takes over an `e2b.AsyncSandbox`: `aclose` ends it."""
        super().__init__()
        self._sandbox = sandbox

    @classmethod
    async def create(cls, template: str | None = None, *, lifetime_seconds: int = 300, **options: Any) -> Self:
        """Starts a sandbox. The service ends it after `lifetime_seconds`, even if this process is gone.

        `options` are passed to `e2b.AsyncSandbox.create`.

        Raises:
            MissingExtra: the SDK is not installed.
            ShellLost: the service refuses or cannot be reached.
        """
        with requires_extra("E2BShell", "e2b"):
            sdk = import_module("e2b")
        async with cls._starting():
            return cls(await sdk.AsyncSandbox.create(template, timeout=lifetime_seconds, **options))

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return ShellCapabilities(
            containment=ContainmentKind("e2b", "vm"),
            binary_output=False,
            ends_every_process=False,
        )

    @override
    def process(self, *, stdin: bool) -> RemoteProcess:
        return _E2BProcess(self._sandbox, stdin=stdin)

    @override
    async def end(self, seconds: float) -> None:
        await self._sandbox.kill(request_timeout=seconds)


class _E2BProcess(RemoteProcess):
    def __init__(self, sandbox: Any, *, stdin: bool) -> None:
        super().__init__(E2BShell.service, stdin=stdin)
        self._sandbox = sandbox
        self._handle: Any = None
        self._input: Any = None

    @override
    async def start(self, command: str, env: Mapping[str, str], seconds: float) -> None:
        self._handle = await self._sandbox.commands.run(
            f"{self.marked(command)}; c=$?; {self.sweep}; exit $c",
            background=True,
            envs=dict(env),
            stdin=self._stdin,
            timeout=0,  # the default is 60 s
            request_timeout=seconds,
            on_stdout=partial(self._take_text, "stdout"),
            on_stderr=partial(self._take_text, "stderr"),
            retain_output=False,
        )
        self.pid = self._handle.pid
        spawn(partial(self._watch, self._follow))

    @override
    async def run_script(self, script: str, seconds: float) -> None:
        await self._sandbox.commands.run(script, timeout=seconds)

    @override
    async def feed(self, data: bytes) -> None:
        if self._input is None:
            self._input = self._sandbox.commands.stream_input(self.pid, timeout=0)
        with suppress(Exception):  # the command has ended, or `wait` raises the reason
            await self._input.send(data)

    @override
    async def close_stdin(self) -> None:
        if not self._ends_input():
            return
        with suppress(Exception):  # likewise
            if self._input is not None:
                await self._input.close()
            if not self.ended:
                await self._handle.close_stdin()

    @override
    async def free(self) -> None:
        await self.close_stdin()  # else its request would stay open

    async def _take_text(self, name: StreamName, text: str) -> None:
        await self.take(name, text.encode())

    async def _follow(self) -> int | None:
        try:
            return (await self._handle.wait()).exit_code
        except Exception as error:
            code = getattr(error, "exit_code", None)  # the SDK raises for every code other than 0
            if not isinstance(code, int):
                raise
            return code
