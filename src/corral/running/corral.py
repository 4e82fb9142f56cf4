"""`Corral`: the public class, which connects all stages of the pipeline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from logging import NOTSET, WARNING, Logger, getLogger
from pathlib import Path
from typing import Protocol, Self, Unpack

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.audit import AuditLog, AuditSource, Telemetry, as_audit_log
from corral.bridges import BridgeHost, PeerHosts
from corral.bridges.selection import Bridges, Protocols
from corral.calls import (
    Grant,
    Grants,
    GuardSettings,
    ImpliedScopes,
    Pipeline,
    RateLimits,
    ServiceSource,
    Tokens,
    pipeline,
    undo_call,
)
from corral.checking import Case, Checker, CheckResult
from corral.concurrency.lifecycle import Lifecycle
from corral.concurrency.task_groups import plain_task_group
from corral.concurrency.task_owned import TaskOwnedContext
from corral.concurrency.threads import expect_threads, run_shielded_in_thread
from corral.containment import Tier
from corral.errors import ConfigError, ProgramRejected, StartFailed, UnknownProvider
from corral.events import EventStream, Observation, OnEvent
from corral.jail import LauncherClient
from corral.jail.spaces import SpaceHost
from corral.languages import LANGUAGES
from corral.ledger import LedgerSource, Records, as_ledger
from corral.logs import get_logger
from corral.model import LearntResults
from corral.packages import AnyPackages, NpmPackages, PythonPackages, split_packages
from corral.plugins import load_by_name
from corral.policy.flow import DataFlow
from corral.policy.policy import Policy, PolicyFiles, PolicySource, as_policy
from corral.programs.compiled import Compiler
from corral.results import ExecutionResult
from corral.running import Check, Execution, ExecutionRequest, Run, Runtime, check_mode, prepare
from corral.running.execution import why_not_durable
from corral.running.executions import Executions, claimed, earlier_calls, found_again
from corral.running.for_models import ForModels
from corral.running.journal import Recording
from corral.running.notebooks import Notebooks
from corral.running.options import LiveOptions, RunOptions, request_of
from corral.running.peer_decisions import PeerDecisions
from corral.running.remote import Remote
from corral.running.session import Session
from corral.running.sync import SyncCorral
from corral.running.tool_views import ToolViews
from corral.sandboxes.selection import Providers, Sandboxes
from corral.sessions import Keep, KeptSessions, KeptWorkspace, Mount, OpenSession, SessionFiles, Sessions, open_session
from corral.sessions.shell import Shell, ShellLimits
from corral.sessions.skills import Skill, SkillSet
from corral.tools.tool_sources import Tools, registry_and_sources
from corral.types import (
    Approve,
    Audience,
    Containment,
    Diagnostic,
    ExecutionContext,
    Language,
    Limits,
    MayDecide,
    SandboxConfig,
)

__all__ = ["Bridges", "Corral", "Sandboxes", "Tools"]

logger = get_logger("corral")
_UNREADY_SECONDS = 15.0
"""Seconds after a failed sandbox start for which the Corral is not ready. Without an end, it would never get the
program that shows its recovery."""


def _program_logger(parent: Logger) -> Logger:
    """Returns the logger of programs. It logs nothing unless its own level is set."""
    logger = parent.getChild("programs")
    if logger.level == NOTSET:
        logger.setLevel(WARNING)
    return logger


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

    `network` is a `corral.egress.Network` with the origins to which programs may send requests; with None, they have no
    network. `packages` are npm and Python packages that programs may import, in addition to those of the sandbox.
    `sessions` gives each caller with a `session_id` files that persist from one program to the next. `skills` are
    folders with `SKILL.md` and modules, which are read here; modules in TypeScript need `NpmPackages`, which bundle
    them. `compilers` are for programs in languages that compile to JavaScript, by the name for `execute(compiler=...)`.

    `ledger` records durable executions (`execute(durable=True)`): a `Ledger`, the path of a SQLite database, or the
    URL of a PostgreSQL database. The keys in CORRAL_LEDGER_KEYS seal its values.

    `resume_on_loss` continues durable executions by itself: in another sandbox if the connection to theirs is lost,
    and, while this Corral is open, those whose host is lost (`executions.resume_lost`).

    `may_decide` says who has the right to decide by `executions.settle`; None: the host checks that itself.

    `telemetry` sends spans and metrics to OpenTelemetry, by default to the process's providers, if any.

    `learnt` observes the results of tools that do not declare them, in order to describe these to models. By default it
    only records whether they are plain text or JSON.

    `policy` are rules about calls: one or more TOML files, a `Policy`, or another `PolicySource`. See docs/policy.md.

    `hide_denied` hides tools from callers who may not call them; None: if there is a policy.

    `containment` is the required `Containment` of sandboxes, or just its tier. The default is `landlock`, with all
    limits enforced.

    `check`: "auto" type-checks programs before their first call if a checker is available; "required" refuses to run a
    program that cannot be checked; "off" checks none. True means "auto", False "off".

    `peers` are other hosts behind the same address (`corral.bridges.peers`): a request with the token of another
    host's execution is forwarded there. All of them need the same token key.

    `logger` is the parent of the loggers of tools (`ToolCall.logger`) and programs; it defaults to the logger `corral`.
    Its child `programs` logs the source of every program at level INFO, but has the level WARNING unless you set
    another.

    Raises:
        ConfigError: an option is invalid, or options conflict.
    """

    def __init__(
        self,
        tools: Tools = (),
        *,
        sandbox: Sandboxes = "auto",
        bridge: Bridges = "pipe",
        limits: Limits | None = None,
        containment: Containment | Tier | None = None,
        network: ServiceSource | None = None,
        packages: AnyPackages | Iterable[AnyPackages] = (),
        sessions: Sessions | None = None,
        skills: Sequence[Skill | str | Path] = (),
        compilers: Mapping[str, Compiler] | None = None,
        check: Check = "auto",
        audit: AuditLog | AuditSource | None = None,
        ledger: LedgerSource | None = None,
        telemetry: Telemetry | bool = True,
        rates: RateLimits | None = None,
        implied_scopes: Mapping[str, Iterable[str]] | None = None,
        policy: PolicySource | PolicyFiles | None = None,
        hide_denied: bool | None = None,
        approve: Approve | None = None,
        approval_seconds: float = 300.0,
        may_decide: MayDecide | None = None,
        resume_on_loss: bool = False,
        tokens: Tokens | None = None,
        peers: PeerHosts | None = None,
        pipeline: Pipeline = pipeline,
        learnt: LearntResults | None = None,
        logger: Logger | None = None,
    ) -> None:
        if not approval_seconds > 0:
            raise ConfigError(f"Corral(): approval_seconds must be positive, not {approval_seconds}")
        self.tools, sources = registry_and_sources(tools)
        self.limits = limits or Limits()
        self.hide_denied = policy is not None if hide_denied is None else hide_denied
        self.approve = approve
        self.peers = peers
        self._may_decide = may_decide
        if isinstance(containment, str):
            containment = Containment(required=containment)
        self.can_be_kept = isinstance(sandbox, str) and bridge == "pipe" and not sources.missing
        """True if it can be closed in another event loop, or when the process exits."""
        if any(each is not None for each in (audit, ledger, rates, sessions, network, learnt, peers)):
            self.can_be_kept = False
        self.learnt = learnt or LearntResults()
        self._load_tokens = _LazyTokens(tokens)
        modules, python_packages = split_packages(packages)
        rates = rates or RateLimits()
        self.policy = rules = None if policy is None else as_policy(policy)
        self._records = None if ledger is None else Records(as_ledger(ledger))
        flow = DataFlow(rules, self._records) if isinstance(rules, Policy) else None
        audit_log = None if audit is None else as_audit_log(audit)
        traces = Telemetry() if telemetry is True else telemetry or None
        if peers is not None and getattr(self._load_tokens(), "key_is_random", False):
            raise ConfigError(
                "Corral(peers=...) needs a token key that all hosts share; set TOOL_BRIDGE_SECRET, or pass "
                "tokens=ExecutionTokens(KeyRing(...))"
            )
        grants = Grants(self._load_tokens, None if peers is None else peers.name)
        settings = GuardSettings(
            grants=grants,
            rates=rates,
            audit=audit_log,
            approve=approve,
            approval_seconds=approval_seconds,
            logger=logger,
            telemetry=traces,
            learnt=self.learnt,
            policy=rules,
            flow=flow,
        )
        handler = pipeline(settings)
        implied = ImpliedScopes(implied_scopes or {})
        skill_set = SkillSet(skills)
        runtime = Runtime(
            tools=self.tools,
            limits=self.limits,
            check=check_mode(check),
            providers=Providers(sandbox),
            checker=Checker(packages=None if modules is None else modules.node_modules),
            containment=containment or Containment(),
            protocols=Protocols(bridge, BridgeHost(handler, grants, peers)),
            handler=handler,
            undo=partial(undo_call, settings),
            grants=grants,
            rates=rates,
            implied=implied,
            audit=audit_log,
            parked=settings.parked,
            telemetry=traces,
            flow=flow,
            service_sources=() if network is None else (network,),
            modules=modules.with_skills(skill_set) if modules is not None and skill_set.skills else modules,
            packages=python_packages,
            skills=skill_set,
            compilers=dict(compilers or {}),
            learnt=self.learnt,
            program_logger=_program_logger(logger or getLogger("corral")),
        )
        views = ToolViews(self.tools, implied, hide_denied=self.hide_denied, learnt=self.learnt, policy=rules)
        super().__init__()
        self._runtime = runtime
        self._sources = sources
        self._sandbox = sandbox
        self._views = views
        self._peer_decisions: PeerDecisions | None = None
        if peers is not None:
            own = self._executions_among(None)
            self._peer_decisions = PeerDecisions(peers, runtime.parked.requests, own.settle)
        if resume_on_loss and self._records is None:
            raise ConfigError("resume_on_loss=True needs a ledger; make the Corral with Corral(ledger=...)")
        self._resume_on_loss = resume_on_loss
        self._resuming: TaskOwnedContext | None = None
        self._live: set[Execution] = set()
        self._sessions: set[OpenSession] = set()
        self._kept_sessions: KeptSessions | None = None
        if sessions is not None:
            self._kept_sessions = KeptSessions(sessions, partial(self._open_session, sessions))
            runtime.notebooks = Notebooks(sessions.idle_seconds, sessions.max_open)
        self._losing: set[asyncio.Task[None]] = set()
        self._commands = LauncherClient()
        self._draining = False
        self.first_language: Language | None = None
        """Language to prepare sandboxes for when it is opened, if known."""

    @checked
    async def drain(self, seconds: float = 30.0) -> bool:
        """Rejects new programs and waits until the running ones have ended; cancels them after `seconds`.

        Programs that run elsewhere count until their grant ends; `aclose` ends them. Returns False if any program was
        still running after `seconds`. Call `aclose` afterwards.
        """
        self._draining = True
        with anyio.move_on_after(seconds) as waiting:
            for execution in [*self._live]:
                await execution.ended.wait()
            await self._runtime.grants.all_ended()
        live = [*self._live]
        with anyio.CancelScope(shield=True):
            await _give_up(live)
            for execution in live:
                await execution.ended.wait()
        return not waiting.cancelled_caught

    @checked
    def unready(self) -> str | None:
        """Returns the reason why a load balancer should send no requests here; None if programs can run.

        It is not ready while it is not open or is draining, and for 15 s after a sandbox failed to start.
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
        with anyio.CancelScope(shield=True):
            if self._resuming is not None:
                await self._resuming.aclose()
            await _give_up(live)
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
                    await provider.aclose()  # a provider that other Corrals share keeps their sandboxes
            await run_shielded_in_thread(self._save_learnt)
            await runtime.rates.store.aclose()
            if self._records is not None:
                await self._records.writer.aclose()
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
        self._live, self._sessions, self._commands, self._resuming = set(), set(), LauncherClient(), None
        if self._kept_sessions is not None:
            self._kept_sessions = self._kept_sessions.empty()
        runtime.renew(Providers(self._sandbox))
        return behind

    @override
    async def _get_ready(self) -> None:
        """Opens tool sources and bridges, and warms sandboxes; raises if the required containment is not available."""
        self._reset_in_fork()
        if self._open:
            raise ConfigError("this Corral is already open")
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
            if self._resume_on_loss:
                self._resuming = TaskOwnedContext(self._resume_lost())
                await self._resuming.open()
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
    async def _resume_lost(self) -> AsyncGenerator[None]:
        async with plain_task_group() as tasks:
            tasks.start_soon(self.executions.keep_resuming)
            yield
            tasks.cancel_scope.cancel()

    @asynccontextmanager
    async def connected(self, *, bridges: bool = False) -> AsyncGenerator[Self]:
        """Opens only the tool sources during the block, which is enough to declare all tools.

        `bridges=True` also opens the bridges, such as a `GrpcBridge`'s server, which is enough to serve programs
        elsewhere.

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
        """Registers an execution during the block, so that `aclose` ends it."""
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
            SessionElsewhere: another host has the session of the context open.
            ConfigError: options conflict, or the Corral is closed.
            AccessDenied: `after` is an execution of another user or organization.
            HeldElsewhere: another host runs the execution with that `execution_id`.
            LedgerError: a durable execution could not be recorded.
        """
        execution = await self._new_execution(source, **options)
        with self._lives(execution):
            return await execution.run()

    @checked
    @asynccontextmanager
    async def start(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> AsyncGenerator[Run]:
        """Starts a program and yields its handle; leaving the block cancels the program if it still runs.

        Raises:
            See `execute`; if the sandbox does not start, `Run.result()` raises.
        """
        execution = await self._new_execution(source, **options)
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
    def can_be_durable(self, language: Language = "typescript", context: ExecutionContext | None = None) -> bool:
        """Returns True if programs of this caller can be durable: there is a ledger, and none of the obstacles that
        docs/durable.md lists."""
        if self._records is None:
            return False
        runtime, in_session = self._runtime, self._kept_session(context or ExecutionContext()) is not None
        try:
            provider = runtime.provider(language)
            protocol = runtime.protocols.supported_by(provider.name, provider.capabilities.bridges)
        except (ConfigError, StartFailed):
            return False  # the execution will say why
        return why_not_durable(provider.name, provider.capabilities, protocol.name, has_files=in_session) is None

    @checked
    @asynccontextmanager
    async def session(
        self,
        *,
        context: ExecutionContext | None = None,
        files: Sequence[Mount] = (Mount("/workspace"),),
        skills: Sequence[Skill | str | Path] = (),
        languages: Collection[Language] | None = None,
        packages: AnyPackages | Iterable[AnyPackages] = (),
        network: ServiceSource | None = None,
        shell: ShellLimits | bool = False,
        keep: Keep = "files",
    ) -> AsyncGenerator[Session]:
        """Opens directories shared by the programs of one user, and yields their handle. They end with the block.

        For its programs, `packages` replace the Corral's packages of the same language. `network` and `skills` are in
        addition to the Corral's; programs find all skills in /root/skills.

        With `shell`, `session.shell` runs commands in the same directories, within these bounds; without a mount at
        /tmp it is a scratch directory. Commands reach `network` through a proxy; see docs/shells.md.

        With `keep="variables"`, its programs also share variables, like cells of a notebook: programs in the same
        language run one after another in one process. See docs/notebooks.md.

        `languages` are the languages of its programs, for which guests are ready when the block begins. None allows all
        languages whose sandbox runs here and supports files; guests then start with the first program.

        Raises:
            ConfigError: mounts or skills conflict, a directory is missing, or no sandbox has files.
            LimitNotEnforceable: the jail of commands cannot enforce a limit that must be enforced.
            StartFailed: this system cannot create the directories or contain commands.
        """
        self._require_usable()
        caller = context or ExecutionContext()
        modules, python_packages = split_packages(packages)
        shells: SessionShells | None = load_by_name("corral.shells", "session") if shell else None
        mounts = tuple(files) if shells is None else shells.mounts(files)
        hosts = await self._space_hosts(caller, languages, python_packages, modules)
        skill_set = SkillSet([*self._runtime.skills.skills.values(), *skills]) if skills else self._runtime.skills

        async def open_(host: SpaceHost | None = None) -> OpenSession:
            commands = None if host is None else (host, SandboxConfig())
            return await open_session(caller, mounts, hosts, skill_set, commands=commands, keep=keep)

        if shells is not None:
            opened, space_shell = await shells.open(
                self._commands,
                open_,
                shell if isinstance(shell, ShellLimits) else ShellLimits(),
                required_tier=self._runtime.containment.required,
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
            if npm is not None and (modules or skills):  # otherwise the Corral's, which already include its skills
                npm = npm.with_skills(skill_set)
            yield Session(
                self,
                opened,
                modules=npm,
                packages=python_packages,
                network=network,
                skills=skill_set,
                shell=space_shell,
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
        """Yields the files of this context's session, one of those that `Corral(sessions=...)` keeps.

        The session stays open during the block.

        Raises:
            ConfigError: this Corral keeps no sessions, or the context has no `session_id`.
            StartFailed: it cannot be opened. SessionElsewhere: another host has it open.
        """
        self._require_usable()
        if self._kept_sessions is None:
            raise ConfigError("this Corral keeps no sessions; make it with Corral(sessions=Sessions())")
        if context.session_id is None:
            raise ConfigError("the context has no session_id; make it with ExecutionContext(session_id=...)")
        async with self._kept_sessions.session(context) as session:
            yield session.files

    def _kept_session(self, context: ExecutionContext) -> KeptWorkspace | None:
        """Session that the caller has named, if this Corral keeps sessions."""
        if self._kept_sessions is None or context.session_id is None:
            return None
        return KeptWorkspace(self._kept_sessions, context)

    async def _open_session(self, settings: Sessions, context: ExecutionContext) -> OpenSession:
        """Opens a session that is kept by name. Of several hosts, one at a time has it."""
        lease = None if self.peers is None else await self.peers.hold(context, partial(self._lose_session, context))
        try:
            hosts = await self._space_hosts(context, None)
            session = await open_session(
                context, tuple(settings.files), hosts, self._runtime.skills, keep=settings.keep
            )
        except BaseException:
            if lease is not None:
                await lease.release()
            raise
        session.lease = lease
        return session

    def _lose_session(self, context: ExecutionContext) -> None:
        """Ends the programs of a session that another host can have by now, and closes it. Its files are not stored."""

        async def close() -> None:
            live = [
                each
                for each in self._live
                if isinstance(each.workspace, KeptWorkspace) and each.workspace.is_of(context)
            ]
            for execution in live:
                execution.cancel()
            for execution in live:
                await execution.ended.wait()
            if self._kept_sessions is not None:
                await self._kept_sessions.close_of(context)

        def closed(closing: asyncio.Task[None]) -> None:
            self._losing.discard(closing)
            if not closing.cancelled() and (error := closing.exception()) is not None:
                logger.error("a session whose lease has ended could not be closed", exc_info=error)

        closing = asyncio.get_running_loop().create_task(close())  # only `RedisPeers` loses leases, on asyncio
        self._losing.add(closing)
        closing.add_done_callback(closed)

    async def _space_hosts(
        self,
        context: ExecutionContext,
        languages: Collection[Language] | None,
        packages: PythonPackages | None = None,
        modules: NpmPackages | None = None,
    ) -> dict[Language, tuple[SpaceHost, SandboxConfig]]:
        """Returns providers that create directories for programs in these languages; None stands for all languages that
        run here.

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
                owner=context.owner,
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
                text = f"sandbox {provider.name!r}, for {language}, does not support session files"
                raise ConfigError(f"{text}; use a sandbox on this machine")
        if failed is not None and not hosts:
            raise failed
        return hosts

    @checked
    def observe(self, callback: OnEvent, *, session_id: str | None = None) -> Observation:
        """Calls a sync or async function for every further event of all executions, or of those in one session.

        The observation ends with its `with` or `async with` block, or with `close()`. Executions do not wait for an
        async function; once it is 10,000 events behind, further events are dropped. The function's exceptions are
        logged.
        """
        return Observation(callback, session_id, self._runtime.observations)

    async def _new_execution(self, source: str | ExecutionRequest, **options: Unpack[RunOptions]) -> Execution:
        self._require_usable()
        self._require_sources()
        request = request_of(source, options)
        if request.execution_id is not None and not (request.durable or request.after):
            raise ConfigError("execution_id is for durable executions; add durable=True")
        if request.durable or request.after is not None:
            if self._records is None:
                raise ConfigError("durable=True needs a ledger; make the Corral with Corral(ledger=...)")
            if request.execution_id is not None:
                again = await found_again(self._records, request, request.execution_id)
                if again is not None:
                    return await self._recorded_execution(*again, options)
            return await self._recorded_execution(request, Recording(records=self._records), options)
        return self._execution(request, None, options)

    async def _run_recorded(
        self, request: ExecutionRequest, recording: Recording, options: LiveOptions
    ) -> ExecutionResult:
        """Runs an execution that continues or replays a recorded one."""
        execution = await self._recorded_execution(request, recording, options)
        with self._lives(execution):
            return await execution.run()

    async def _recorded_execution(
        self,
        request: ExecutionRequest,
        recording: Recording,
        options: RunOptions | LiveOptions,
        events: EventStream | None = None,
    ) -> Execution:
        try:
            if events is None:  # otherwise its program has begun before this Corral closes or drains
                self._require_usable()
                self._require_sources()
            if request.after is not None and recording.result is None and not recording.offline:
                tools = self._views.registry(options.get("tools"), request.context, hide_denied=False)
                earlier = await earlier_calls(recording, request.after, request.context, tools)
                recording = replace(recording, after=earlier)
            execution = self._execution(request, recording, options, events)
            if self._resume_on_loss and not recording.offline:
                execution.make_rest = partial(self._rest, execution.execution_id, request.context, options)
            return execution
        except BaseException:
            if recording.claim is not None:
                status = "paused" if recording.was_paused else "running"
                with anyio.CancelScope(shield=True):
                    await recording.records.end(recording.claim, status, None)
            raise

    async def _rest(
        self, execution_id: str, context: ExecutionContext, options: RunOptions | LiveOptions, events: EventStream
    ) -> Execution:
        """Makes the execution that continues one whose sandbox was lost. Raises as `executions.resume`."""
        assert self._records is not None
        request, recording = await claimed(self._records, execution_id, context)
        return await self._recorded_execution(request, recording, options, events)

    def _grant_to_undo(self, execution_id: str, request: ExecutionRequest, tools: Tools | None) -> Grant:
        self._require_usable()
        self._require_sources()
        registry, services = self._views.callable_tools(tools, request.context, False, request.language)
        return Grant(
            execution_id=execution_id,
            context=request.context,
            scopes=self._runtime.implied.held_with(request.context.scopes),
            limits=request.limits or self._runtime.limits,
            tools=registry,
            services=services,
        )

    def _execution(
        self,
        request: ExecutionRequest,
        recording: Recording | None,
        options: RunOptions | LiveOptions,
        events: EventStream | None = None,
    ) -> Execution:
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
            on_event=options.get("on_event") if events is None else None,
            approve=options.get("approve"),
            recording=recording,
            events=events,
        )
        if self._runtime.check_of(request) != "off":
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
        """Type-checks a program without running it. Waits until a language server is ready.

        `env` says whether the program would have environment variables. `context` is the caller, if denied tools are
        hidden. If the Corral is not open, call `aclose` to end the server.

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
        lacks = self._runtime.providers.get(language).capabilities.lacks
        case = Case(
            program, registry, env=env, must=True, modules=modules, network=network, lacks=lacks, context=context
        )
        verdict = await self._runtime.checker.verdict(case)
        return CheckResult(
            language=language,
            checked=verdict.unchecked is None,
            unchecked=verdict.unchecked,
            diagnostics=(*verdict.diagnostics, *program.diagnostics),
        )

    @property
    def model(self) -> ForModels:
        """Texts and tools for models."""
        return ForModels(
            self._runtime,
            self._views,
            self.execute,
            expect_sources=self._require_declarable,
            has_ledger=self._records is not None,
            kept=None if self._kept_sessions is None else self._kept_sessions.settings,
        )

    @property
    def remote(self) -> Remote:
        """Programs that run elsewhere."""
        return Remote(
            self._runtime, self._views, expect_usable=self._require_usable, expect_sources=self._require_sources
        )

    @property
    def executions(self) -> Executions:
        """Executions by id."""
        return self._executions_among(self._peer_decisions)

    def _executions_among(self, peers: PeerDecisions | None) -> Executions:
        return Executions(
            self._runtime.parked,
            lambda: self._live,
            self._records,
            self._run_recorded,
            self._grant_to_undo,
            self._runtime.undo,
            may_decide=self._may_decide,
            registry=self._views.registry,
            is_closed=lambda: self._closed,
            peers=peers,
        )

    @property
    def sync(self) -> SyncCorral:
        """The same methods for callers without an event loop. `with Corral(...).sync as corral` opens and closes it."""
        return SyncCorral(self, self._in_a_loop, self._in_the_loop)

    def _require_declarable(self) -> None:
        if self._sources.unknown:
            raise ConfigError(
                "tool sources are not open, so their tools are unknown; open the Corral (`async with corral`) or use "
                "`corral.connected()` first"
            )
        self._views.warn_once()


async def _give_up(live: Iterable[Execution]) -> None:
    async with anyio.create_task_group() as tasks:
        for execution in live:
            tasks.start_soon(execution.give_up)


class _LazyTokens:
    """Creates the default issuer of tokens when the first token is needed."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._made: dict[str, Tokens] = {} if tokens is None else {"tokens": tokens}

    def __call__(self) -> Tokens:
        # `setdefault` is atomic: if two threads create two random keys, both get the first
        return self._made.get("tokens") or self._made.setdefault("tokens", load_by_name("corral.tokens", "http"))
