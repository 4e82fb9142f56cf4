"""`JailedShell`: commands in namespaces of their own, and files that quotas of the kernel bound."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Self

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.audit import AuditLog
from corral.concurrency.task_owned import TaskOwnedContext
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment import LauncherClient, Plan
from corral.containment.commands import (
    COMMAND_BYTES,
    command_environment,
    command_options,
    command_plan,
    write_etc,
)
from corral.containment.process import ContainedProcess
from corral.containment.temporary import TemporaryFolder
from corral.errors import ConfigError, FileError, ShellError, StartFailed
from corral.isolation import Isolation, Space
from corral.sessions import Mount, OpenSession, Scratch, SessionFiles, open_session
from corral.sessions.text_files import MAX_READ_BYTES
from corral.shells.base import Process, Shell, ShellCapabilities
from corral.shells.environment import checked_environment, expect_command
from corral.shells.files import FileInfo, Files
from corral.shells.network import CERTIFICATE, PORT, CommandNetwork, proxy_environment
from corral.shells.pipes import PipeProcess
from corral.shells.watch import CommandWatch
from corral.skills import SkillSet
from corral.types import ExecutionContext, SandboxConfig, Tier

__all__ = ["JailedShell", "ShellHost", "ShellLimits", "SpaceShell", "with_temporary"]

TEMPORARY = Mount("/tmp", Scratch(bytes=64_000_000, files=5_000))  # noqa: S108
"""Directory for temporary files, which outlives a command."""
_PROBE_SECONDS = 20.0


@checked
@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLimits:
    """Bounds of commands.

    `processes` are those of one command. `memory_mb` is what each process may ask for, and what all commands of the
    shell may have together, looked at ten times a second; then they are ended. `commands` run at the same time.

    Raises:
        ConfigError: one of them is not positive.
    """

    processes: int = 64
    memory_mb: int = 1024
    commands: int = 16
    file_bytes: int = 1_000_000_000

    def __post_init__(self) -> None:
        if min(self.processes, self.memory_mb, self.commands, self.file_bytes) < 1:
            raise ConfigError(f"{self}: each must be positive")


class ShellHost:
    """Starts commands in the spaces of sessions, by one launcher. Thread-safe."""

    def __init__(self) -> None:
        self._launcher = LauncherClient()
        self._shells: dict[Space, SpaceShell] = {}

    @property
    def launcher(self) -> LauncherClient:
        return self._launcher

    async def placement(self, config: SandboxConfig) -> Tier:  # noqa: ARG002
        """The tier of commands."""
        return "namespaces"

    async def starts_as_nobody(self, config: SandboxConfig) -> bool:  # noqa: ARG002
        """True: what commands read of the host is the system's."""
        return True

    async def make_space(
        self, sizes: Sequence[tuple[int, int]], place: Path, user: int | None, *, executable: bool = False
    ) -> list[int]:
        """As `LauncherClient.make_space`."""
        return await run_shielded_in_thread(
            partial(self._launcher.make_space, sizes, place, user, executable=executable)
        )

    async def prepare_space(self, config: SandboxConfig) -> None:
        """Does nothing: each command starts anew."""

    def add(self, space: Space, shell: SpaceShell) -> None:
        """Has `forget` end this shell's commands."""
        self._shells[space] = shell

    def forget(self, space: Space) -> None:
        """Ends all commands in this space, and lets go of all that is kept for it."""
        shell = self._shells.pop(space, None)
        if shell is not None:
            shell.close()

    def close(self) -> None:
        """Ends the launcher, and with it all commands. Idempotent."""
        self._launcher.close()


class SpaceShell(Shell):
    """Commands in the space of an open session."""

    def __init__(
        self, host: ShellHost, session: OpenSession, limits: ShellLimits, env: Mapping[str, str] | None = None
    ) -> None:
        space = session.space
        self._host = host
        self._session = session
        self._space = space
        self._limits = limits
        self._given = checked_environment(env or {})
        self._env = {**command_environment(space.home), **self._given}
        self._etc = TemporaryFolder()
        write_etc(self._etc.path, space.home)
        self._network: int | None = None
        self._plan = self._planned()
        self._proxy: TaskOwnedContext | None = None
        self._files = _SpaceFiles(session.files, space)
        self._live: set[JailedProcess] = set()
        self._watch = CommandWatch(limits.memory_mb << 20, limits.processes)
        self._proc = True
        self._closed = False
        programs = "bash, coreutils and what else is installed in /usr of the host"
        mounts = ", ".join(f"{bind.inside} ({'writable' if bind.writable else 'read-only'})" for bind in space.binds)
        self._seen = f"A Linux shell in a jail on this machine: {programs}; directories {mounts}"
        self.description = f"{self._seen}; no network; working directory {space.home}."
        host.add(space, self)

    async def open_network(self, network: CommandNetwork, audit: AuditLog | None) -> None:
        """Lets commands reach the origins of this network, and nothing else, by a proxy that only they reach.

        Raises:
            StartFailed: no network namespace can be made here.
        """
        if not network.origins:
            return
        space, make = self._space, self._host.launcher.make_network
        if space.namespaces is None:
            raise StartFailed("commands have a network only where the session's directories are in namespaces")
        self._network, listener = await run_shielded_in_thread(partial(make, space.namespaces[0], space.user, PORT))
        certificate = self._etc.path / CERTIFICATE
        self._proxy = TaskOwnedContext(
            _serving(network.serve_commands(listener, self._session.context, audit), certificate)
        )
        await self._proxy.open()
        self._plan = self._planned()
        self._env = {**command_environment(space.home), **proxy_environment(), **self._given}
        self.description = (
            f"{self._seen}; network by a proxy, which the environment names, to {', '.join(network.origins)} only; "
            f"working directory {space.home}."
        )

    def _planned(self) -> Plan:
        limits = self._limits
        return command_plan(
            self._space,
            processes=limits.processes,
            memory_bytes=limits.memory_mb << 20,
            file_bytes=limits.file_bytes,
            network=self._network,
        )

    @property
    @override
    def files(self) -> Files:
        return self._files

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        network = "none" if self._network is None else "allowed"
        return ShellCapabilities(isolation=Isolation.of_tier("namespaces"), network=network, links=False)

    async def probe(self) -> None:
        """Runs a first command, without /proc if a new one cannot be mounted here.

        Raises:
            StartFailed: no command can run in namespaces here.
        """
        with anyio.move_on_after(_PROBE_SECONDS):
            reason = ""
            for self._proc in (True, False):
                try:
                    done = await self.run("exit 0", timeout_seconds=None)
                except StartFailed as error:
                    reason = str(error)
                    continue
                if done.exit_code == 0:
                    return
                reason = done.stderr.strip() or f"exit code {done.exit_code}"
            raise StartFailed(f"commands cannot be contained here: {reason}")
        raise StartFailed(f"a first command did not end within {_PROBE_SECONDS:g} s")

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        expect_command(command, cwd)
        if len(os.fsencode(command)) > COMMAND_BYTES:
            raise ShellError(f"a command has {COMMAND_BYTES} bytes at most; write it into a file, and run that")
        variables = {**self._env, **checked_environment(env or {})}
        where = await self._folder(cwd)
        if self._closed:
            raise ConfigError("this shell is closed")
        self._live = {each for each in self._live if not each.ended}
        if len(self._live) >= self._limits.commands:
            raise ShellError(
                f"{len(self._live)} commands are running, which is ShellLimits(commands=...); end some of them first"
            )
        options = command_options(
            self._space,
            self._etc.path,
            proc=self._proc,
            command=command,
            cwd=where,
            env=variables,
            trusted=None if self._network is None else self._etc.path / CERTIFICATE,
        )
        contained = _start(self._host.launcher, self._plan, options)
        self._session.files.host_has_written = True  # what it changes is not the next program's doing
        process = JailedProcess(contained, stdin=stdin)
        self._live.add(process)
        try:
            await contained.await_wrapped()
        except BaseException:
            process.close()
            self._live.discard(process)
            raise
        first = contained.first_process()
        if first is not None:
            self._watch.add(contained.pid, first, process)
        return process

    def close(self) -> None:
        """Ends all commands at once. Idempotent."""
        self._closed = True
        for process in self._live:
            process.close()
        self._live.clear()
        self._watch.close()
        self._host.launcher.forget([self._plan])
        self._etc.close()
        if self._network is not None:
            os.close(self._network)
            self._network = None

    @override
    async def aclose(self) -> None:
        """Ends all commands; the directories are the session's."""
        live = [*self._live]
        for process in live:
            await process.kill()
        if self._proxy is not None:
            await self._proxy.aclose()
        self.close()

    async def _folder(self, cwd: str | None) -> str:
        """A folder for a command, as an absolute path.

        Raises:
            FileError: there is none.
        """
        path = PurePosixPath(self._space.home, cwd or "")
        for bind in self._space.binds:
            if path.is_relative_to(bind.inside):
                found = await self._files.stat(str(path))
                there = found is not None and found.kind == "directory"
                break
        else:
            there = str(path) in ("/", "/usr") or (path.is_relative_to("/usr") and await anyio.Path(path).is_dir())
        if not there:
            raise FileError(f"{cwd}: there is no such folder to run the command in")
        return str(path)


class JailedShell(Shell):
    """A shell with directories of its own: the programs of this machine, in namespaces, without its files and network.

    Open it with `async with`. `files` are as those of `Corral.session`; without a mount at /tmp there is a scratch
    directory. The directories end with the shell. `network` is a `corral.egress.Network` of origins that commands
    reach; None: they have no network.

    Raises:
        ConfigError: the mounts do not fit together, or a name in `env` is none.
        StartFailed: on entering: commands cannot be contained here.
    """

    @checked
    def __init__(
        self,
        files: Sequence[Mount] = (Mount("/workspace"),),
        *,
        limits: ShellLimits | None = None,
        env: Mapping[str, str] | None = None,
        network: CommandNetwork | None = None,
    ) -> None:
        self._mounts = with_temporary(files)
        self._limits = limits or ShellLimits()
        self._environment = checked_environment(env or {})
        self._network = network
        self._host = ShellHost()
        self._session: OpenSession | None = None
        self._shell: SpaceShell | None = None

    @override
    async def __aenter__(self) -> Self:
        if self._shell is not None:
            raise ConfigError("this shell is open already")
        try:
            self._session = await open_session(
                ExecutionContext(), self._mounts, {}, SkillSet(), commands=(self._host, SandboxConfig())
            )
            self._shell = SpaceShell(self._host, self._session, self._limits, self._environment)
            if self._network is not None:
                await self._shell.open_network(self._network, None)
            self.description = self._shell.description
            await self._shell.probe()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise
        return self

    @property
    def _open(self) -> SpaceShell:
        if self._shell is None:
            raise ConfigError("this shell is not open; use `async with JailedShell(...) as shell`")
        return self._shell

    @property
    @override
    def files(self) -> Files:
        return self._open.files

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return self._open.capabilities

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        return await self._open.spawn(command, cwd=cwd, env=env, stdin=stdin)

    @override
    async def aclose(self) -> None:
        shell, session = self._shell, self._session
        self._shell = self._session = None
        if shell is not None:
            await shell.aclose()
        if session is not None:
            await session.aclose()
        await run_shielded_in_thread(self._host.close)


class JailedProcess(PipeProcess):
    """A command in namespaces of its own."""

    def __init__(self, contained: ContainedProcess, *, stdin: bool) -> None:
        input_, output, errors = contained.take_streams()
        super().__init__(input_ if stdin else None, output, errors)
        if not stdin:
            os.close(input_)
        self._contained = contained
        self._code: int | None = None
        self._waiting = anyio.Lock()

    @property
    def ended(self) -> bool:
        """True once the command has ended."""
        return self._closed or self._code is not None or self._contained.ended

    @override
    async def wait(self) -> int:
        async with self._waiting:
            if self._code is None:
                status = await self._contained.await_gone()
                self._code = status if status >= 0 else 128 - status
                self._contained.close()
            return self._code

    @override
    async def kill(self) -> None:
        if not self._closed:
            self.end()
            await self.wait()

    @override
    def end(self) -> None:
        self._contained.kill()

    @override
    def _free(self) -> None:
        super()._free()
        self._contained.close()


@asynccontextmanager
async def _serving(proxy: AbstractAsyncContextManager[bytes], certificate: Path) -> AsyncGenerator[None]:
    async with proxy as authority:
        await anyio.Path(certificate).write_bytes(authority)
        await anyio.Path(certificate).chmod(0o644)
        yield


class _SpaceFiles(Files):
    """Files of a session, by the contract of shells."""

    def __init__(self, files: SessionFiles, space: Space) -> None:
        self._files = files
        self._home = PurePosixPath(space.home)

    @override
    async def read_binary(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        return await self._files.read_binary(self._absolute(path), max_bytes=max_bytes)

    @override
    async def read_stream(self, path: str) -> AsyncIterator[bytes] | None:
        return await self._files.read_stream(self._absolute(path))

    @override
    async def write_binary(self, path: str, data: bytes) -> None:
        await self._files.write_binary(self._absolute(path), data)

    @override
    async def stat(self, path: str) -> FileInfo | None:
        found = await self._files.stat(self._absolute(path))
        return None if found is None else FileInfo(path, found.kind, found.size)

    @override
    async def list(
        self, path: str = "", *, recursive: bool = False, max_entries: int = 100_000
    ) -> list[FileInfo] | None:
        absolute = self._absolute(path)
        found = await self._files.stat(absolute)
        if found is None:
            return None
        if found.kind != "directory":
            raise FileError(f"{path}: it is no folder")
        entries = await self._files.list(absolute, recursive=recursive, max_entries=max_entries)
        return [FileInfo(each.path, each.kind, each.size) for each in entries]

    @override
    async def make_directory(self, path: str) -> None:
        await self._files.make_directory(self._absolute(path))

    @override
    async def delete(self, path: str) -> bool:
        return await self._files.delete(self._absolute(path))

    def _absolute(self, path: str) -> str:
        return str(self._home / path)


def with_temporary(files: Sequence[Mount]) -> tuple[Mount, ...]:
    """Mounts with one at /tmp, where there is none at or below it."""
    inside = any(mount.path == TEMPORARY.path or mount.path.startswith(f"{TEMPORARY.path}/") for mount in files)
    return tuple(files) if inside else (*files, TEMPORARY)


def _start(launcher: LauncherClient, plan: Plan, options: bytes) -> ContainedProcess:
    descriptor = os.memfd_create("options", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, options)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return ContainedProcess.spawn(launcher, plan, options=descriptor)
    except OSError as error:
        raise StartFailed(f"cannot start a command: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
