"""Programs in any shell: our guest as a command of it, over the command's own standard streams."""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import ClassVar
from weakref import WeakKeyDictionary

import anyio

from corral.arguments import checked
from corral.concurrency.task_owned import spawn
from corral.errors import ConfigError, StartFailed
from corral.isolation import Isolation
from corral.sandboxes.base import Sandbox
from corral.sandboxes.channel import GuestChannel, GuestFiles, PostMortem
from corral.sandboxes.framed.boxes import BoxProvider
from corral.sandboxes.framed.guest_files import is_node, node_files
from corral.sessions.shell import Process, Shell
from corral.shells.sandboxes.execute_only import ExecuteOnlySandbox
from corral.types import Capabilities, Language, SandboxConfig

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
"""Writes the path of an engine for TypeScript."""
_PYTHON = f"{_READ_SOURCE}import base64;exec(compile(base64.b64decode(s),'guest.py','exec'))"
"""Nothing follows the line with the guest before the guest says READY."""
_OWN_DATA_MB: Mapping[Language, int | None] = {"python": 64, "typescript": None}
"""Data of the engine and the guest, above a program's memory; None: the engine reserves more than it uses."""


class ShellSandbox(BoxProvider[Shell]):
    """Runs programs in a shell, on any computer that it leads to. It needs no address, no token and no file there.

    `shell` is one that the caller opens and closes, or a function that opens one, which the sandbox then closes: each
    trust domain gets its own. Programs share a shell that is passed as it is, with its files, whatever their domain.

    `engines` are commands of the shell by language: Python from 3.11 on; for TypeScript Deno 2.9, or Node from 20 on,
    whose name has "node" in it. Without them it is `python3`, and `deno` if the shell has that, else `node`.

    `isolation` is the shell's unless given. `cpu_seconds` bounds the processor time of a guest by `ulimit`, and
    Python's memory is bounded likewise; the numbers of `Limits` are not enforced, so they are to be accepted as such.

    `bridge` is "pipe" if the shell has standard input for commands. Else a program is a file and a command, and
    calls tools over a bridge of the Corral such as `HttpBridge`, with a token in its environment. Over `GrpcBridge`,
    Python needs grpcio there. A function's shell is taken to have standard input unless `bridge` names such a protocol.

    Raises:
        ConfigError: the shell starts no programs, or has no standard input although `bridge` is "pipe".
    """

    name: ClassVar[str] = "shell"
    languages: ClassVar[frozenset[Language]] = frozenset({"python", "typescript"})

    @checked
    def __init__(
        self,
        shell: Shell | Callable[[], Awaitable[Shell]],
        *,
        engines: Mapping[Language, str] | None = None,
        isolation: Isolation | None = None,
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
            self.isolation = isolation or shell.capabilities.isolation
        else:
            self._bridges = _bridges(bridge, stdin=True)
            self.isolation = isolation or Isolation.of_tier("none")

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
            found = await self._engine(place.box.content, config)
        except BaseException:
            leave(False)
            raise
        return ExecuteOnlySandbox(place.box.content, config, self._limited(config), found, self.isolation, leave)

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
        """Returns the command of the configured language, or finds it once for each shell.

        Raises:
            StartFailed: the shell has none for TypeScript.
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
            raise ConfigError(f"ShellSandbox: {name} starts no programs, so it has no engine; take another shell")
        if _PIPE in self._bridges and not has.stdin:
            raise ConfigError(
                f"ShellSandbox: {name} has no standard input for commands, over which programs call tools; have them "
                'call over HTTP: ShellSandbox(..., bridge="http") and Corral(bridge=HttpBridge(url=...))'
            )


def _bridges(bridge: str | None, *, stdin: bool) -> frozenset[str]:
    """Protocols by which programs can call tools: the given one, or what the shell can."""
    if bridge is not None:
        return frozenset({bridge})
    return frozenset({_PIPE}) if stdin else _WEB_PROTOCOLS


def _python(engine: str, guest: GuestFiles, source_bytes: int) -> str:
    del source_bytes
    options = shlex.join([*guest.options, "-c", _PYTHON, "--lines"])
    return f"exec {shlex.quote(engine)} {options}"


def _deno(engine: str, guest: GuestFiles, source_bytes: int) -> str:
    """The engine reads a script from a path only: here a file that has no name any more."""
    options = shlex.join([*guest.options, "--ext=js", "/dev/fd/3", "--lines"])
    file = 'f=$(mktemp) && exec 3<>"$f" && rm "$f"'
    return f"{file} && head -c {source_bytes} | base64 -d >&3 && exec {shlex.quote(engine)} {options}"


def _node(engine: str, guest: GuestFiles, source_bytes: int) -> str:
    del source_bytes
    return f"exec {shlex.quote(engine)} {shlex.join([*guest.options, '-e', _NODE, '--', '--lines'])}"


_COMMANDS: Mapping[Language, Callable[[str, GuestFiles, int], str]] = {"python": _python, "typescript": _deno}


class _LineChannel(GuestChannel):
    """Frames as lines of base64 over a command's streams."""

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
            complete = len(line) // 4 * 4  # a line has no maximum length: it is decoded as it comes
            try:
                yield b"".join(binascii.a2b_base64(each, strict_mode=True) for each in [*ended, line[:complete]])
            except binascii.Error as error:
                raise ValueError("the guest's output is no base64") from error
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
        """Reads standard error, or the guest would wait."""
        try:
            with self._draining:
                async for piece in self._process.stderr:
                    self._errors += piece
                    del self._errors[:-_STDERR_BYTES]
        except Exception as error:  # the output's own end has the reason
            self._errors += f"\n{error}".encode()
        finally:
            self._errors_end.set()
