"""Running programs: here, in sandboxes, and elsewhere, with tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, Unpack

import anyio

from corral.arguments import checked
from corral.audit import AuditLog
from corral.bridges import ASGIApp, BridgeProtocol
from corral.calls import Grant, OutsideExecution, ServiceSource
from corral.concurrency.task_groups import plain_task_group
from corral.errors import ConfigError, StartFailed, UnknownProvider
from corral.events import Observation, OnEvent
from corral.isolation import Tier
from corral.jail import LauncherClient
from corral.jail.spaces import SpaceHost
from corral.languages import LANGUAGES
from corral.packages import Packages, PythonPackages
from corral.plugins import load_by_name
from corral.results import ExecutionResult
from corral.running import Execution, ExecutionRequest, Run, Runtime
from corral.running.lifetime import CorralLifetime
from corral.running.options import RunOptions, request_of
from corral.running.session import Session
from corral.running.tool_views import ToolViews
from corral.sandboxes.selection import Sandboxes
from corral.sessions import KeptSessions, KeptWorkspace, Mount, OpenSession, SessionFiles, Sessions, open_session
from corral.sessions.shell import Shell, ShellLimits
from corral.sessions.skills import Skill, SkillSet
from corral.tools.tool_sources import Tools, ToolSources
from corral.types import ApprovalRequest, Approved, Denied, ExecutionContext, Language, Limits, SandboxConfig


class SessionShells(Protocol):
    """Shells in the directories of sessions; the plug-in `session` of `corral.shells`."""

    def mounts(self, files: Sequence[Mount], /) -> tuple[Mount, ...]:
        """Returns the mounts of a session with a shell."""
        ...

    async def open(
        self,
        launcher: LauncherClient,
        open_: Callable[[SpaceHost], Awaitable[OpenSession]],
        limits: ShellLimits,
        *,
        required_tier: Tier,
        network: object,
        audit: AuditLog | None,
    ) -> tuple[OpenSession, Shell]:
        """Opens a session, by `open_`, and a shell in it."""
        ...


class CorralRunning(CorralLifetime):
    """Runs programs."""

    def __init__(
        self,
        runtime: Runtime,
        sources: ToolSources,
        sandbox: Sandboxes,
        views: ToolViews,
        sessions: Sessions | None = None,
    ) -> None:
        super().__init__(runtime, sources, sandbox)
        self._views = views
        if sessions is not None:
            self._kept_sessions = KeptSessions(sessions, partial(self._open_session, tuple(sessions.files)))

    @checked
    async def execute(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> ExecutionResult:
        """Runs a program to its end. The result holds whatever the program did, errors included.

        `source` is the model's answer, or a request made before, which has its own options.

        Raises:
            StartFailed: the sandbox did not start.
            ConfigError: the options do not fit together, or the Corral is closed.
        """
        execution = self._execution(source, **options)
        with self._lives(execution):
            return await execution.run()

    @checked
    @asynccontextmanager
    async def start(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> AsyncGenerator[Run]:
        """Starts a program and yields its handle; leaving the block cancels a program that still runs.

        Raises:
            As `execute`; a sandbox that does not start raises from `Run.result()`.
        """
        execution = self._execution(source, **options)
        async with plain_task_group() as tasks:
            run = Run(execution)
            with self._lives(execution):
                tasks.start_soon(run.drive)
                try:
                    yield run
                finally:
                    execution.cancel()
                    with anyio.CancelScope(shield=True):
                        await run.done.wait()
                    run.close()

    @checked
    def execute_sync(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> ExecutionResult:
        """Runs `execute` for callers without an event loop, in a thread with its own loop.

        Inside `with Corral(...)` the loop lives on between calls.

        Raises:
            ConfigError: this thread already runs an event loop; await `execute` there.
        """
        return self._in_a_loop(partial(self.execute, source, **options))

    @checked
    @asynccontextmanager
    async def session(
        self,
        *,
        context: ExecutionContext | None = None,
        files: Sequence[Mount] = (Mount("/workspace"),),
        skills: Sequence[Skill | str | Path] = (),
        languages: Collection[Language] | None = None,
        modules: Packages | None = None,
        packages: PythonPackages | None = None,
        network: ServiceSource | None = None,
        shell: ShellLimits | bool = False,
    ) -> AsyncGenerator[Session]:
        """Opens directories that programs of one user share, and yields their handle; they end with the block.

        `modules` and `packages` are for its programs, in place of the Corral's, and `network` besides it. `skills` are
        beside those of the Corral; programs find them all in /root/skills.

        With `shell`, `session.shell` runs commands in the same directories, within these bounds; without a mount at
        /tmp there is a scratch directory. They have `network` too, by a proxy; see docs/shells.md.

        `languages` are those of its programs, and have a guest ready when the block begins; None: all whose sandbox
        has files and runs here, each from its first program on.

        Raises:
            ConfigError: the mounts or skills do not fit together, a directory is not there, or no sandbox has files.
            LimitNotEnforceable: the jail of commands does not hold a bound here, and this was not accepted.
            StartFailed: nothing on this system can make them, or contain commands.
        """
        self._require_usable()
        caller = context or ExecutionContext()
        shells: SessionShells | None = load_by_name("corral.shells", "session") if shell else None
        mounts = tuple(files) if shells is None else shells.mounts(files)
        hosts = await self._space_hosts(caller, languages, packages, modules)
        skill_set = SkillSet([*self._runtime.skills.skills.values(), *skills]) if skills else self._runtime.skills

        async def open_(host: SpaceHost | None = None) -> OpenSession:
            commands = None if host is None else (host, SandboxConfig())
            return await open_session(caller, mounts, hosts, skill_set, commands=commands)

        if shells is not None:
            opened, space_shell = await shells.open(
                self._commands,
                open_,
                shell if isinstance(shell, ShellLimits) else ShellLimits(),
                required_tier=self._runtime.required_tier,
                network=network,
                audit=self._runtime.audit,
            )
        else:
            opened, space_shell = await open_(), None
        self._sessions.add(opened)
        try:
            for host, config in hosts.values() if languages is not None else ():
                await host.prepare_space(config.model_copy(update={"space": opened.space}))
            npm = modules or self._runtime.modules
            if npm is not None and (modules or skills):  # else those of the Corral, which have its skills already
                npm = npm.with_skills(skill_set)
            yield Session(
                self, opened, modules=npm, packages=packages, network=network, skills=skill_set, shell=space_shell
            )
        finally:
            with anyio.CancelScope(shield=True):
                for execution in [each for each in self._live if each.workspace is opened]:
                    execution.cancel()
                    await execution.ended.wait()
                if space_shell is not None:
                    await space_shell.aclose()
            self._sessions.discard(opened)
            await opened.aclose()

    @checked
    @asynccontextmanager
    async def session_files(self, context: ExecutionContext) -> AsyncGenerator[SessionFiles]:
        """Yields the files of the session in which programs of this context run, by `Corral(sessions=...)`.

        The session is opened unless it is, and stays so for the duration of the block.

        Raises:
            ConfigError: this Corral keeps no sessions, or the context was made without a `session_id`.
            StartFailed: it cannot be opened.
        """
        self._require_usable()
        if self._kept_sessions is None:
            raise ConfigError("this Corral keeps no sessions; make it with Corral(sessions=Sessions())")
        if "session_id" not in context.model_fields_set:
            raise ConfigError("the context has no session_id of its own; make it with ExecutionContext(session_id=...)")
        async with self._kept_sessions.session(context) as session:
            yield session.files

    def _kept_session(self, context: ExecutionContext) -> KeptWorkspace | None:
        """The session that the caller has named, if this Corral keeps any."""
        if self._kept_sessions is None or "session_id" not in context.model_fields_set:
            return None
        return KeptWorkspace(self._kept_sessions, context)

    async def _open_session(self, files: Sequence[Mount], context: ExecutionContext) -> OpenSession:
        return await open_session(context, files, await self._space_hosts(context, None), self._runtime.skills)

    async def _space_hosts(
        self,
        context: ExecutionContext,
        languages: Collection[Language] | None,
        packages: PythonPackages | None = None,
        modules: Packages | None = None,
    ) -> dict[Language, tuple[SpaceHost, SandboxConfig]]:
        """Providers that make directories for programs in these languages; None: in all that run here.

        Raises:
            ConfigError: the sandbox of one of these languages has no files.
            StartFailed: none runs here.
        """
        runtime = self._runtime
        failed: StartFailed | None = None
        hosts: dict[Language, tuple[SpaceHost, SandboxConfig]] = {}
        for language in LANGUAGES if languages is None else languages:
            try:
                provider = runtime.provider(language)
            except UnknownProvider:
                if languages is not None:
                    raise
                continue
            config = runtime.sandbox_config(
                language,
                runtime.limits,
                trust_domain=context.trust_domain,
                loads_modules=runtime.loads_modules(language, in_session=True),
                packages=packages,
                modules=modules,
            )
            try:
                host = await provider.space_host(config)
                if host is not None and languages is None:
                    await host.placement(config)
            except StartFailed as error:
                if languages is not None:
                    raise
                failed = error
                continue
            if host is not None:
                hosts[language] = host, config
            elif languages is not None:
                raise ConfigError(f"sandbox {provider.name!r}, for {language}, has no files of a session")
        if failed is not None and not hosts:
            raise failed
        return hosts

    @checked
    def observe(self, callback: OnEvent, *, session_id: str | None = None) -> Observation:
        """Calls a function, sync or async, with the events of all executions, or of one session's, from now on.

        The observation ends with its `with` or `async with` block, or by `close()`. No execution waits for an async
        function; one that is 10,000 events behind misses the next ones. Exceptions are logged.
        """
        return Observation(callback, session_id, self._runtime.observations)

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Returns the calls that wait for a decision, oldest first."""
        return self._runtime.parked.requests()

    @checked
    def decide(self, execution_id: str, sequence: int, decision: Approved | Denied) -> bool:
        """Decides on a call that waits for it; the first decision holds. Any thread may call it.

        The host has to know that the person may decide: `pending` has the `context` of the call. Returns False if the
        call does not wait, or no longer.
        """
        return self._runtime.parked.decide(execution_id, sequence, decision)

    # --- programs that run elsewhere

    @checked
    def grant(
        self,
        context: ExecutionContext,
        *,
        limits: Limits | None = None,
        tools: Tools | None = None,
        lives_seconds: float | None = None,
        language: Language = "typescript",
        hide_denied: bool | None = None,
    ) -> OutsideExecution:
        """Lets a program elsewhere call tools through `asgi_app`, until the block ends or `lives_seconds` have passed.

        Only the limits of calls apply: nothing else of the program runs here. `language` is that of `tools.describe`.

        Raises:
            ConfigError: the Corral is closed, or the language is unknown.
        """
        self._require_usable()
        self._require_sources()
        registry, services = self._views.callable_tools(tools, context, hide_denied, language)
        grant = Grant(
            context=context,
            scopes=self._runtime.implied.held_with(context.scopes),
            limits=limits or self._runtime.limits,
            tools=registry,
            lives_seconds=lives_seconds,
            services=services,
        )
        self._runtime.grants.open(grant)
        return OutsideExecution(grant, self._runtime.grants)

    @checked
    def execution_token(self, context: ExecutionContext, ttl_seconds: float = 300.0) -> str:
        """Issues a token for one program that runs elsewhere. It expires after `ttl_seconds`, at most 300, for good.

        Raises:
            ConfigError: `ttl_seconds` or the context does not fit a token.
            MissingExtra: the extra `http` is not installed.
        """
        execution = self.grant(context, lives_seconds=ttl_seconds)
        try:
            return execution.token(ttl_seconds)
        except BaseException:
            execution.end()
            raise

    @checked
    def asgi_app(self, protocol: str | BridgeProtocol | None = None) -> ASGIApp:
        """Returns a bridge as an app for a web server: `protocol`, or a bridge of this Corral, or `HttpBridge()`.

        Raises:
            ConfigError: the protocol is unknown, or is not mounted in a web server.
            MissingExtra: the protocol's extra is not installed.
        """
        protocols = self._runtime.protocols
        return protocols.mounted(protocol).asgi_app(protocols.host)

    @checked
    async def bridge_document(
        self, protocol: str | BridgeProtocol | None = None, *, scopes: Collection[str] | None = None
    ) -> str:
        """Describes the tools in the language of a bridge, such as OpenAPI, for generators of typed clients.

        `protocol` is that of `asgi_app`. `scopes` are those of a caller, whose tools are described; None describes all.

        Raises:
            ConfigError: the protocol is unknown or has no such language, or tool sources are not open.
            MissingExtra: the protocol's extra is not installed.
        """
        self._require_sources()
        bridge = self._runtime.protocols.mounted(protocol)
        registry = self._views.registry()
        if scopes is None:
            every = registry.snapshot().values()
            held = frozenset[str]().union(*(tool.scopes | tool.any_scope for tool in every))
        else:
            held = self._runtime.implied.held_with(frozenset(scopes))
        described = Grant(context=ExecutionContext(), scopes=held, limits=self._runtime.limits, tools=registry)
        found = await bridge.document(described)
        if found is None:
            raise ConfigError(f"bridge {bridge.name!r} has no document of tools")
        return found.content.decode()

    def _execution(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> Execution:
        self._require_usable()
        self._require_sources()
        request = request_of(source, options)
        registry, services = self._views.callable_tools(
            options.get("tools"), request.context, request.hide_denied, request.language
        )
        session = options.get("session")
        if session is not None:
            session.expect(request.context, request.language)
            workspace = session.opened
        else:
            workspace = self._kept_session(request.context)
        execution = Execution(
            self._runtime,
            request,
            workspace=workspace,
            modules=None if session is None else session.modules,
            packages=None if session is None else session.packages,
            service_sources=() if session is None or session.network is None else (session.network,),
            tools=registry,
            services=services,
            on_event=options.get("on_event"),
            approve=options.get("approve"),
        )
        if self._runtime.check_of(request):
            self._runtime.checker.start(request.language, self._runtime.tools)
        return execution
