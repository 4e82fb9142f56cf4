"""Jails of a shell's commands, one for each tier. They start commands and translate paths."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from typing_extensions import override

from corral.audit import AuditLog
from corral.concurrency.threads import run_shielded_in_thread
from corral.containment import Bind, Space, Tier
from corral.errors import StartFailed
from corral.jail import LauncherClient, Plan
from corral.jail.commands import (
    command_environment,
    command_options,
    command_plan,
    command_ruleset,
    make_devices,
    supervised_environment,
    supervised_options,
    supervised_plan,
    write_etc,
)
from corral.jail.process import ContainedProcess
from corral.jail.temporary import TemporaryFolder
from corral.sessions.shell import ShellLimits
from corral.types import ExecutionContext

PORT = 3128
_CERTIFICATE = "session-ca.pem"
"""File in /etc with the certificate of the session's authority."""


@runtime_checkable
class CommandNetwork(Protocol):
    """Network for a shell's commands, such as a `corral.egress.Network`."""

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins that commands can reach. If empty, commands have no network."""
        ...

    def serve_commands(
        self, listener: socket.socket, context: ExecutionContext, audit: AuditLog | None, /
    ) -> AbstractAsyncContextManager[bytes]:
        """Serves a proxy on the listener during the block; yields the certificate to trust."""
        ...


def _proxy_environment() -> dict[str, str]:
    """Returns environment variables by which curl, git, pip, npm, Python and others find the proxy and trust its
    certificates."""
    proxy, local, certificate = f"http://127.0.0.1:{PORT}", "localhost,127.0.0.1,::1", f"/etc/{_CERTIFICATE}"
    variables = {"NODE_USE_ENV_PROXY": "1"}
    for name, value in (("http_proxy", proxy), ("https_proxy", proxy), ("all_proxy", proxy), ("no_proxy", local)):
        variables |= {name: value, name.upper(): value}
    trusting = (
        "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "NODE_EXTRA_CA_CERTS",
        "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT",
    )  # fmt: skip
    return variables | dict.fromkeys(trusting, certificate)


class CommandJail(ABC):
    """Starts commands in a space.

    Raises:
        StartFailed: the system lacks a feature that it needs.
    """

    tier: Tier
    environment: dict[str, str]
    """Environment of all commands."""
    variants = 1
    """Number of ways to start commands. A later way can work where earlier ones fail."""
    seen = "in a jail"

    def __init__(self, launcher: LauncherClient, space: Space) -> None:
        self._launcher = launcher
        self._space = space
        self._plan: Plan

    def place(self, bind: Bind) -> str:
        """Returns the path at which commands see a directory."""
        return bind.inside

    def inside(self, path: str) -> str:
        """Translates a command's path to the session's."""
        return path

    @abstractmethod
    async def start(self, command: str, cwd: str, env: Mapping[str, str], variant: int) -> ContainedProcess:
        """Starts a command in a directory, whose path is as commands see it.

        Raises:
            StartFailed: the command cannot be started.
        """

    async def open_network(self) -> tuple[socket.socket, Path]:
        """Returns a listening socket that only commands can reach, and the path of the certificates that they trust.

        Raises:
            StartFailed: commands cannot have a network here.
        """
        raise StartFailed(
            f"commands in the tier {self.tier!r} have no network; it needs namespaces, in which the proxy listens"
        )

    def close(self) -> None:
        """Frees its resources. Call it after its commands have ended."""
        self._launcher.forget([self._plan])

    async def _start(
        self, options: bytes, started: Callable[[ContainedProcess], Awaitable[object]]
    ) -> ContainedProcess:
        """Starts a command, and waits until it has `started`."""
        contained = self._spawn(options)
        try:
            await started(contained)
        except BaseException:
            contained.close()
            raise
        return contained

    def _spawn(self, options: bytes) -> ContainedProcess:
        try:
            descriptor = os.memfd_create("options", os.MFD_CLOEXEC)
        except OSError as error:
            raise StartFailed(f"cannot start a command: memfd_create: {error.strerror}") from error
        try:
            os.write(descriptor, options)
            os.lseek(descriptor, 0, os.SEEK_SET)
            return ContainedProcess.spawn(self._launcher, self._plan, options=descriptor)
        except OSError as error:
            raise StartFailed(f"cannot start a command: {error.strerror or error}") from error
        finally:
            os.close(descriptor)


class NamespaceJail(CommandJail):
    """Jail of new namespaces for each command, made by bubblewrap."""

    tier = "namespaces"
    variants = 2
    """The second way does without a new /proc, which cannot be mounted everywhere."""

    def __init__(self, launcher: LauncherClient, space: Space, limits: ShellLimits) -> None:
        super().__init__(launcher, space)
        self._limits = limits
        self._network: int | None = None
        self._plan = self._planned()
        self.environment = command_environment(space.home)
        self._own = TemporaryFolder()
        for name in ("etc", "dev"):
            (self._own.path / name).mkdir()
            (self._own.path / name).chmod(0o755)
        write_etc(self._own.path / "etc", space.home)
        make_devices(self._own.path / "dev")

    def _planned(self) -> Plan:
        limits = self._limits
        return command_plan(
            self._space,
            processes=limits.processes,
            memory_bytes=limits.memory_mb << 20,
            file_bytes=limits.file_bytes,
            network=self._network,
        )

    @override
    async def start(self, command: str, cwd: str, env: Mapping[str, str], variant: int) -> ContainedProcess:
        options = command_options(
            self._space,
            self._own.path,
            proc=variant == 0,
            command=command,
            cwd=cwd,
            env=env,
            trusted=None if self._network is None else self._own.path / "etc" / _CERTIFICATE,
        )
        return await self._start(options, ContainedProcess.await_wrapped)

    @override
    async def open_network(self) -> tuple[socket.socket, Path]:
        space, make = self._space, self._launcher.make_network
        if space.namespaces is None:
            raise StartFailed("commands have a network only if the session's directories are in namespaces")
        owner, user = space.namespaces[0], space.user
        self._network, listener = await run_shielded_in_thread(lambda: make(owner, user, PORT))
        self._plan = self._planned()
        self.environment |= _proxy_environment()
        return listener, self._own.path / "etc" / _CERTIFICATE

    @override
    def close(self) -> None:
        super().close()
        self._own.close()
        if self._network is not None:
            os.close(self._network)
            self._network = None


class LandlockJail(CommandJail):
    """Jail of Landlock rules, with a supervisor for each command, without namespaces."""

    tier = "landlock"
    seen = "in a jail without namespaces, by the paths of the host,"

    def __init__(self, launcher: LauncherClient, space: Space, limits: ShellLimits) -> None:
        super().__init__(launcher, space)
        self._ruleset = command_ruleset(space)
        self._plan = supervised_plan(
            space,
            self._ruleset,
            processes=(limits.processes + 1) * limits.commands,  # and their supervisors
            memory_bytes=limits.memory_mb << 20,
            file_bytes=limits.file_bytes,
        )
        self.environment = supervised_environment(space)

    @override
    def place(self, bind: Bind) -> str:
        return bind.source

    @override
    def inside(self, path: str) -> str:
        for bind in self._space.binds:
            if path == bind.source or path.startswith(f"{bind.source}/"):
                return bind.inside + path.removeprefix(bind.source)
        return path

    @override
    async def start(self, command: str, cwd: str, env: Mapping[str, str], variant: int) -> ContainedProcess:
        return await self._start(supervised_options(command, cwd, env), ContainedProcess.await_born)

    @override
    def close(self) -> None:
        super().close()
        if self._ruleset >= 0:
            os.close(self._ruleset)
            self._ruleset = -1
