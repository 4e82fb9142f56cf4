"""`JailedShell`: commands in a jail, and files with quotas."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Self

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.audit import AuditLog
from corral.concurrency.task_owned import TaskOwnedContext
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment import ContainmentKind, Space, Tier, reaches
from corral.errors import ConfigError, FileError, LimitNotEnforceable, ShellError, StartFailed
from corral.jail import LauncherClient
from corral.jail.commands import COMMAND_BYTES
from corral.jail.jail import reasons_by_tier, unavailable_reason
from corral.jail.process import ContainedProcess
from corral.jail.spaces import LauncherSpaces
from corral.sessions import Mount, OpenSession, Scratch, SessionFiles, open_session
from corral.sessions.shell import FileInfo, Files, Process, Shell, ShellCapabilities, ShellLimitName, ShellLimits
from corral.sessions.skills import SkillSet
from corral.sessions.text_files import MAX_READ_BYTES
from corral.shells.jails.tiers import CommandJail, CommandNetwork, LandlockJail, NamespaceJail
from corral.shells.jails.watch import CommandWatch
from corral.shells.processes import PipeProcess, checked_environment, expect_command
from corral.types import ExecutionContext, SandboxConfig

_TIERS: tuple[Tier, ...] = ("namespaces", "landlock")
TEMPORARY = Mount("/tmp", Scratch(bytes=64_000_000, files=5_000))  # noqa: S108
"""Directory for temporary files. It persists between commands."""
_PROBE_SECONDS = 20.0


class _ShellHost(LauncherSpaces):
    """Makes the spaces of sessions for shells of one tier. Thread-safe."""

    def __init__(self, launcher: LauncherClient, tier: Tier) -> None:
        super().__init__(launcher)
        self.tier: Tier = tier
        self._shells: dict[Space, _SpaceShell] = {}

    async def placement(self, config: SandboxConfig) -> Tier:  # noqa: ARG002
        """Returns the tier in which commands run."""
        return self.tier

    async def prepare_space(self, config: SandboxConfig) -> None:
        """Does nothing, because commands need no preparation."""

    def add(self, space: Space, shell: _SpaceShell) -> None:
        """Registers a shell, so that `forget` ends its commands."""
        self._shells[space] = shell

    def forget(self, space: Space) -> None:
        """Ends all commands in this space, and frees its resources."""
        shell = self._shells.pop(space, None)
        if shell is not None:
            shell.close()


async def open_shell(
    launcher: LauncherClient,
    open_: Callable[[_ShellHost], Awaitable[OpenSession]],
    limits: ShellLimits,
    *,
    required_tier: Tier = "none",
    env: Mapping[str, str] | None = None,
    network: object = None,
    audit: AuditLog | None = None,
) -> tuple[OpenSession, _SpaceShell]:
    """Opens a session with `open_`, and a shell in it, in the best tier that works and that `limits` allow.

    Commands have no network unless `network` is a `CommandNetwork`.

    Raises:
        ConfigError: see `open_`. LimitNotEnforceable: that tier does not enforce a limit that must be enforced.
        StartFailed: commands cannot be contained here.
    """
    tiers: list[Tier] = [tier for tier in _TIERS if limits.tier in ("auto", tier) and reaches(tier, required_tier)]
    reasons = [] if tiers else [(limits.tier, f"it is below the required tier {required_tier!r}")]
    for tier in tiers:
        host = _ShellHost(launcher, tier)
        session: OpenSession | None = None
        shell: _SpaceShell | None = None
        try:
            if (lacking := unavailable_reason(tier)) is not None:
                raise StartFailed(lacking)
            session = await open_(host)
            shell = _SpaceShell(host, session, limits, env)
            if isinstance(network, CommandNetwork):
                await shell.open_network(network, audit)
            await shell.probe()
            limits.expect_accepted(tier, shell.unenforced)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                if shell is not None:
                    await shell.aclose()
                if session is not None:
                    await session.aclose()
            if isinstance(error, StartFailed):
                reasons.append((tier, str(error)))
                continue
            if isinstance(error, LimitNotEnforceable) and reasons:
                raise LimitNotEnforceable(f"{error}. {reasons_by_tier(reasons)}") from error
            raise
        return session, shell
    raise StartFailed(f"commands cannot be contained here. {reasons_by_tier(reasons)}")


class _SpaceShell(Shell):
    """Shell whose commands run in the space of an open session.

    Raises:
        StartFailed: the system lacks something that the tier needs.
    """

    def __init__(
        self, host: _ShellHost, session: OpenSession, limits: ShellLimits, env: Mapping[str, str] | None = None
    ) -> None:
        space = session.space
        self._session = session
        self._space = space
        self._limits = limits
        self._env = checked_environment(env or {})
        unenforced: set[ShellLimitName] = set() if session.exact_quota else {"disk"}
        if host.tier == "landlock" and not space.own_user:
            unenforced.add("processes")
        if not space.overlaid:
            unenforced.add("locks")
        kind = LandlockJail if host.tier == "landlock" else NamespaceJail
        self._jail: CommandJail = kind(host.launcher, space, limits)
        self.unenforced: frozenset[ShellLimitName] = frozenset(unenforced)
        self._proxy: TaskOwnedContext | None = None
        self._files = _SpaceFiles(session.files, space, self._jail)
        self._live: set[_JailedProcess] = set()
        self._watch = CommandWatch(
            limits.memory_mb << 20,
            limits.processes,
            session.quotas,
            end_by=signal.SIGTERM if host.tier == "landlock" else signal.SIGKILL,
        )
        self._variant = 0
        self._starting = 0
        self._closed = False
        self._allowed: tuple[str, ...] = ()
        self.description = self._described()
        host.add(space, self)

    def _described(self) -> str:
        jail, home = self._jail, self._space.home
        mounts = ", ".join(
            f"{jail.place(bind)} ({'writable' if bind.writable else 'read-only'})" for bind in self._space.binds
        )
        network = (
            f"network only to {', '.join(self._allowed)}, through the proxy in the environment"
            if self._allowed
            else "no network"
        )
        unbounded = f"not limited: {', '.join(sorted(self.unenforced))}; " if self.unenforced else ""
        where = next((jail.place(bind) for bind in self._space.binds if bind.inside == home), home)
        return (
            f"A Linux shell {jail.seen} on this machine: bash, coreutils and whatever else the host has in /usr; "
            f"directories {mounts}; {network}; {unbounded}working directory {where}."
        )

    async def open_network(self, network: CommandNetwork, audit: AuditLog | None) -> None:
        """Gives commands access to the origins of a network only, through a proxy that no one else can reach.

        Raises:
            StartFailed: network namespaces do not work here.
        """
        if not network.origins:
            return
        listener, certificate = await self._jail.open_network()
        self._proxy = TaskOwnedContext(
            _serving(network.serve_commands(listener, self._session.context, audit), certificate)
        )
        await self._proxy.open()
        self._allowed = network.origins
        self.description = self._described()

    @property
    @override
    def files(self) -> Files:
        return self._files

    @property
    @override
    def capabilities(self) -> ShellCapabilities:
        return ShellCapabilities(
            containment=ContainmentKind.of_tier(self._jail.tier),
            network="allowed" if self._allowed else "none",
            links=False,
            unenforced=self.unenforced,
        )

    async def probe(self) -> None:
        """Runs a test command, in each variant of the jail until one works.

        Raises:
            StartFailed: no command can run here.
        """
        with anyio.move_on_after(_PROBE_SECONDS):
            reason = ""
            for variant in range(self._jail.variants):
                self._variant = variant
                try:
                    done = await self.run("exit 0", timeout_seconds=None)
                except StartFailed as error:
                    reason = str(error)
                    continue
                if done.exit_code == 0:
                    return
                reason = done.stderr.strip() or f"exit code {done.exit_code}"
            raise StartFailed(f"a test command failed: {reason}")
        raise StartFailed(f"a test command did not end within {_PROBE_SECONDS:g} s")

    @override
    async def spawn(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None, stdin: bool = False
    ) -> Process:
        expect_command(command, cwd)
        if len(os.fsencode(command)) > COMMAND_BYTES:
            raise ShellError(f"the command is longer than {COMMAND_BYTES:,} bytes; write it to a file and run that")
        variables = {**self._jail.environment, **self._env, **checked_environment(env or {})}
        where = await self._folder(cwd)
        if self._closed:
            raise ConfigError("this shell is closed; open another one")
        self._live = {each for each in self._live if not each.ended}
        if len(self._live) + self._starting >= self._limits.commands:
            raise ShellError(
                f"{len(self._live)} commands are running, the maximum of ShellLimits(commands=...); end some first"
            )
        self._starting += 1
        try:
            await self._watch.measure_quotas(anew=not self._live and self._starting == 1)
            contained = await self._jail.start(command, where, variables, self._variant)
        finally:
            self._starting -= 1
        self._session.files.host_has_written = True  # so that its changes are not attributed to the next program
        process = _JailedProcess(contained, stdin=stdin)
        self._live.add(process)
        first = contained.first_process()
        if first is not None:
            self._watch.add(contained.pid, first, process)
        if self._closed:
            process.close()
        return process

    def close(self) -> None:
        """Ends all commands without waiting. Idempotent."""
        self._closed = True
        for process in self._live:
            process.close()
        self._live.clear()
        self._watch.close()
        self._jail.close()

    @override
    async def aclose(self) -> None:
        """Ends all commands. The directories belong to the session, and stay."""
        live = [*self._live]
        for process in live:
            await process.kill()
        if self._proxy is not None:
            await self._proxy.aclose()
        self.close()

    async def _folder(self, cwd: str | None) -> str:
        """Returns the absolute path by which commands see a folder.

        Raises:
            FileError: the folder does not exist.
        """
        path = PurePosixPath(self._jail.inside(str(PurePosixPath(self._space.home, cwd or ""))))
        for bind in self._space.binds:
            if path.is_relative_to(bind.inside):
                info = await self._files.stat(str(path))
                if info is not None and info.kind == "directory":
                    return str(PurePosixPath(self._jail.place(bind), path.relative_to(bind.inside)))
                break
        else:
            if str(path) in ("/", "/usr") or (path.is_relative_to("/usr") and await anyio.Path(path).is_dir()):
                return str(path)
        raise FileError(f"{cwd}: there is no such folder to run the command in")


class JailedShell(Shell):
    """Shell with its own directories: commands run this machine's programs in a jail, without its files and network.

    Open it with `async with`. `files` are mounts, as in `Corral.session`; /tmp is a scratch directory unless it is a
    mount. The directories are removed with the shell. `network` is a `corral.egress.Network` with the origins that
    commands can reach; with None, they have no network.

    Raises:
        ConfigError: mounts conflict, or a name in `env` is invalid. LimitNotEnforceable: on entering, if the jail that
        works here does not enforce a limit that must be enforced. StartFailed: on entering, if commands cannot be
        contained here.
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
        self._mounts = _with_temporary(files)
        self._limits = limits or ShellLimits()
        self._environment = checked_environment(env or {})
        self._network = network
        self._launcher = LauncherClient()
        self._session: OpenSession | None = None
        self._shell: _SpaceShell | None = None

    @override
    async def __aenter__(self) -> Self:
        if self._shell is not None:
            raise ConfigError("this shell is already open")
        try:
            self._session, self._shell = await open_shell(
                self._launcher,
                lambda host: open_session(
                    ExecutionContext(), self._mounts, {}, SkillSet(), commands=(host, SandboxConfig())
                ),
                self._limits,
                env=self._environment,
                network=self._network,
            )
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise
        self.description = self._shell.description
        return self

    @property
    def _open(self) -> _SpaceShell:
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
        await run_shielded_in_thread(self._launcher.close)


class _JailedProcess(PipeProcess):
    """A command in a jail."""

    def __init__(self, contained: ContainedProcess, *, stdin: bool) -> None:
        input_, output, errors = contained.take_streams()
        super().__init__(input_ if stdin else None, output, errors)
        if not stdin:
            os.close(input_)
        self._contained = contained
        self.pid = contained.pid or None
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
    """Adapts the files of a session to the contract of a shell."""

    def __init__(self, files: SessionFiles, space: Space, jail: CommandJail) -> None:
        self._files = files
        self._home = PurePosixPath(space.home)
        self._jail = jail

    @override
    async def read_bytes(self, path: str, *, max_bytes: int = MAX_READ_BYTES) -> bytes | None:
        return await self._files.read_bytes(self._absolute(path), max_bytes=max_bytes)

    @override
    async def read_stream(self, path: str) -> AsyncIterator[bytes] | None:
        return await self._files.read_stream(self._absolute(path))

    @override
    async def write_bytes(self, path: str, data: bytes) -> None:
        await self._files.write_bytes(self._absolute(path), data)

    @override
    async def stat(self, path: str) -> FileInfo | None:
        entry = await self._files.stat(self._absolute(path))
        return None if entry is None else FileInfo(path, entry.kind, entry.size)

    @override
    async def list(
        self, path: str = "", *, recursive: bool = False, max_entries: int = 100_000
    ) -> list[FileInfo] | None:
        absolute = self._absolute(path)
        entry = await self._files.stat(absolute)
        if entry is None:
            return None
        if entry.kind != "directory":
            raise FileError(f"{path}: it is not a folder")
        entries = await self._files.list(absolute, recursive=recursive, max_entries=max_entries)
        return [FileInfo(each.path, each.kind, each.size) for each in entries or ()]

    @override
    async def mkdir(self, path: str) -> None:
        await self._files.mkdir(self._absolute(path))

    @override
    async def delete(self, path: str) -> bool:
        return await self._files.delete(self._absolute(path))

    def _absolute(self, path: str) -> str:
        return self._jail.inside(str(self._home / path))


def _with_temporary(files: Sequence[Mount]) -> tuple[Mount, ...]:
    """Adds a mount at /tmp, unless there is one at or below it."""
    inside = any(mount.path == TEMPORARY.path or mount.path.startswith(f"{TEMPORARY.path}/") for mount in files)
    return tuple(files) if inside else (*files, TEMPORARY)


class SessionShells:
    """Shells in the directories of sessions. `Corral.session(shell=...)` finds them by an entry point."""

    mounts = staticmethod(_with_temporary)
    open = staticmethod(open_shell)
