"""Programs in shells whose commands have no standard input: they call tools over the web, and write their outcome."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from urllib.parse import urlsplit

import anyio

from corral.concurrency.task_owned import unwrapped
from corral.errors import CorralError, MalformedMessage, MessageTooLarge, SandboxLost
from corral.guest import Transport, decode_value, elsewhere_guest
from corral.isolation import Isolation
from corral.logs import get_logger
from corral.plugins import load_by_name
from corral.sandboxes.base import Job, Sandbox
from corral.sandboxes.framed.exits import failed_exit, read_exit
from corral.sandboxes.framed.guest_files import guest_files, is_node, node_files
from corral.sandboxes.framed.session import Seen
from corral.sessions.shell import Process, Shell
from corral.types import Endpoint, Exit, HttpEndpoint, Language, LogEntry, LogLevel, SandboxConfig

logger = get_logger("corral.sandboxes")

_OUTCOME_BYTES = 1_000_000
"""Room in an outcome beside the value."""
_STDERR_CHARACTERS = 2_000
_SUFFIXES: Mapping[Language, str] = {"python": "py", "typescript": "mjs"}
_LIMITS = {"value_bytes", "tool_input_bytes"}
_NO_PACKAGES = "-S"
_NEED_PACKAGES = frozenset({"grpc"})
"""Protocols whose runtime for Python imports a package that is installed beside the engine."""


class ExecuteOnlySandbox(Sandbox):
    """One program as a file of the shell and a command. The token is in the command's environment.

    `limits` are commands before that of `engine`. `leave` is called at the end, with True if the shell may be of no
    use.
    """

    def __init__(
        self,
        shell: Shell,
        config: SandboxConfig,
        limits: str,
        engine: str,
        isolation: Isolation,
        leave: Callable[[bool], None],
    ) -> None:
        self._limits = limits
        self.isolation = isolation
        self._shell = shell
        self._config = config
        self._engine = engine
        self._leave = leave
        self._process: Process | None = None
        self._file: str | None = None
        self._lost = False
        self._closed = False

    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        assert isinstance(bridge, HttpEndpoint)
        language = job.program.language
        output = _Output(job, mark := f"corral-outcome-{secrets.token_hex(16)}")
        told = {
            "code": job.program.code,
            "tools": [str(name) for name in job.tools],
            "env": None if job.env is None else dict(job.env),
            "limits": job.limits.model_dump(include=_LIMITS),
            "types": job.types,
            "mark": mark,
        }
        try:
            file = self._file = f".corral-{secrets.token_hex(8)}.{_SUFFIXES[language]}"
            node = is_node(self._engine)
            transport = _transport(bridge.protocol, language)
            await self._shell.files.write_binary(file, elsewhere_guest(transport, language, told, node=node))
            guest = node_files(self._config) if node else guest_files(self._config)
            permissions = [] if node else _PERMISSIONS[language](bridge.url)
            own = [each for each in guest.options if each != _NO_PACKAGES or bridge.protocol not in _NEED_PACKAGES]
            command = f"{self._limits}; exec {shlex.join([self._engine, *own, *permissions, file])}"
            env = {**guest.environment, "CORRAL_URL": bridge.url, "CORRAL_TOKEN": bridge.token}
            self._process = process = await self._shell.spawn(command, env=env)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, process.stdout, output.take)
                tasks.start_soon(_read, process.stderr, output.take_error)
                tasks.start_soon(process.wait)  # ends what the program leaves behind, which may have its streams
            return output.exit(await process.wait())
        except Exception as error:
            reason = unwrapped(error)
            if not isinstance(reason, CorralError):
                raise
            self._lost = True
            logger.warning(
                "the shell of %s lost its program: %s",
                job.execution_id,
                reason,
                extra={"execution_id": job.execution_id},
            )
            return failed_exit(SandboxLost("the shell lost the program; the log has the reason"))

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            try:
                if self._process is not None:
                    await self._process.aclose()
                if self._file is not None:
                    await self._shell.files.delete(self._file)
            except CorralError as error:
                self._lost = True
                logger.warning("a program's command or file may be left in its shell: %s", error)
            finally:
                self._leave(self._lost)


@cache
def _transport(protocol: str, language: Language) -> Transport:
    return load_by_name("corral.bridges", protocol).guest_transport(language)


class _Output:
    """The output of a guest: console entries line by line, and at its end the outcome behind the mark."""

    def __init__(self, job: Job, mark: str) -> None:
        self._job = job
        self._mark = f"\n{mark} ".encode()
        self._room = job.limits.log_bytes
        self._dropped = 0
        self._printed = False
        self._most = job.limits.value_bytes + _OUTCOME_BYTES
        self._outcome: bytearray | None = None
        self._rest: dict[LogLevel, bytes] = {"log": b"", "error": b""}
        self._last_errors = ""

    def take(self, data: bytes) -> None:
        if self._outcome is None:
            printed, found, outcome = (self._rest["log"] + data).partition(self._mark)
            if not found:
                self._rest["log"] = self._lines("log", printed)
                return
            self._finish("log", printed)
            self._outcome = bytearray(outcome)
        elif len(self._outcome) <= self._most:
            self._outcome += data

    def take_error(self, data: bytes) -> None:
        self._last_errors = (self._last_errors + data.decode(errors="replace"))[-_STDERR_CHARACTERS:]
        self._rest["error"] = self._lines("error", self._rest["error"] + data)

    def exit(self, code: int) -> Exit:
        for level, rest in [*self._rest.items()]:
            self._finish(level, rest)
        if self._outcome is None:
            logger.warning(
                "the guest of %s ended without a result: %s",
                self._job.execution_id,
                self._last_errors,
                extra={"execution_id": self._job.execution_id},
            )
            return failed_exit(SandboxLost(f"the command ended without a result (status {code})"))
        try:
            return self._read(bytes(self._outcome))
        except (MalformedMessage, MessageTooLarge) as error:
            return failed_exit(error)

    def _read(self, outcome: bytes) -> Exit:
        if len(outcome) > self._most:
            raise MessageTooLarge(f"the program's outcome has more than {self._most} bytes")
        try:
            kind, tagged, text = outcome.split(b" ", 2)
            value = decode_value(text, tagged=kind == b"value" and tagged == b"1")
        except (ValueError, RecursionError) as error:
            raise MalformedMessage("the program's outcome is not well formed") from error
        if kind not in {b"value", b"error", b"rejected"}:
            raise MalformedMessage("the program's outcome is of no known kind")
        if kind == b"value" and len(text.rstrip()) > self._job.limits.value_bytes:
            raise MessageTooLarge("the program's value is larger than value_bytes")
        seen = Seen()
        seen.printed = self._printed
        if kind == b"error" and isinstance(value, list) and value and isinstance(value[0], str):
            seen.failures.add(value[0])  # its calls went past this sandbox, so its word has to do
        return read_exit([kind.decode(), value, [], self._dropped, []], self._job.program, seen)

    def _lines(self, level: LogLevel, data: bytes) -> bytes:
        """Logs complete lines, and returns the rest; a break with what may be the beginning of the mark waits."""
        last = data[max(data.rfind(b"\n"), 0) :]
        held = last if self._mark.startswith(last) else b""
        *lines, rest = data.removesuffix(held).split(b"\n")
        for line in lines:
            self._log(level, line)
        return (rest + held)[-self._job.limits.log_bytes - len(self._mark) :]

    def _finish(self, level: LogLevel, data: bytes) -> None:
        self._rest[level] = b""
        if data:
            for line in data.removesuffix(b"\n").split(b"\n"):
                self._log(level, line)

    def _log(self, level: LogLevel, line: bytes) -> None:
        self._printed = True
        if len(line) > self._room:
            self._dropped += len(line)
            return
        self._room -= len(line)
        self._job.on_log(LogEntry(level=level, text=line.decode(errors="replace")))


async def _read(stream: AsyncIterator[bytes], take: Callable[[bytes], None]) -> None:
    async for piece in stream:
        take(piece)


def _reach(url: str) -> list[str]:
    """Permissions that the engine needs to call tools at this URL."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return [f"--allow-net={host}:{parts.port or (443 if parts.scheme == 'https' else 80)}", "--allow-env"]


_PERMISSIONS: Mapping[Language, Callable[[str], list[str]]] = {"python": lambda _: [], "typescript": _reach}
