"""Programs in any shell: the guest runs as a command and communicates over its standard streams."""

from __future__ import annotations

import base64
import binascii
import secrets
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import ClassVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import anyio

from corral.arguments import checked
from corral.concurrency.task_owned import spawn, unwrapped
from corral.containment import ContainmentKind
from corral.errors import ConfigError, CorralError, MalformedMessage, MessageTooLarge, SandboxLost, StartFailed
from corral.guest import Transport, decode_value, elsewhere_guest
from corral.logs import get_logger
from corral.plugins import load_by_name
from corral.sandboxes.base import Job, Sandbox
from corral.sandboxes.channel import GuestChannel, GuestFiles, PostMortem
from corral.sandboxes.framed.boxes import BoxProvider
from corral.sandboxes.framed.exits import failed_exit, read_exit
from corral.sandboxes.framed.guest_files import guest_files, is_node, node_files
from corral.sandboxes.framed.session import Seen
from corral.sessions.shell import Process, Shell
from corral.shells.clouds.daytona import DaytonaShell
from corral.shells.clouds.e2b import E2BShell
from corral.shells.clouds.vercel import VercelShell
from corral.types import Capabilities, Endpoint, Exit, HttpEndpoint, Language, LogEntry, LogLevel, SandboxConfig

logger = get_logger("corral.sandboxes")

_OUTCOME_BYTES = 1_000_000
"""Maximum bytes of an outcome in addition to the value."""
_STDERR_CHARACTERS = 2_000
_SUFFIXES: Mapping[Language, str] = {"python": "py", "typescript": "mjs"}
_LIMITS = {"value_bytes", "tool_input_bytes"}
_NO_PACKAGES = "-S"
_NEED_PACKAGES = frozenset({"grpc"})
"""Protocols whose Python runtime imports packages, which must be installed with the engine."""


class _ExecuteOnlySandbox(Sandbox):
    """Runs one program as a file of the shell and a command. The token is in the command's environment.

    `limits` are shell commands that run before `engine`. `leave` is called at the end, with True if the shell might be
    unusable.
    """

    def __init__(
        self,
        shell: Shell,
        config: SandboxConfig,
        limits: str,
        engine: str,
        containment: ContainmentKind,
        leave: Callable[[bool], None],
    ) -> None:
        self._limits = limits
        self.containment = containment
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
        options = {
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
            await self._shell.files.write_bytes(file, elsewhere_guest(transport, language, options, node=node))
            guest = node_files(self._config) if node else guest_files(self._config)
            permissions = [] if node else _PERMISSIONS[language](bridge.url)
            own = [each for each in guest.options if each != _NO_PACKAGES or bridge.protocol not in _NEED_PACKAGES]
            command = f"{self._limits}; exec {shlex.join([self._engine, *own, *permissions, file])}"
            env = {**guest.environment, "CORRAL_URL": bridge.url, "CORRAL_TOKEN": bridge.token}
            self._process = process = await self._shell.spawn(command, env=env)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_read, process.stdout, output.take)
                tasks.start_soon(_read, process.stderr, output.take_error)
                tasks.start_soon(process.wait)  # ends left-over processes, which can hold the streams open
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
                logger.warning("a program's command or file may remain in its shell: %s", error)
            finally:
                self._leave(self._lost)


@cache
def _transport(protocol: str, language: Language) -> Transport:
    return load_by_name("corral.bridges", protocol).guest_transport(language)


class _Output:
    """Output of a guest: console entries line by line, then the mark and the outcome."""

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
            printed, separator, outcome = (self._rest["log"] + data).partition(self._mark)
            if not separator:
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
            raise MalformedMessage("the program's outcome is malformed") from error
        if kind not in {b"value", b"error", b"rejected"}:
            raise MalformedMessage("the program's outcome has an unknown kind")
        if kind == b"value" and len(text.rstrip()) > self._job.limits.value_bytes:
            raise MessageTooLarge("the program's value is larger than value_bytes")
        seen = Seen()
        seen.printed = self._printed
        if kind == b"error" and isinstance(value, list) and value and isinstance(value[0], str):
            seen.failures.add(value[0])  # this sandbox does not see calls, so it has to trust the program
        return read_exit([kind.decode(), value, [], self._dropped, []], self._job.program, seen)

    def _lines(self, level: LogLevel, data: bytes) -> bytes:
        """Logs complete lines. Returns the remainder, which includes a possible start of the mark."""
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
    """Returns the permissions that the engine needs to call tools at this URL."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return [f"--allow-net={host}:{parts.port or (443 if parts.scheme == 'https' else 80)}", "--allow-env"]


_PERMISSIONS: Mapping[Language, Callable[[str], list[str]]] = {"python": lambda _: [], "typescript": _reach}


_PIPE = "pipe"
_WEB_PROTOCOLS = frozenset({"connect", "graphql", "grpc", "http", "trpc"})
_STDERR_BYTES = 16_384
_SIGNALS = 128
_READ_SOURCE = "import os;s=b''\nwhile not s.endswith(b'\\n'):s+=os.read(0,65536)\n"
_NODE = (
    "const fs=require('fs'),b=Buffer.alloc(65536);let s='';"
    "while(!s.endsWith('\\n'))s+=b.latin1Slice(0,fs.readSync(0,b));"
    "new (require('vm').Script)(Buffer.from(s,'base64').toString(),{filename:'corral:guest'})"
    ".runInThisContext()(require,process)"
)
_FIND = (
    "command -v deno || { node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null && "
    "command -v node; }"
)
"""Command that prints the path of an engine for TypeScript."""
_PYTHON = f"{_READ_SOURCE}import base64;exec(compile(base64.b64decode(s),'guest.py','exec'))"
"""True: the guest is one line, and nothing follows it until the guest writes READY."""
_OWN_DATA_MB: Mapping[Language, int | None] = {"python": 64, "typescript": None}
"""Memory of the engine and the guest, in addition to a program's. None if the engine reserves more than it uses."""


class ShellSandbox(BoxProvider[Shell]):
    """Runs programs in a shell, on any computer. It needs no network address, token or file there.

    `shell` is an open shell, which the caller closes, or a function that opens one for each owner, which the
    sandbox closes. All programs share an open shell and its files, regardless of their owner.

    `engines` are commands of the shell by language: Python 3.11 or later; for TypeScript, Deno 2.9 or, if the command
    contains "node", Node 20 or later. The defaults are `python3`, and `deno` or else `node`. `containment` defaults to
    the shell's. `cpu_seconds` limits the processor time of a guest by `ulimit`, and Python's memory is limited in the
    same way. The numbers of `Limits` are not enforced, so they must be accepted as unenforced.

    `bridge` is "pipe" if the shell has standard input for commands. Otherwise a program is a file and a command, and
    calls tools over a bridge of the Corral such as `HttpBridge`, with a token in its environment. Over `GrpcBridge`,
    Python needs grpcio there. If `shell` is a function, its shells must have standard input unless `bridge` names such
    a protocol.

    Raises:
        ConfigError: the shell cannot run programs, or has no standard input although `bridge` is "pipe".
    """

    name: ClassVar[str] = "shell"
    languages: ClassVar[frozenset[Language]] = frozenset({"python", "typescript"})

    @checked
    def __init__(
        self,
        shell: Shell | Callable[[], Awaitable[Shell]],
        *,
        engines: Mapping[Language, str] | None = None,
        containment: ContainmentKind | None = None,
        cpu_seconds: int = 60,
        executions_at_once: int = 8,
        bridge: str | None = None,
    ) -> None:
        self.executions_at_once = executions_at_once
        super().__init__()
        self._shell = shell
        self._engines: dict[Language, str | None] = dict(engines or {"python": "python3", "typescript": None})
        self._found: WeakKeyDictionary[Shell, str] = WeakKeyDictionary()
        self._cpu_seconds = cpu_seconds
        if isinstance(shell, Shell):
            self._bridges = _bridges(bridge, stdin=shell.capabilities.stdin)
            self._check(shell)
            self.containment = containment or shell.capabilities.containment
        else:
            self._bridges = _bridges(bridge, stdin=True)
            self.containment = containment or ContainmentKind.of_tier("none")

    @property
    def capabilities(self) -> Capabilities:
        own = super().capabilities
        return replace(own, languages=frozenset(self._engines), bridges=self._bridges)

    async def start(self, config: SandboxConfig) -> Sandbox:
        if _PIPE in self._bridges:
            return await super().start(config)
        self.check_tier(config)
        place = await self.reserve(config)

        def leave(lost: bool) -> None:
            if lost:
                place.box.retire()
            place.leave()

        try:
            engine = await self._engine(place.box.content, config)
        except BaseException:
            leave(False)
            raise
        return _ExecuteOnlySandbox(place.box.content, config, self._limited(config), engine, self.containment, leave)

    async def open(self, config: SandboxConfig) -> Shell:
        del config
        if isinstance(self._shell, Shell):
            return self._shell
        shell = await self._shell()
        try:
            self._check(shell)
        except ConfigError:
            await shell.aclose()
            raise
        return shell

    async def close(self, box: Shell) -> None:
        if box is not self._shell:
            await box.aclose()

    async def connect_in(self, box: Shell, config: SandboxConfig, guest: GuestFiles) -> GuestChannel:
        engine = await self._engine(box, config)
        if is_node(engine):
            guest = node_files(config)
        source = base64.b64encode(guest.files[guest.main]) + b"\n"
        start = _node if is_node(engine) else _COMMANDS[config.language]
        command = start(engine, guest, len(source))
        process = await box.spawn(f"{self._limited(config)}; {command}", env=guest.environment, stdin=True)
        channel = _LineChannel(process)
        try:
            await process.write(source)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await channel.aclose()
            raise
        return channel

    async def _engine(self, shell: Shell, config: SandboxConfig) -> str:
        """Returns the engine's command for a language. Looks it up once for each shell.

        Raises:
            StartFailed: the shell has no engine for TypeScript.
        """
        engine = self._engines[config.language] or self._found.get(shell)
        if engine is None:
            engine = self._found[shell] = (await shell.run(_FIND)).stdout.strip()
        if not engine:
            raise StartFailed(
                "ShellSandbox: the shell has no engine for TypeScript: install Deno 2.9, or Node from 20 on, there, "
                'name it with engines={"typescript": ...}, or run programs in Python'
            )
        return engine

    def _limited(self, config: SandboxConfig) -> str:
        own = _OWN_DATA_MB[config.language]
        data = "" if own is None else f"; ulimit -d {(config.memory_mb + own) * 1024}"
        return f"ulimit -c 0; ulimit -t {self._cpu_seconds}{data}"

    def _check(self, shell: Shell) -> None:
        name, has = type(shell).__name__, shell.capabilities
        if not has.real_processes:
            raise ConfigError(f"ShellSandbox: {name} cannot run programs, so it has no engine; use another shell")
        if _PIPE in self._bridges and not has.stdin:
            raise ConfigError(
                f"ShellSandbox: {name} has no standard input for commands, over which programs call tools; have them "
                'call over HTTP: ShellSandbox(..., bridge="http") and Corral(bridge=HttpBridge(url=...))'
            )


def _bridges(bridge: str | None, *, stdin: bool) -> frozenset[str]:
    """Returns the protocols by which programs can call tools: the given one, or those that the shell supports."""
    if bridge is not None:
        return frozenset({bridge})
    return frozenset({_PIPE}) if stdin else _WEB_PROTOCOLS


def _python(engine: str, guest: GuestFiles, source_bytes: int) -> str:
    del source_bytes
    options = shlex.join([*guest.options, "-c", _PYTHON, "--lines"])
    return f"exec {shlex.quote(engine)} {options}"


def _deno(engine: str, guest: GuestFiles, source_bytes: int) -> str:
    """Path of the script, because the engine can only read it from a path: here, from a deleted file."""
    options = shlex.join([*guest.options, "--ext=js", "/dev/fd/3", "--lines"])
    file = 'f=$(mktemp) && exec 3<>"$f" && rm "$f"'
    return f"{file} && head -c {source_bytes} | base64 -d >&3 && exec {shlex.quote(engine)} {options}"


def _node(engine: str, guest: GuestFiles, source_bytes: int) -> str:
    del source_bytes
    return f"exec {shlex.quote(engine)} {shlex.join([*guest.options, '-e', _NODE, '--', '--lines'])}"


_COMMANDS: Mapping[Language, Callable[[str, GuestFiles, int], str]] = {"python": _python, "typescript": _deno}


class _LineChannel(GuestChannel):
    """Channel of frames as lines of base64 over a command's streams."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._errors = bytearray()
        self._errors_end = anyio.Event()
        self._draining = anyio.CancelScope()
        spawn(self._drain)

    async def send(self, data: bytes) -> None:
        await self._process.write(base64.b64encode(data) + b"\n")

    async def received(self) -> AsyncIterator[bytes]:
        line = b""
        async for piece in self._process.stdout:
            *ended, line = (line + piece).split(b"\n")
            complete = len(line) // 4 * 4  # a line has no maximum length, so it is decoded as it arrives
            try:
                yield b"".join(binascii.a2b_base64(each, strict_mode=True) for each in [*ended, line[:complete]])
            except binascii.Error as error:
                raise ValueError("the guest's output is not base64") from error
            line = line[complete:]

    async def post_mortem(self) -> PostMortem:
        code = await self._process.wait()
        await self._errors_end.wait()
        text = self._errors.decode(errors="replace")
        return PostMortem(status=_SIGNALS - code if code > _SIGNALS else code, stderr=text)

    async def aclose(self) -> None:
        self._draining.cancel()
        with anyio.CancelScope(shield=True):
            await self._process.aclose()

    async def _drain(self) -> None:
        """Reads standard error, so that the guest does not block."""
        try:
            with self._draining:
                async for piece in self._process.stderr:
                    self._errors += piece
                    del self._errors[:-_STDERR_BYTES]
        except Exception as error:  # the end of the output will show the reason
            self._errors += f"\n{error}".encode()
        finally:
            self._errors_end.set()


class DaytonaSandbox(ShellSandbox):
    """Runs programs in Daytona sandboxes."""

    name: ClassVar[str] = "daytona"

    def __init__(self) -> None:
        super().__init__(DaytonaShell.create, containment=ContainmentKind("daytona", "kernel"))


class E2BSandbox(ShellSandbox):
    """Runs programs in E2B sandboxes."""

    name: ClassVar[str] = "e2b"

    def __init__(self) -> None:
        super().__init__(E2BShell.create, containment=ContainmentKind("e2b", "vm"))


class VercelSandbox(ShellSandbox):
    """Runs programs in Vercel Sandboxes."""

    name: ClassVar[str] = "vercel"

    def __init__(self) -> None:
        super().__init__(VercelShell.create, containment=ContainmentKind("vercel", "vm"))
