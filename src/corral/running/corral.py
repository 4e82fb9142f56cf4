"""`Corral`: the public class, which connects all stages of the pipeline."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from logging import Logger, getLogger
from pathlib import Path
from typing import Protocol, Self, Unpack

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.audit import AuditLog, AuditSource, Telemetry, as_audit_log
from corral.bridges import ASGIApp, BridgeHost, BridgeProtocol
from corral.bridges.selection import Bridges, Protocols
from corral.calls import (
    Grant,
    Grants,
    ImpliedScopes,
    OutsideExecution,
    Pipeline,
    Policy,
    RateLimits,
    ServiceSource,
    Tokens,
    pipeline,
)
from corral.checking import Case, Checker, CheckResult
from corral.concurrency.lifecycle import Lifecycle
from corral.concurrency.task_groups import plain_task_group
from corral.concurrency.threads import expect_threads, run_shielded_in_thread
from corral.errors import ConfigError, ProgramRejected, StartFailed, UnknownProvider
from corral.events import Observation, OnEvent
from corral.isolation import Tier
from corral.jail import LauncherClient
from corral.jail.spaces import SpaceHost
from corral.languages import LANGUAGES
from corral.logs import get_logger
from corral.model import Catalog, LearntResults, declare_tools
from corral.model.model_tools import ModelOptions, ModelTool, Surroundings, model_tools, system_prompt
from corral.packages import Packages, PythonPackages
from corral.plugins import load_by_name
from corral.programs.compiled import Compiler
from corral.results import ExecutionResult
from corral.running import Check, Execution, ExecutionRequest, Run, Runtime, prepare
from corral.running.options import RunOptions, request_of
from corral.running.session import Session
from corral.running.tool_views import ToolViews
from corral.sandboxes import SandboxProvider
from corral.sandboxes.selection import Providers, Sandboxes
from corral.sessions import KeptSessions, KeptWorkspace, Mount, OpenSession, SessionFiles, Sessions, open_session
from corral.sessions.shell import Shell, ShellLimits
from corral.sessions.skills import Skill, SkillSet
from corral.tools import Tool, ToolRegistry
from corral.tools.tool_sources import Tools, registry_and_sources
from corral.types import (
    LIMITS_OF_SANDBOXES,
    ApprovalRequest,
    Approve,
    Approved,
    Audience,
    Denied,
    Diagnostic,
    ExecutionContext,
    Language,
    LimitName,
    Limits,
    SandboxConfig,
)

__all__ = ["Bridges", "Corral", "Sandboxes", "Tools"]

logger = get_logger("corral")
_UNREADY_SECONDS = 15.0
"""Seconds after a failed sandbox start. It has to end: only another program can show that sandboxes start again."""
_OWN_PYTHON = frozenset({"cpython", "python"})
"""Names of sandboxes that run the host's Python."""
_NEWEST_PYTHON = (3, 14)
_PYTHON = "" if sys.version_info >= _NEWEST_PYTHON else f"{sys.version_info.major}.{sys.version_info.minor}"
"""Version to state to models, because they know a newer one."""


class SessionShells(Protocol):
    """Shells in session directories; the plug-in `session` of `corral.shells`."""

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
        """Opens a session with `open_`, and a shell in it."""
        ...


@checked
class Corral(Lifecycle):
    """Runs models' programs against tools, each in its own sandbox.

    Constructing a Corral does no I/O, except that `skills` are read; nor does `declarations`. Executions can overlap.
    `aclose`, from any task of the same event loop, cancels running ones and frees all resources.

    `network`, a `corral.egress.Network`, lists the origins that programs may request; None: no network.
    `modules` are npm packages that TypeScript programs may import, and `packages` are Python packages, besides those of
    the sandbox. `sessions` gives each caller who names a `session_id` files that persist from one program to the next.
    `skills` are folders with `SKILL.md` and modules; bundling their TypeScript modules requires `modules`. `compilers`
    are for languages that compile to JavaScript, by the name that `execute(compiler=...)` takes.

    `telemetry` sends spans and metrics to OpenTelemetry, by default to the process's providers, if any.

    `learnt` records the results of tools that do not declare them, to describe these to models; by default it only
    records whether they are plain text or JSON.

    `logger` is the parent of the loggers of tools (`ToolCall.logger`) and programs; None: the logger `corral`.
    `log_code` logs the source of every program at level INFO.

    Raises:
        ConfigError: an option is wrong, or options conflict.
    """

    def __init__(
        self,
        tools: Tools = (),
        *,
        sandbox: Sandboxes = "auto",
        bridge: Bridges = "pipe",
        limits: Limits | None = None,
        required_tier: Tier = "landlock",
        accept_unenforced: Collection[LimitName] = (),
        network: ServiceSource | None = None,
        modules: Packages | None = None,
        packages: PythonPackages | None = None,
        sessions: Sessions | None = None,
        skills: Sequence[Skill | str | Path] = (),
        compilers: Mapping[str, Compiler] | None = None,
        check: Check = True,
        audit: AuditLog | AuditSource | None = None,
        telemetry: Telemetry | bool = True,
        rates: RateLimits | None = None,
        implied_scopes: Mapping[str, Iterable[str]] | None = None,
        hide_denied: bool = False,
        approve: Approve | None = None,
        approval_seconds: float = 300.0,
        tokens: Tokens | None = None,
        pipeline: Pipeline = pipeline,
        learnt: LearntResults | None = None,
        logger: Logger | None = None,
        log_code: bool = False,
    ) -> None:
        if unknown := sorted(set(accept_unenforced) - LIMITS_OF_SANDBOXES):
            raise ConfigError(
                f"accept_unenforced={unknown[0]!r} is not a limit that sandboxes enforce; these are: "
                f"{', '.join(sorted(LIMITS_OF_SANDBOXES))}"
            )
        if not approval_seconds > 0:
            raise ConfigError(f"Corral(): approval_seconds must be positive, not {approval_seconds}")
        self.tools, sources = registry_and_sources(tools)
        self.limits = limits or Limits()
        self.required_tier: Tier = required_tier
        self.check_by_default: Check = check
        self.hide_denied = hide_denied
        self.approve = approve
        self.can_be_kept = isinstance(sandbox, str) and bridge == "pipe" and not sources.missing
        """True if it can be closed in another event loop, or by the exit of the process."""
        if any(each is not None for each in (audit, rates, sessions, network, learnt)):
            self.can_be_kept = False
        self.learnt = learnt or LearntResults()
        self._load_tokens = _LazyTokens(tokens)
        rates = rates or RateLimits()
        audit_log = None if audit is None else as_audit_log(audit)
        traces = Telemetry() if telemetry is True else telemetry or None
        grants = Grants(self._load_tokens)
        policy = Policy(
            grants=grants,
            rates=rates,
            audit=audit_log,
            approve=approve,
            approval_seconds=approval_seconds,
            logger=logger,
            telemetry=traces,
            learnt=self.learnt,
        )
        handler = pipeline(policy)
        implied = ImpliedScopes(implied_scopes or {})
        skill_set = SkillSet(skills)
        runtime = Runtime(
            tools=self.tools,
            limits=self.limits,
            check=check,
            providers=Providers(sandbox),
            checker=Checker(packages=None if modules is None else modules.node_modules),
            required_tier=required_tier,
            accept_unenforced=frozenset(accept_unenforced),
            protocols=Protocols(bridge, BridgeHost(handler, grants)),
            handler=handler,
            grants=grants,
            rates=rates,
            implied=implied,
            audit=audit_log,
            parked=policy.parked,
            telemetry=traces,
            service_sources=() if network is None else (network,),
            modules=modules.with_skills(skill_set) if modules is not None and skill_set.skills else modules,
            packages=packages,
            skills=skill_set,
            compilers=dict(compilers or {}),
            learnt=self.learnt,
            code_logger=(logger or getLogger("corral")).getChild("programs") if log_code else None,
        )
        views = ToolViews(self.tools, implied, hide_denied=hide_denied, learnt=self.learnt)
        super().__init__()
        self._runtime = runtime
        self._sources = sources
        self._sandbox = sandbox
        self._views = views
        self._live: set[Execution] = set()
        self._sessions: set[OpenSession] = set()
        self._kept_sessions: KeptSessions | None = None
        if sessions is not None:
            self._kept_sessions = KeptSessions(sessions, partial(self._open_session, tuple(sessions.files)))
        self._commands = LauncherClient()
        self._draining = False
        self.first_language: Language | None = None
        """Language to warm up for when it is opened, if known."""

    @checked
    async def drain(self, seconds: float = 30.0) -> bool:
        """Rejects new programs and waits until the running ones have ended; cancels them after `seconds`.

        Programs elsewhere count until their grant ends; `aclose` ends them. Returns False if any program was still
        running after `seconds`. Call `aclose` afterwards.
        """
        self._draining = True
        with anyio.move_on_after(seconds) as waiting:
            for execution in [*self._live]:
                await execution.ended.wait()
            await self._runtime.grants.all_ended()
        live = [*self._live]
        for execution in live:
            execution.cancel()
        with anyio.CancelScope(shield=True):
            for execution in live:
                await execution.ended.wait()
        return not waiting.cancelled_caught

    @checked
    def unready(self) -> str | None:
        """Returns the reason why a load balancer should send no requests here; None if programs can run.

        Not ready: while it is not open or is draining, and for 15 s after a failed sandbox start.
        """
        if self._draining:
            return "draining"
        if not self._open:
            return "not open"
        failed_lately = time.monotonic() - self._runtime.start_failed < _UNREADY_SECONDS
        return "sandboxes cannot be started" if failed_lately else None

    @override
    async def aclose(self) -> None:
        """Cancels running executions, waits for their end, and frees sandboxes and sources. Idempotent.

        In a fork of the process that opened it, that process's resources stay open.
        """
        if not self._owner.is_current:
            self._reset_in_fork()
            return
        self._expect_no_closing()
        runtime = self._runtime
        if runtime.grants.is_calling():
            raise ConfigError("a tool cannot close the Corral that runs it")
        self._closed = True
        was_open = self._open
        self._open = runtime.keeps_warm = False
        live = list(self._live)
        for execution in live:
            execution.cancel()
        with anyio.CancelScope(shield=True):
            await runtime.grants.close_all()
            for execution in live:
                await execution.ended.wait()
            async with anyio.create_task_group() as tasks:
                for observation in [*runtime.observations]:
                    tasks.start_soon(observation.finish)
            for session in [*self._sessions]:
                await session.aclose()
            if self._kept_sessions is not None:
                await self._kept_sessions.aclose()
            await run_shielded_in_thread(self._commands.close)
            await runtime.protocols.aclose()
            await self._sources.aclose()
            await run_shielded_in_thread(runtime.checker.close)
            if was_open:
                for compiler in runtime.compilers.values():
                    await compiler.aclose()
            for provider in runtime.providers.made:
                if not provider.is_entered:
                    await provider.aclose()  # a provider shared with other Corrals keeps their sandboxes
            await run_shielded_in_thread(self._save_learnt)
            await runtime.rates.store.aclose()
            if runtime.audit is not None:
                await runtime.audit.aclose()

    def _save_learnt(self) -> None:
        try:
            self._runtime.learnt.save()
        except ConfigError as error:
            logger.warning("%s", error)

    def __repr__(self) -> str:
        state = "open" if self._open else "closed" if self._closed else "not open"
        count = len(self._runtime.tools)
        return f"<Corral of {count} tool{'' if count == 1 else 's'}, {state}>"

    @override
    def _renew(self) -> object:
        runtime = self._runtime
        behind = self._sources, runtime.checker, runtime.providers, runtime.protocols
        self._sources = self._sources.copy()
        self._live, self._sessions, self._commands = set(), set(), LauncherClient()
        if self._kept_sessions is not None:
            self._kept_sessions = self._kept_sessions.empty()
        runtime.renew(Providers(self._sandbox))
        return behind

    @override
    async def _get_ready(self) -> None:
        """Opens tool sources and bridges, and warms sandboxes; raises if the required isolation is not available."""
        self._reset_in_fork()
        if self._open:
            raise ConfigError("this Corral is open already")
        expect_threads()
        runtime = self._runtime
        was_closed, self._closed, self._draining = self._closed, False, False
        if was_closed:
            runtime.renew()
        try:
            await self._sources.open()
            await runtime.protocols.open()
            if self._closed:
                raise ConfigError("this Corral was closed while it was being opened")
            self._open = runtime.keeps_warm = True
            await runtime.providers.warm_up(runtime.warm_up, self.first_language)
            for compiler in runtime.compilers.values():
                await compiler.open()
            self._expect_closing()
        except BaseException:
            self._open, self._closed = False, was_closed
            runtime.keeps_warm = False
            with anyio.CancelScope(shield=True):
                await runtime.protocols.aclose()
                await self._sources.aclose()
                await run_shielded_in_thread(runtime.checker.close)
            runtime.renew()
            raise

    @asynccontextmanager
    async def connected(self, *, bridges: bool = False) -> AsyncGenerator[Self]:
        """Opens only the tool sources for the duration of the block, which is enough to declare all tools.

        `bridges` also opens the bridges, such as a `GrpcBridge`'s server, which is enough to serve programs elsewhere.

        Raises:
            CorralError: a required tool source or a bridge cannot be opened.
        """
        self._require_own()
        if self._open:
            yield self
            return
        await self._sources.open()
        try:
            if bridges:
                await self._runtime.protocols.open()
            yield self
        finally:
            if bridges:
                await self._runtime.protocols.aclose()
            await self._sources.aclose()

    def _require_usable(self) -> None:
        self._require_own()
        if self._closed:
            raise ConfigError("this Corral is closed; `async with corral` opens it again")
        if self._draining:
            raise ConfigError("this Corral is draining and accepts no new programs")

    def _require_sources(self) -> None:
        if self._sources.missing:
            raise ConfigError(
                "this Corral's tool sources are not open; open it with `async with corral` or `with corral`"
            )

    @contextmanager
    def _lives(self, execution: Execution) -> Generator[None]:
        """Registers an execution for `aclose` to end, for the duration of the block."""
        self._live.add(execution)
        try:
            yield
        finally:
            self._live.discard(execution)

    @checked
    async def execute(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> ExecutionResult:
        """Runs a program to its end. Errors of the program are part of the result.

        `source` is the model's answer, or a prepared request with its own options.

        Raises:
            StartFailed: the sandbox did not start.
            ConfigError: options conflict, or the Corral is closed.
        """
        execution = self._execution(source, **options)
        with self._lives(execution):
            return await execution.run()

    @checked
    @asynccontextmanager
    async def start(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> AsyncGenerator[Run]:
        """Starts a program and yields its handle; leaving the block cancels the program if it still runs.

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

        Inside `with Corral(...)` the loop is kept between calls.

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
        """Opens directories shared by the programs of one user, and yields their handle; they end with the block.

        For its programs, `modules` and `packages` replace the Corral's; `network` and `skills` are added to them.
        Programs find all skills in /root/skills.

        With `shell`, `session.shell` runs commands in the same directories, within these bounds; without a mount at
        /tmp it is a scratch directory. Commands reach `network` through a proxy; see docs/shells.md.

        `languages` are its programs' languages, for which guests are ready when the block begins. None: all languages
        whose sandbox runs here and has files, each from its first program on.

        Raises:
            ConfigError: mounts or skills conflict, a directory is missing, or no sandbox has files.
            LimitNotEnforceable: the jail of commands cannot enforce a bound here, and this was not accepted.
            StartFailed: this system cannot create the directories or contain commands.
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
            if npm is not None and (modules or skills):  # else the Corral's, which include its skills already
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
        """Yields the files of this context's session, which `Corral(sessions=...)` keeps.

        The session is open for the duration of the block.

        Raises:
            ConfigError: this Corral keeps no sessions, or the context was created without a `session_id`.
            StartFailed: the session cannot be opened.
        """
        self._require_usable()
        if self._kept_sessions is None:
            raise ConfigError("this Corral keeps no sessions; create it with Corral(sessions=Sessions())")
        if "session_id" not in context.model_fields_set:
            raise ConfigError("the context has no explicit session_id; set ExecutionContext(session_id=...)")
        async with self._kept_sessions.session(context) as session:
            yield session.files

    def _kept_session(self, context: ExecutionContext) -> KeptWorkspace | None:
        """Returns the session that the caller named, if this Corral keeps sessions."""
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
        """Returns providers that create directories for programs in these languages; None: in all that run here.

        Raises:
            ConfigError: the sandbox for one of these languages has no files.
            StartFailed: no such provider runs here.
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
                raise ConfigError(f"sandbox {provider.name!r}, for {language}, does not support session files")
        if failed is not None and not hosts:
            raise failed
        return hosts

    @checked
    def observe(self, callback: OnEvent, *, session_id: str | None = None) -> Observation:
        """Calls a sync or async function for every event of all executions, or of one session's, from now on.

        The observation ends with its `with` or `async with` block, or by `close()`. Executions do not wait for an async
        function; once it is 10,000 events behind, further ones are dropped. Its exceptions are logged.
        """
        return Observation(callback, session_id, self._runtime.observations)

    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Returns the calls that wait for a decision, oldest first."""
        return self._runtime.parked.requests()

    @checked
    def decide(self, execution_id: str, sequence: int, decision: Approved | Denied) -> bool:
        """Decides on a waiting call; the first decision holds. Any thread may call it.

        The host has to ensure that the person may decide: `pending` has the call's `context`. Returns False if the
        call does not wait, or no longer waits.
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

        Only the limits on calls apply, since the program itself runs elsewhere. `language` is for `tools.describe`.

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
        """Issues a token for one program elsewhere. It expires after `ttl_seconds`, at most 300, and is not renewable.

        Raises:
            ConfigError: `ttl_seconds` is out of range, or the context does not fit into a token.
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
        """Returns a bridge as an app for a web server: `protocol`, else a bridge of this Corral, else `HttpBridge()`.

        Raises:
            ConfigError: the protocol is unknown or cannot be mounted in a web server.
            MissingExtra: the protocol's extra is not installed.
        """
        protocols = self._runtime.protocols
        return protocols.mounted(protocol).asgi_app(protocols.host)

    @checked
    async def bridge_document(
        self, protocol: str | BridgeProtocol | None = None, *, scopes: Collection[str] | None = None
    ) -> str:
        """Describes the tools in a bridge's schema language, such as OpenAPI, for generators of typed clients.

        `protocol` is as for `asgi_app`. `scopes` restricts the document to the tools of a caller with these scopes.

        Raises:
            ConfigError: the protocol is unknown or has no schema language, or tool sources are not open.
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
        document = await bridge.document(described)
        if document is None:
            raise ConfigError(f"bridge {bridge.name!r} cannot describe tools in a document")
        return document.content.decode()

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

    # --- checking programs

    @checked
    async def check(
        self,
        source: str,
        language: Language = "typescript",
        *,
        tools: Tools | None = None,
        env: bool = False,
        **audience: Unpack[Audience],
    ) -> CheckResult:
        """Type-checks a program without running it; waits until a language server is ready.

        `env`: True if the program would have environment variables. `context`: the caller, if denied tools are hidden.
        If the Corral is not open, `aclose` ends the server.

        Raises:
            ConfigError: the language is unknown, or the Corral is closed.
        """
        self._require_usable()
        context = audience.get("context")
        registry = self._views.registry(tools, **audience)
        try:
            program = await prepare(source, language, self._runtime.limits, context, registry)
        except ProgramRejected as error:
            rejected = Diagnostic(
                severity="error", message=str(error), code=error.code, line=error.line, column=error.column
            )
            return CheckResult(language=language, checked=False, diagnostics=(rejected,))
        self._runtime.checker.start(language, self._runtime.tools)
        in_session = context is not None and self._kept_session(context) is not None
        modules = self._runtime.loads_modules(language, in_session=in_session)
        network = any(source.origins for source in self._runtime.service_sources)
        case = Case(program, registry, env=env, must=True, modules=modules, network=network, context=context)
        verdict = await self._runtime.checker.verdict(case)
        return CheckResult(
            language=language,
            checked=verdict.unchecked is None,
            unchecked=verdict.unchecked,
            diagnostics=(*verdict.diagnostics, *program.diagnostics),
        )

    @checked
    def check_sync(
        self,
        source: str,
        language: Language = "typescript",
        *,
        tools: Tools | None = None,
        env: bool = False,
        **audience: Unpack[Audience],
    ) -> CheckResult:
        """Runs `check` for callers without an event loop, like `execute_sync`.

        Raises:
            ConfigError: see `check` and `execute_sync`.
        """
        return self._in_a_loop(partial(self.check, source, language, tools=tools, env=env, **audience))

    # --- texts and tools for models

    @checked
    def tools_for(self, context: ExecutionContext | None = None, *, hide_denied: bool | None = None) -> ToolRegistry:
        """Returns the tools visible to this caller: all, or without denied ones if these are hidden."""
        return self._views.registry(None, context, hide_denied)

    @checked
    def declarations(self, language: Language = "typescript", **audience: Unpack[Audience]) -> str:
        """Declares the tools in the program's language. The same tools give the same text, in a stable order.

        Raises:
            ConfigError: the language is unknown, or tool sources are not open.
        """
        self._require_declarable()
        return declare_tools(self._views.registry(**audience).snapshot(), language)

    @checked
    def catalog(
        self,
        language: Language = "typescript",
        *,
        budget_tokens: int = 4_000,
        count_tokens: Callable[[str], int] | None = None,
        first: Collection[str] = (),
        tools: Tools | None = None,
        **audience: Unpack[Audience],
    ) -> Catalog:
        """Returns a catalog of the tools within a token budget: full declarations, or shorter ones of some tools.

        `first`: names of tools and namespaces to declare in full first. `tools`: the tools of one execution, instead of
        the Corral's. `context`: the caller, if denied tools are hidden; without a caller, the catalog has the tools
        that require no scope, and a note that there can be more.

        Raises:
            ConfigError: the language is unknown, or the budget is too small.
        """
        self._require_declarable()
        return self._views.catalog(
            language, budget_tokens=budget_tokens, count_tokens=count_tokens, first=first, tools=tools, **audience
        )

    @checked
    def model_tool(
        self, language: Language = "typescript", *, session: Session | None = None, **options: Unpack[ModelOptions]
    ) -> ModelTool:
        """Returns the tool that runs a model's programs. Its description explains programs and declares the tools.

        `session`: the session for all programs of this tool.

        Raises:
            ConfigError: the language is unknown, or the name is not a valid tool name.
        """
        return self.model_tools(language, session=session, **options)[0]

    @checked
    def model_tools(
        self, language: Language = "typescript", *, session: Session | None = None, **options: Unpack[ModelOptions]
    ) -> tuple[ModelTool, ...]:
        """Returns `model_tool`, with `search_tools` and `describe_tools` unless the catalog declares all tools in full.

        Raises:
            ConfigError: see `model_tool`.
        """
        hidden, tools = options.get("hide_denied"), options.get("tools")
        catalog = options.get("catalog") or self.catalog(
            language, tools=tools, context=options.get("context"), hide_denied=hidden
        )

        def discovery(context: ExecutionContext) -> Mapping[str, Tool]:
            return self._views.discovery(self._views.registry(tools, context, hidden), language)

        return model_tools(
            partial(self.execute, tools=tools, session=session),
            language,
            catalog,
            discovery,
            options,
            self.surroundings(language, session),
        )

    @checked
    def system_prompt(
        self,
        base: str = "",
        *,
        language: Language = "typescript",
        catalog: Catalog | None = None,
        session: Session | None = None,
        **audience: Unpack[Audience],
    ) -> str:
        """Appends to `base` the rules for programs and the tools, which `model_tool(in_prompt=True)` leaves out.

        The same tools give the same text, so that providers' prompt caches stay valid.

        Raises:
            ConfigError: the language is unknown.
        """
        catalogs = {"": catalog or self.catalog(language, **audience)}
        return system_prompt(base, language, catalogs, self.surroundings(language, session))

    @checked
    def surroundings(self, language: Language = "typescript", session: Session | None = None) -> Surroundings:
        """Describes the environment of programs, such as files, packages, origins and limits, to tell models."""
        modules = (session and session.modules) or self._runtime.modules
        packages = self._runtime.packages_for(language, session and session.packages)
        offered = packages if packages is not None else modules if LANGUAGES[language].npm else None
        network = [*self._runtime.service_sources, *([session.network] if session and session.network else [])]
        mounts = () if self._kept_sessions is None else self._kept_sessions.mounts
        provider = self._provider(language)
        limits = self._runtime.limits
        skills = self._runtime.skills.skills if session is None else session.skills.skills
        return Surroundings(
            mounts=mounts if session is None else session.opened.space.mounts,
            files=() if session is None else session.files.some_names(),
            packages=(*(provider.packages if provider else ()), *(() if offered is None else offered.allowed)),
            python=_PYTHON if provider is not None and provider.name in _OWN_PYTHON else "",
            standard_library=provider is None or provider.name != "monty",
            origins=tuple(origin for source in network for origin in source.origins),
            skills=tuple((each.name, each.description, each.path) for each in skills.values()),
            calls=limits.calls,
            seconds=limits.wall_seconds,
            checked=bool(self._runtime.check),
        )

    def _provider(self, language: Language) -> SandboxProvider | None:
        """Returns the provider for a language, if one is usable here."""
        try:
            return self._runtime.providers.get(language)
        except (ConfigError, StartFailed):
            return None

    def _require_declarable(self) -> None:
        if self._sources.unknown:
            raise ConfigError(
                "tool sources are not open, so their tools are unknown; open the Corral (`async with corral`) or use "
                "`corral.connected()` first"
            )
        self._views.warn_once()


class _LazyTokens:
    """Creates the default issuer of tokens when the first token is needed."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._made: dict[str, Tokens] = {} if tokens is None else {"tokens": tokens}

    def __call__(self) -> Tokens:
        # `setdefault` is atomic: two threads would create two random keys, and both get the first
        return self._made.get("tokens") or self._made.setdefault("tokens", load_by_name("corral.tokens", "http"))
