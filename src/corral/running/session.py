"""Handle of a session."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from corral.calls import ServiceSource
from corral.errors import ConfigError
from corral.packages import NpmPackages, PythonPackages
from corral.results import ExecutionResult
from corral.running import ExecutionRequest, Run
from corral.sessions import OpenSession, SessionFiles
from corral.sessions.shell import Shell
from corral.sessions.skills import SkillSet
from corral.types import ExecutionContext, Language


class _Runs(Protocol):
    def execute(self, source: str | ExecutionRequest, **options: Any) -> Awaitable[ExecutionResult]: ...
    def start(self, source: str | ExecutionRequest, **options: Any) -> AbstractAsyncContextManager[Run]: ...


class Session:
    """Files shared by programs of both languages, for one user of one organization. Opened by `Corral.session`.

    Executions of one session can overlap, and see each other's files as soon as they are written.
    """

    def __init__(
        self,
        corral: _Runs,
        opened: OpenSession,
        *,
        modules: NpmPackages | None = None,
        packages: PythonPackages | None = None,
        network: ServiceSource | None = None,
        skills: SkillSet | None = None,
        shell: Shell | None = None,
    ) -> None:
        self._corral = corral
        self.opened = opened
        self.modules = modules
        self.packages = packages
        self.network = network
        self.skills = skills or SkillSet()
        self._shell = shell
        self.context: ExecutionContext = opened.context

    def __repr__(self) -> str:
        mounts = ", ".join(bind.inside for bind in self.opened.space.binds) if not self.opened.closed else "closed"
        return f"<Session of {self.context.user_id!r}: {mounts}>"

    @property
    def files(self) -> SessionFiles:
        """Files of the session, for the host to read and change."""
        return self.opened.files

    @property
    def shell(self) -> Shell:
        """Shell that runs commands in the session's directories.

        Raises:
            ConfigError: the session was opened without a shell.
        """
        if self._shell is None:
            raise ConfigError("this session has no shell; open it with Corral.session(shell=True)")
        return self._shell

    @property
    def exact_quota(self) -> bool:
        """True if the kernel enforces the quotas of scratch directories; False if they are on disk."""
        return self.opened.exact_quota

    async def execute(self, source: str | ExecutionRequest, **options: Any) -> ExecutionResult:
        """Runs a program in this session. Takes the options of `Corral.execute`."""
        return await self._corral.execute(source, session=self, **options)

    def start(self, source: str | ExecutionRequest, **options: Any) -> AbstractAsyncContextManager[Run]:
        """Starts a program in this session. Takes the options of `Corral.start`."""
        return self._corral.start(source, session=self, **options)

    def expect(self, context: ExecutionContext, language: Language) -> None:
        """Checks that an execution may run here.

        Raises:
            ConfigError: the user, organization or language does not match the session's, or the session is closed.
        """
        if self.opened.closed:
            raise ConfigError("this session is closed")
        if context.owner != self.context.owner:
            raise ConfigError("this session belongs to another user or organization; open one for this context")
        if language not in self.opened.languages:
            names = ", ".join(sorted(self.opened.languages))
            raise ConfigError(f"this session is for programs in {names}; add others with Corral.session(languages=...)")
