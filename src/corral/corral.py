"""`Corral`: the public class, which wires all stages of the pipeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from threading import Lock
from typing import Self, TypedDict, TypeVar, Unpack

import anyio
from typing_extensions import override

from corral.arguments import checked
from corral.audit import AuditLog, AuditSource, as_audit_log
from corral.bridges import (
    Approve,
    ASGIApp,
    BridgeProtocol,
    Grant,
    Grants,
    ImpliedScopes,
    OutsideExecution,
    PipeBridge,
    Pipeline,
    Policy,
    RateLimits,
    Tokens,
    pipeline,
)
from corral.checking import Case, Checker, CheckResult
from corral.concurrency.lifecycle import Lifecycle
from corral.concurrency.threads import run_shielded_in_thread
from corral.declarations import Catalog, declare_python, declare_typescript
from corral.errors import ConfigError, ProgramRejected
from corral.event_listener import OnEvent
from corral.execution import Check, Execution, ExecutionRequest, Run, Runtime, prepare
from corral.model_tools import ModelOptions, ModelTool, model_tools, system_prompt
from corral.plugins import load_by_name
from corral.results import ExecutionResult
from corral.sandboxes.selection import Providers, Sandboxes
from corral.tool_sources import Tools, registry_and_sources
from corral.tool_views import ToolViews
from corral.tools import Tool, ToolRegistry
from corral.types import Audience, Diagnostic, ExecutionContext, Language, Limits, SandboxConfig, Tier

__all__ = ["Corral", "Sandboxes", "Tools"]

T = TypeVar("T")


class RunOptions(TypedDict, total=False):
    """Options of one execution, over the defaults of its `Corral`."""

    language: Language
    context: ExecutionContext | None
    limits: Limits | None
    env: Mapping[str, str] | None
    check: Check | None
    tools: Tools | None
    hide_denied: bool | None
    on_event: OnEvent | None


@checked
class Corral(Lifecycle):
    """Runs models' programs against tools, each in its own sandbox.

    The constructor and `declarations` do no input or output. Executions may overlap. `aclose`, from any task of the
    same event loop, cancels those that still run and frees all resources.

    Raises:
        ConfigError: the options are wrong or do not fit together.
    """

    def __init__(
        self,
        tools: Tools = (),
        *,
        sandbox: Sandboxes = "auto",
        bridge: str | BridgeProtocol = "pipe",
        limits: Limits | None = None,
        required_tier: Tier = "landlock",
        check: Check = True,
        audit: AuditLog | AuditSource | None = None,
        rates: RateLimits | None = None,
        implied_scopes: Mapping[str, Iterable[str]] | None = None,
        hide_denied: bool = False,
        approve: Approve | None = None,
        approval_seconds: float = 300.0,
        tokens: Tokens | None = None,
        pipeline: Pipeline = pipeline,
    ) -> None:
        if not approval_seconds > 0:
            raise ConfigError(f"Corral(): approval_seconds must be positive, not {approval_seconds}")
        super().__init__()
        self.tools, self._sources = registry_and_sources(tools)
        self.limits = limits or Limits()
        self.required_tier: Tier = required_tier
        self.check_by_default: Check = check
        self._sandbox = sandbox
        self._rates = rates or RateLimits()
        self._tokens = tokens
        self._loading = Lock()
        audit_log = None if audit is None else as_audit_log(audit)
        grants = Grants(self._load_tokens)
        policy = Policy(
            grants=grants, rates=self._rates, audit=audit_log, approve=approve, approval_seconds=approval_seconds
        )
        self._runtime = Runtime(
            providers=Providers(sandbox),
            checker=Checker(),
            warm_up=self._warm_up,
            required_tier=required_tier,
            bridge=bridge if isinstance(bridge, BridgeProtocol) else load_by_name("corral.bridges", bridge),
            handler=pipeline(policy),
            grants=grants,
            implied=ImpliedScopes(implied_scopes or {}),
            audit=audit_log,
        )
        self.hide_denied = hide_denied
        self._views = ToolViews(self.tools, self._runtime.implied, hide_denied=hide_denied)
        self._live: set[Execution] = set()
        self._warm: set[Language] = set()
        self._warming = anyio.Lock()

    # --- running programs

    @checked
    async def execute(self, source: str, **options: Unpack[RunOptions]) -> ExecutionResult:
        """Runs a program to its end. The result holds whatever the program did, errors included.

        Raises:
            StartFailed: the sandbox did not start.
            ConfigError: the options do not fit together, or the Corral is closed.
        """
        execution = self._execution(source, **options)
        with self._lives(execution):
            return await execution.run()

    @checked
    @asynccontextmanager
    async def start(self, source: str, **options: Unpack[RunOptions]) -> AsyncGenerator[Run]:
        """Starts a program and yields its handle; leaving the block cancels a program that still runs.

        Raises:
            As `execute`; a sandbox that does not start raises from `Run.result()`.
        """
        execution = self._execution(source, **options)
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            run = Run(execution)
            with self._lives(execution):
                tasks.start_soon(run.drive)
                try:
                    yield run
                except BaseException as error:  # raised below: a task group would wrap it
                    failure = error
                execution.cancel()
                with anyio.CancelScope(shield=True):
                    await run.done.wait()
                run.close()
        if failure is not None:
            raise failure

    @checked
    def execute_sync(self, source: str, **options: Unpack[RunOptions]) -> ExecutionResult:
        """Runs `execute` for callers without an event loop, in a thread with its own loop.

        Inside `with Corral(...)` the loop lives on between calls.

        Raises:
            ConfigError: this thread already runs an event loop; await `execute` there.
        """
        return self._in_a_loop(partial(self.execute, source, **options))

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

        `env`: True if the program would get an environment. `context`: the caller, if denied tools are hidden. On a
        Corral that is not open, `aclose` ends the server.

        Raises:
            ConfigError: the language is unknown, or the Corral is closed.
        """
        self._require_usable()
        context = audience.get("context")
        registry = self._views.registry(tools, **audience)
        try:
            program = await prepare(source, language, self.limits, context)
        except ProgramRejected as error:
            rejected = Diagnostic(
                severity="error", message=str(error), code=error.code, line=error.line, column=error.column
            )
            return CheckResult(language=language, checked=False, diagnostics=(rejected,))
        self._runtime.checker.start(language, self.tools)
        case = Case(source, language, registry, env=env, must=True, references=program.references, context=context)
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
            ConfigError: as `check` and `execute_sync`.
        """
        return self._in_a_loop(partial(self.check, source, language, tools=tools, env=env, **audience))

    # --- texts and tools for models

    @checked
    def tools_for(self, context: ExecutionContext | None = None, *, hide_denied: bool | None = None) -> ToolRegistry:
        """Returns the tools that this caller sees: all, or without denied ones if those are hidden."""
        return self._views.registry(None, context, hide_denied)

    @checked
    def declarations(self, language: Language = "typescript", **audience: Unpack[Audience]) -> str:
        """Declares the tools in the program's language: the same text for the same tools, in a stable order.

        Raises:
            ConfigError: the language is unknown, or tool sources are not open.
        """
        self._require_declarable()
        declare = declare_python if language == "python" else declare_typescript
        return declare(self._views.registry(**audience).snapshot())

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
        """Makes a catalog of the tools within a budget of tokens: full declarations, or shorter ones of some tools.

        `first`: names of tools and namespaces to declare in full first. `tools`: the tools of one execution, instead of
        the Corral's. `context`: the caller, if denied tools are hidden; without one the catalog has the tools that need
        no scope, and says that there may be more.

        Raises:
            ConfigError: the language is unknown, or the budget is too small.
        """
        self._require_declarable()
        return self._views.catalog(
            language, budget_tokens=budget_tokens, count_tokens=count_tokens, first=first, tools=tools, **audience
        )

    @checked
    def model_tool(self, language: Language = "typescript", **options: Unpack[ModelOptions]) -> ModelTool:
        """Makes the tool that runs a model's programs. Its description explains programs and declares the tools.

        Raises:
            ConfigError: the language is unknown, or the name is not a tool's.
        """
        return self.model_tools(language, **options)[0]

    @checked
    def model_tools(self, language: Language = "typescript", **options: Unpack[ModelOptions]) -> tuple[ModelTool, ...]:
        """Makes `model_tool`, and `search_tools` and `describe_tools` unless the catalog declares every tool in full.

        Raises:
            ConfigError: as `model_tool`.
        """
        hidden, tools = options.get("hide_denied"), options.get("tools")
        catalog = options.get("catalog") or self.catalog(
            language, tools=tools, context=options.get("context"), hide_denied=hidden
        )

        def discovery(context: ExecutionContext) -> Mapping[str, Tool]:
            return self._views.discovery(self._views.registry(tools, context, hidden), language)

        return model_tools(partial(self.execute, tools=tools), language, catalog, discovery, options)

    @checked
    def system_prompt(
        self,
        base: str = "",
        *,
        language: Language = "typescript",
        catalog: Catalog | None = None,
        **audience: Unpack[Audience],
    ) -> str:
        """Appends to `base` the rules for programs and the tools, which `model_tool(in_prompt=True)` leaves out.

        The same tools give the same text, so that providers' prompt caches stay valid.

        Raises:
            ConfigError: the language is unknown.
        """
        return system_prompt(base, language, {"": catalog or self.catalog(language, **audience)})

    def _require_declarable(self) -> None:
        if self._sources.unknown:
            raise ConfigError(
                "tool sources are not open, so their tools are unknown; open the Corral (`async with corral`) or use "
                "`corral.connected()` first"
            )
        self._views.warn_once()

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
        registry = self._views.registry(tools, context, hide_denied)
        grant = Grant(
            context=context,
            scopes=self._runtime.implied.held_with(context.scopes),
            limits=limits or self.limits,
            tools=registry,
            lives_seconds=lives_seconds,
            services=self._views.discovery(registry, language, keep=tools is None),
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
    def asgi_app(self, protocol: BridgeProtocol | None = None) -> ASGIApp:
        """Returns the bridge as an app for a web server: `protocol`, or this Corral's bridge, or `HttpBridge()`.

        Raises:
            ConfigError: the protocol is not mounted in a web server.
            MissingExtra: the protocol's extra is not installed.
        """
        chosen: BridgeProtocol = protocol or self._runtime.bridge
        if protocol is None and isinstance(chosen, PipeBridge):
            chosen = load_by_name("corral.bridges", "http")
        return chosen.asgi_app(self._runtime.handler, self._runtime.grants)

    def _load_tokens(self) -> Tokens:
        with self._loading:  # two threads must not make two random keys
            if self._tokens is None:
                self._tokens = load_by_name("corral.tokens", "http")
            return self._tokens

    # --- opening and closing

    @override
    async def aclose(self) -> None:
        """Cancels running executions, waits for their end, and frees sandboxes and sources. Idempotent.

        In a fork of the process that opened it, it leaves that process's resources alone.
        """
        if not self._owner.is_current:
            self._reset_in_fork()
            return
        self._expect_no_closing()
        if self._runtime.grants.is_calling():
            raise ConfigError("a tool cannot close the Corral that runs it")
        self._closed = True
        self._open = False
        live = list(self._live)
        for execution in live:
            execution.cancel()
        with anyio.CancelScope(shield=True):
            await self._runtime.grants.close_all()
            for execution in live:
                await execution.ended.wait()
            await self._sources.aclose()
            await run_shielded_in_thread(self._runtime.checker.close)
            for provider in self._runtime.providers.made:
                await provider.aclose()  # a provider shared with other Corrals keeps their sandboxes
            await self._rates.store.aclose()
            if self._runtime.audit is not None:
                await self._runtime.audit.aclose()

    def __repr__(self) -> str:
        state = "open" if self._open else "closed" if self._closed else "not open"
        count = len(self.tools)
        return f"<Corral of {count} tool{'' if count == 1 else 's'}, {state}>"

    @override
    def _renew(self) -> object:
        runtime = self._runtime
        behind = self._sources, runtime.checker, runtime.providers
        self._sources = self._sources.copy()
        runtime.providers, runtime.checker = Providers(self._sandbox), Checker()
        self._live, self._warm = set(), set()
        self._loading, self._warming = Lock(), anyio.Lock()
        return behind

    @override
    async def _get_ready(self) -> None:
        """Opens tool sources and warms sandboxes; raises if the required isolation is not available."""
        self._reset_in_fork()
        if self._open:
            raise ConfigError("this Corral is open already")
        self._warm.clear()
        was_closed, self._closed = self._closed, False
        if was_closed:
            self._runtime.checker = Checker()
        try:
            await self._sources.open()
            if self._closed:
                raise ConfigError("this Corral was closed while it was being opened")
            self._open = True
            await self._runtime.providers.warm_up(self._warm_up)
            self._expect_closing()
        except BaseException:
            self._open, self._closed = False, was_closed
            with anyio.CancelScope(shield=True):
                await self._sources.aclose()
                await run_shielded_in_thread(self._runtime.checker.close)
            self._runtime.checker = Checker()
            raise

    async def _warm_up(self, language: Language) -> None:
        """Keeps sandboxes of this language ready from now on, if this Corral is open, and so will be closed.

        Raises:
            StartFailed: no sandbox can be started.
        """
        if not self._open or language in self._warm:
            return
        if self.check_by_default:
            self._runtime.checker.start(language, self.tools)
        async with self._warming:
            if language not in self._warm:
                await self._runtime.providers.get(language).warm(
                    SandboxConfig(language=language, memory_mb=self.limits.memory_mb, required_tier=self.required_tier)
                )
                self._warm.add(language)

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Self]:
        """Opens only the tool sources, for the duration of the block: enough to declare all tools.

        Raises:
            CorralError: a required tool source cannot be opened.
        """
        self._require_own()
        if self._open:
            yield self
            return
        await self._sources.open()
        try:
            yield self
        finally:
            await self._sources.aclose()

    # --- putting an execution together

    def _execution(self, source: str, **options: Unpack[RunOptions]) -> Execution:
        self._require_usable()
        self._require_sources()
        language: Language = options.get("language", "typescript")
        context = options.get("context") or ExecutionContext()
        tools, check = options.get("tools"), options.get("check")
        registry = self._views.registry(tools, context, options.get("hide_denied"))
        request = ExecutionRequest(
            source=source,
            language=language,
            context=context,
            limits=options.get("limits") or self.limits,
            env=options.get("env"),
            check=self.check_by_default if check is None else check,
            tools=registry,
            services=self._views.discovery(registry, language, keep=tools is None),
            on_event=options.get("on_event"),
        )
        execution = Execution(self._runtime, request)
        if request.check:
            self._runtime.checker.start(language, self.tools)
        return execution

    def _require_usable(self) -> None:
        self._require_own()
        if self._closed:
            raise ConfigError("this Corral is closed")

    def _require_sources(self) -> None:
        if self._sources.missing:
            raise ConfigError(
                "this Corral has tool sources, which are not open; open it with `async with corral` or `with corral`"
            )

    @contextmanager
    def _lives(self, execution: Execution) -> Generator[None]:
        self._live.add(execution)
        try:
            yield
        finally:
            self._live.discard(execution)
