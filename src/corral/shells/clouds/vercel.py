"""`VercelShell`: commands and files of a Vercel Sandbox."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import aclosing, suppress
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Self

from typing_extensions import override

from corral.concurrency.task_owned import spawn
from corral.containment import ContainmentKind
from corral.errors import requires_extra
from corral.sessions.shell import ShellCapabilities
from corral.shells.clouds.remote import RemoteProcess, RemoteShell

_GONE = {404, 410}
_SIGNAL_CODES = 128


class VercelShell(RemoteShell):
    """Bash in a Vercel Sandbox, a virtual machine: `await VercelShell.create()`.

    The SDK reads its environment variables: VERCEL_OIDC_TOKEN, or VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID.
    `aclose` destroys the sandbox.
    """

    service: ClassVar[str] = "Vercel"

    def __init__(self, sandbox: Any, client: Any = None) -> None:
        """Takes over a `vercel.sandbox.Sandbox` and its client: `aclose` destroys the sandbox and closes the client."""
        super().__init__()
        self._sandbox = sandbox
        self._client = client

    @classmethod
    async def create(
        cls, image: str | None = None, *, lifetime_seconds: int = 300, client: Any = None, **options: Any
    ) -> Self:
        """Starts a sandbox. The service stops it after `lifetime_seconds`, even if this process is gone.

        `client` is a `vercel.sandbox.client.SandboxClient` with other settings, which the shell closes. `options` are
        passed to its `create_sandbox`.

        Raises:
            MissingExtra: the SDK is not installed.
            ShellLost: the service refuses or cannot be reached, or the token is missing.
        """
        with requires_extra("VercelShell", "vercel"):
            sdk = import_module("vercel.sandbox")
        client = client or sdk.SandboxClient.create()
        async with cls._starting(client.aclose):
            params = {"image": image, "execution_time_limit": lifetime_seconds, "persistent": False, **options}
            return cls(await client.create_sandbox(**params), client)

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return ShellCapabilities(
            containment=ContainmentKind("vercel", "vm"),
            binary_output=False,
            ends_every_process=False,
        )

    @override
    def process(self, *, stdin: bool) -> RemoteProcess:
        return _VercelProcess(self._sandbox.current_session, stdin=stdin)

    @override
    async def end(self, seconds: float) -> None:
        try:
            for ending in (self._sandbox.stop, self._sandbox.destroy):
                try:
                    await ending()
                except Exception as error:
                    if getattr(error, "status_code", None) not in _GONE:
                        raise
        finally:
            if self._client is not None:
                await self._client.aclose()


class _VercelProcess(RemoteProcess):
    """Command of the sandbox's session. A resumed sandbox has another session."""

    def __init__(self, session: Any, *, stdin: bool) -> None:
        super().__init__(VercelShell.service, stdin=stdin)
        self._session = session
        self._handle: Any = None

    @override
    async def start(self, command: str, env: Mapping[str, str], seconds: float) -> None:
        script = f"{self.marked(command)}; c=$?; {self.sweep}; exit $c"
        self._handle = await self._session.create_process(
            "/bin/bash", ["-c", script], env=dict(env), stdin=subprocess.PIPE if self._stdin else None
        )
        spawn(partial(self._watch, self._follow))

    @override
    async def run_script(self, script: str, seconds: float) -> None:
        off = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        done = await self._session.create_process("/bin/bash", ["-c", script], kill_after=seconds, **off)
        await done.wait()

    @override
    async def feed(self, data: bytes) -> None:
        with suppress(Exception):  # the command has ended, or `wait` raises the reason
            await self._handle.stdin.send(data)

    @override
    async def close_stdin(self) -> None:
        if self._stdin and not self.ended:
            with suppress(Exception):  # likewise
                await self._handle.stdin.aclose()

    @override
    async def free(self) -> None:
        self._watching.cancel()

    async def _follow(self) -> int | None:
        # The SDK's own readers wait for whole lines, however long, and keep all unread output.
        logs = self._handle._service.process_logs  # noqa: SLF001
        async with aclosing(logs(session_id=self._session.id, process_id=self._handle.id)) as events:
            async for event in events:
                await self.take(event.stream.value, event.data.encode())
        code = await self._handle.wait()
        return code if code is None or code >= 0 else _SIGNAL_CODES - code
