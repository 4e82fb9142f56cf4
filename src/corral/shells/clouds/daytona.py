"""`DaytonaShell`: commands and files of a Daytona sandbox."""

from __future__ import annotations

import base64
import math
import shlex
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Self

import anyio
from typing_extensions import override

from corral.concurrency.task_owned import spawn
from corral.containment import ContainmentKind
from corral.errors import requires_extra
from corral.sessions.shell import ShellCapabilities, StreamName
from corral.shells.clouds.remote import RemoteProcess, RemoteShell

_START_SECONDS = 60.0
_LINE_BYTES = 48_000
_CODE_BYTES = 8
_GONE = 404

_FEED = 'while IFS= read -r l && [ "$l" != . ]; do printf %s "$l" | base64 -d || break; done'
"""Decodes a command's input, because the service supports neither an end of input nor binary input."""


class DaytonaShell(RemoteShell):
    """Bash in a Daytona sandbox: `await DaytonaShell.create()`.

    The SDK reads its environment variables: DAYTONA_API_KEY, DAYTONA_API_URL, DAYTONA_TARGET. `aclose` deletes the
    sandbox.
    """

    service: ClassVar[str] = "Daytona"

    def __init__(self, sandbox: Any, client: Any = None) -> None:
        """Takes over a `daytona.AsyncSandbox` and its client: `aclose` deletes the sandbox and closes the client."""
        super().__init__()
        self._sandbox = sandbox
        self._client = client

    @classmethod
    async def create(cls, snapshot: str | None = None, *, lifetime_seconds: int = 300, **options: Any) -> Self:
        """Starts a sandbox. The service deletes it after `lifetime_seconds`, in whole minutes.

        `options` are passed to `daytona.CreateSandboxFromSnapshotParams`.

        Raises:
            MissingExtra: the SDK is not installed. ShellLost: the service refuses or cannot be reached, or the key is
            missing.
        """
        with requires_extra("DaytonaShell", "daytona"):
            sdk = import_module("daytona")
        async with cls._starting():
            minutes = -(-lifetime_seconds // 60)
            params = sdk.CreateSandboxFromSnapshotParams(
                **{"snapshot": snapshot, "ttl_minutes": minutes, "auto_delete_interval": 0, **options}
            )
            client = sdk.AsyncDaytona()
        async with cls._starting(client.close):
            return cls(await client.create(params, timeout=_START_SECONDS), client)

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return ShellCapabilities(
            containment=ContainmentKind("daytona", "kernel"),
            partial_lines=False,
            binary_output=False,
            ends_every_process=False,
        )

    @override
    def process(self, *, stdin: bool) -> RemoteProcess:
        return _DaytonaProcess(self._sandbox, stdin=stdin)

    @override
    async def end(self, seconds: float) -> None:
        try:
            await self._sandbox.delete(timeout=seconds)
        except Exception as error:
            if getattr(error, "status_code", None) != _GONE:
                raise
        finally:
            if self._client is not None:
                await self._client.close()


class _DaytonaProcess(RemoteProcess):
    """Command in a session of the service. Deleting the session ends it."""

    def __init__(self, sandbox: Any, *, stdin: bool) -> None:
        super().__init__(DaytonaShell.service, stdin=stdin)
        self._api: Any = sandbox.process
        self._session = f"corral-{self.mark}"
        self._command = ""
        self._sending = anyio.Lock()
        self._freed = False
        end = f"corral-end-{uuid.uuid4().hex}:"
        self._end_mark = end
        self._tails: dict[StreamName, _Tail] = {"stdout": _Tail(end.encode()), "stderr": _Tail(end.encode())}

    @override
    async def start(self, command: str, env: Mapping[str, str], seconds: float) -> None:
        marked = self.marked(command, env)
        if self._stdin:
            run = f"exec 4<&0 3< <({_FEED} <&4); f=$!; {marked} <&3 3<&- 4<&-; c=$?; kill -9 $f 2>/dev/null"
        else:
            run = f"{marked} </dev/null; c=$?"
        # The service can add a line break to an output. The mark shows where it ends, and that it is complete.
        script = f"{run}; {self.sweep}; printf '{self._end_mark}%d\\n' $c; printf '{self._end_mark}%d\\n' $c >&2"
        sdk = import_module("daytona")
        await self._api.create_session(self._session, seconds)
        request = sdk.SessionExecuteRequest(
            command=f"/bin/bash -c -- {shlex.quote(script)}", run_async=True, suppress_input_echo=True
        )
        self._command = (await self._api.execute_session_command(self._session, request, math.ceil(seconds))).cmd_id
        spawn(partial(self._watch, self._follow))

    @override
    async def run_script(self, script: str, seconds: float) -> None:
        await self._api.exec(f"/bin/bash -c -- {shlex.quote(script)}", timeout=math.ceil(seconds))

    @override
    async def feed(self, data: bytes) -> None:
        async with self._sending:  # so that no other write comes in between
            for start in range(0, len(data), _LINE_BYTES):
                await self._send(base64.b64encode(data[start : start + _LINE_BYTES]).decode() + "\n")

    @override
    async def close_stdin(self) -> None:
        if self._ends_input():
            async with self._sending:
                await self._send(".\n")

    @override
    async def free(self) -> None:
        self._watching.cancel()
        if not self._freed:
            self._freed = True
            with suppress(Exception):  # the sandbox is gone, or the service refuses
                await self._api.delete_session(self._session)

    async def _send(self, text: str) -> None:
        if not self.ended:
            with suppress(Exception):  # the command has ended, or `wait` raises the reason
                await self._api.send_session_command_input(self._session, self._command, text)

    async def _take_text(self, name: StreamName, text: str) -> None:
        tail = self._tails[name]
        if output := tail.feed(text.encode()):
            await self.take(name, output)
        codes = {each.code for each in self._tails.values()}
        if None not in codes:
            self.finish(codes.pop())

    async def _follow(self) -> int | None:
        await self._api.get_session_command_logs_async(
            self._session, self._command, partial(self._take_text, "stdout"), partial(self._take_text, "stderr")
        )
        raise ConnectionError("its output ended too soon")


class _Tail:
    """Output up to its end mark, which the exit code follows."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._rest = b""
        self._ended = False
        self.code: int | None = None

    def feed(self, data: bytes) -> bytes:
        """Adds a piece, and returns the output in it. Holds back a possible start of the mark."""
        if not self._ended:
            self._rest += data
            output, separator, self._rest = self._rest.partition(self._mark)
            if not separator:
                kept = next((n for n in range(len(self._mark) - 1, 0, -1) if output.endswith(self._mark[:n])), 0)
                self._rest = output[len(output) - kept :]
                return output[: len(output) - kept]
            self._ended = True
        else:
            output, self._rest = b"", (self._rest + data)[:_CODE_BYTES]
        digits, separator, _ = self._rest.partition(b"\n")
        if separator and digits.isdigit():
            self.code = int(digits)
        return output
