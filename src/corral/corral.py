"""`Corral`: the one module that wires all stages of the pipeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from threading import Lock
from typing import Literal, Self, TypeAlias, TypedDict, TypeVar, Unpack

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
    ValueRoom,
    pipeline,
)
from corral.checking import Case, Checker, CheckResult
from corral.concurrency.lifecycle import Lifecycle
from corral.concurrency.threads import run_shielded_in_thread
from corral.declarations import Catalog, declare_python, declare_typescript
from corral.errors import ConfigError, LimitNotEnforceable, ProgramRejected
from corral.execution import Execution, Run, prepare
from corral.model_tools import ModelOptions, ModelTool, model_tools, system_prompt
from corral.observers import OnEvent
from corral.plugins import load_by_name
from corral.presentation import Presentation
from corral.results import ExecutionResult
from corral.sandboxes.selection import Providers, Sandboxes
from corral.tool_sources import Tools, connections_of
from corral.tools import Tool, ToolRegistry
from corral.types import Audience, Diagnostic, ExecutionContext, Language, Limits, SandboxConfig, Tier

__all__ = ["Corral", "Sandboxes", "Tools"]

T = TypeVar("T")

Check: TypeAlias = bool | Literal["required"]
"""Programs are type-checked before their first call where that can be had; never; or else they do not run."""

_CORE_LIMITS = frozenset({"wall_seconds", "source_bytes"})
"""Limits that are held outside of any sandbox."""


class RunOptions(TypedDict, total=False):
    """What one execution may set for itself, over the defaults of its `Corral`."""

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
    """Runs models' programs against tools, each in a sandbox of its own.

    Constructing one and asking for declarations does no input or output. Executions may overlap freely; `aclose`, which
    any task of the same event loop may call, cancels those that still run and leaves nothing behind.

    Raises:
        ConfigError: of one of its kinds, where the parts do not fit together.
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
        self.tools, self._connections = connections_of(tools)
        self.limits = limits or Limits()
        self.required_tier: Tier = required_tier
        self.check_by_default: Check = check
        self._checker = Checker()
        self._sandbox = sandbox
        self._providers = Providers(sandbox)
        self._bridge = bridge if isinstance(bridge, BridgeProtocol) else load_by_name("corral.bridges", bridge)
        self._rates = rates or RateLimits()
        self._values = ValueRoom()
        self._audit = None if audit is None else as_audit_log(audit)
        self._implied = ImpliedScopes(implied_scopes or {})
        self.hide_denied = hide_denied
        self._shown = Presentation(self.tools, self._implied, hide_denied=hide_denied)
        self._tokens = tokens
        self._loading = Lock()
        self._grants = Grants(self._load_tokens)
        self._handler = pipeline(
            Policy(
                grants=self._grants,
                rates=self._rates,
                audit=self._audit,
                approve=approve,
                approval_seconds=approval_seconds,
            )
        )
        self._live: set[Execution] = set()
        self._warm: set[Language] = set()
        self._warming = anyio.Lock()

    # --- running programs

    @checked
    async def execute(self, source: str, **options: Unpack[RunOptions]) -> ExecutionResult:
        """Runs a program to its end. Whatever the program does is in the result.

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
        """Starts a program and yields its handle; leaving the block cancels what still runs.

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
        """`execute` for callers without an event loop; it runs in a thread with a loop of its own.

        Inside `with Corral(...)` the loop is kept between calls.

        Raises:
            ConfigError: this thread already runs an event loop; there, await `execute`.
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
        """Says what is wrong with a program, without running it; waits until a language server is ready.

        `env`: an environment would be passed to the program. On a Corral that is not open, `aclose` ends the server.
        Where tools are hidden from those who may not call them, `context` says whose program it is.

        Raises:
            ConfigError: no programs are in this language, or the Corral is closed.
        """
        self._require_usable()
        context = audience.get("context")
        registry = self._shown.registry(tools, **audience)
        try:
            program = await prepare(source, language, self.limits, context)
        except ProgramRejected as error:
            rejected = Diagnostic(
                severity="error", message=str(error), code=error.code, line=error.line, column=error.column
            )
            return CheckResult(language=language, checked=False, diagnostics=(rejected,))
        self._checker.start(language, self.tools)
        case = Case(source, language, registry, env=env, must=True, references=program.references, context=context)
        verdict = await self._checker.verdict(case)
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
        """`check` for callers without an event loop, as `execute_sync` is.

        Raises:
            ConfigError: as `check` and `execute_sync`.
        """
        return self._in_a_loop(partial(self.check, source, language, tools=tools, env=env, **audience))

    # --- what models are told

    @checked
    def tools_for(self, context: ExecutionContext | None = None, *, hide_denied: bool | None = None) -> ToolRegistry:
        """The tools as this caller sees them: all, unless those that it may not call are hidden from it."""
        return self._shown.registry(None, context, hide_denied)

    @checked
    def declarations(self, language: Language = "typescript", **audience: Unpack[Audience]) -> str:
        """The tools' declarations in the program's language: the same text for the same tools, in a stable order.

        Raises:
            ConfigError: no programs are in this language, or tools come from what is not open.
        """
        self._require_declarable()
        declare = declare_python if language == "python" else declare_typescript
        return declare(self._shown.registry(**audience).snapshot())

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
        """What to tell a model of the tools within a budget of tokens: their declarations, or less of some of them.
        `first` are names of tools and namespaces to be shown in full before others are shown. `tools` are others than
        the Corral's, as of one execution.

        Where tools are hidden from those who may not call them, `context` says who it is for; without it, it has what
        anybody may call, and says that there may be more.

        Raises:
            ConfigError: no programs are in this language, or the budget is too small.
        """
        self._require_declarable()
        return self._shown.catalog(
            language, budget_tokens=budget_tokens, count_tokens=count_tokens, first=first, tools=tools, **audience
        )

    @checked
    def model_tool(self, language: Language = "typescript", **options: Unpack[ModelOptions]) -> ModelTool:
        """The tool by which a model runs programs; its description says how to write them, and declares the tools.

        Raises:
            ConfigError: no programs are in this language, or no tool can have this name.
        """
        return self.model_tools(language, **options)[0]

    @checked
    def model_tools(self, language: Language = "typescript", **options: Unpack[ModelOptions]) -> tuple[ModelTool, ...]:
        """`model_tool`; and `search_tools` and `describe_tools`, unless the catalog declares every tool in full.

        Raises:
            ConfigError: as `model_tool`.
        """
        hidden, tools = options.get("hide_denied"), options.get("tools")
        catalog = options.get("catalog") or self.catalog(
            language, tools=tools, context=options.get("context"), hide_denied=hidden
        )

        def discovery(context: ExecutionContext) -> Mapping[str, Tool]:
            return self._shown.discovery(self._shown.registry(tools, context, hidden), language)

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
        """`base`, and then how to write programs, and the tools: what `model_tool(in_prompt=True)` leaves out.

        The same tools give the same text, as of descriptions, so that what providers cache of a prompt stays good.

        Raises:
            ConfigError: no programs are in this language.
        """
        return system_prompt(base, language, {"": catalog or self.catalog(language, **audience)})

    def _require_declarable(self) -> None:
        if self._connections.unknown:
            raise ConfigError(
                "what tools come from is not open: declare them within `async with corral`, or `corral.connected()`"
            )
        self._shown.warn_once()

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
        """Lets a program that runs elsewhere call tools, through `asgi_app`, until the block, or its life, is over.

        Of the limits those of calls hold; the program itself is nobody's here. `language` is what `tools.describe`
        answers it in.

        Raises:
            ConfigError: the Corral is closed, or no programs are in this language.
        """
        self._require_usable()
        self._require_connections()
        registry = self._shown.registry(tools, context, hide_denied)
        grant = Grant(
            context=context,
            scopes=self._implied.held_with(context.scopes),
            limits=limits or self.limits,
            tools=registry,
            lives_seconds=lives_seconds,
            discovery=self._shown.discovery(registry, language, keep=tools is None),
        )
        self._grants.open(grant)
        return OutsideExecution(grant, self._grants)

    @checked
    def execution_token(self, context: ExecutionContext, ttl_seconds: float = 300.0) -> str:
        """A token for one program that runs elsewhere. It cannot be renewed beyond `ttl_seconds`, at most 300.

        Raises:
            ConfigError: it cannot be issued as asked.
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
        """The bridge as an app to mount in a web server: `protocol`, or this Corral's bridge, or `HttpBridge()`.

        Raises:
            ConfigError: the protocol is not mounted in a web server.
            MissingExtra: its extra is not installed.
        """
        chosen: BridgeProtocol = protocol or self._bridge
        if protocol is None and isinstance(self._bridge, PipeBridge):
            chosen = load_by_name("corral.bridges", "http")
        return chosen.asgi_app(self._handler, self._grants)

    def _load_tokens(self) -> Tokens:
        with self._loading:  # two random keys would be one too many
            if self._tokens is None:
                self._tokens = load_by_name("corral.tokens", "http")
            return self._tokens

    # --- its life

    @override
    async def aclose(self) -> None:
        """Cancels what still runs, waits until it has ended and frees what sandboxes keep. Idempotent.

        In a fork of the process that opened it, it leaves alone what is that process's.
        """
        if not self._owner.is_current:
            self._reset_in_fork()
            return
        self._expect_no_closing()
        if self._grants.is_calling():
            raise ConfigError("a tool cannot close the Corral that runs it")
        self._closed = True
        self._open = False
        live = list(self._live)
        for execution in live:
            execution.cancel()
        with anyio.CancelScope(shield=True):
            await self._grants.close_all()
            for execution in live:
                await execution.ended.wait()
            await self._connections.aclose()
            await run_shielded_in_thread(self._checker.close)
            for provider in self._providers.made:
                await provider.aclose()  # a provider that others use too keeps their sandboxes
            await self._rates.store.aclose()
            if self._audit is not None:
                await self._audit.aclose()

    def __repr__(self) -> str:
        state = "open" if self._open else "closed" if self._closed else "not open"
        count = len(self.tools)
        return f"<Corral of {count} tool{'' if count == 1 else 's'}, {state}>"

    @override
    def _renew(self) -> object:
        behind = self._connections, self._checker, self._providers
        self._connections = self._connections.copy()
        self._providers = Providers(self._sandbox)
        self._checker = Checker()
        self._live, self._warm = set(), set()
        self._loading, self._warming = Lock(), anyio.Lock()
        return behind

    @override
    async def _get_ready(self) -> None:
        """Opens what tools come from, gets sandboxes ready; refuses where the required isolation is not to be had."""
        self._reset_in_fork()
        if self._open:
            raise ConfigError("this Corral is open already")
        self._warm.clear()
        was_closed, self._closed = self._closed, False
        if was_closed:
            self._checker = Checker()
        try:
            await self._connections.open()
            if self._closed:
                raise ConfigError("this Corral was closed while it was being opened")
            self._open = True
            await self._providers.warm_up(self._warm_up)
            self._expect_closing()
        except BaseException:
            self._open, self._closed = False, was_closed
            with anyio.CancelScope(shield=True):
                await self._connections.aclose()
                await run_shielded_in_thread(self._checker.close)
            self._checker = Checker()
            raise

    async def _warm_up(self, language: Language) -> None:
        """Keeps sandboxes of this language ready from now on, if this Corral is open: somebody will close it then.

        Raises:
            StartFailed: none can be started.
        """
        if not self._open or language in self._warm:
            return
        if self.check_by_default:
            self._checker.start(language, self.tools)
        async with self._warming:
            if language not in self._warm:
                await self._providers.get(language).warm(
                    SandboxConfig(language=language, memory_mb=self.limits.memory_mb, required_tier=self.required_tier)
                )
                self._warm.add(language)

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[Self]:
        """Within the block, what its tools come from is open, and nothing else of it: enough to declare all tools.

        Raises:
            CorralError: a source of tools that is required cannot be opened.
        """
        self._require_own()
        if self._open:
            yield self
            return
        await self._connections.open()
        try:
            yield self
        finally:
            await self._connections.aclose()

    # --- putting an execution together

    def _execution(
        self,
        source: str,
        *,
        language: Language = "typescript",
        context: ExecutionContext | None = None,
        limits: Limits | None = None,
        env: Mapping[str, str] | None = None,
        check: Check | None = None,
        tools: Tools | None = None,
        hide_denied: bool | None = None,
        on_event: OnEvent | None = None,
    ) -> Execution:
        self._require_usable()
        self._require_connections()
        limits = limits or self.limits
        context = context or ExecutionContext()
        provider = self._providers.get(language)
        if self._bridge.name not in provider.capabilities.bridges:
            raise ConfigError(f"sandbox {provider.name!r} cannot reach tools by bridge {self._bridge.name!r}")
        held = provider.capabilities.enforces | _CORE_LIMITS
        loose = [name for name in Limits.model_fields if name not in held]
        if loose:
            raise LimitNotEnforceable(
                f"sandbox {provider.name!r} cannot hold {', '.join(loose)} on this system; so far it can on Linux only"
            )
        registry = self._shown.registry(tools, context, hide_denied)
        check = self.check_by_default if check is None else check
        if check:
            self._checker.start(language, self.tools)
        return Execution(
            source=source,
            language=language,
            context=context,
            scopes=self._implied.held_with(context.scopes),
            limits=limits,
            required_tier=self.required_tier,
            env=env,
            tools=registry,
            discovery=self._shown.discovery(registry, language, keep=tools is None),
            provider=provider,
            warm_up=partial(self._warm_up, language),
            bridge=self._bridge,
            handler=self._handler,
            grants=self._grants,
            checker=self._checker if check else None,
            must_be_checked=check == "required",
            audit=self._audit,
            values=self._values,
            on_event=on_event,
        )

    def _require_usable(self) -> None:
        self._require_own()
        if self._closed:
            raise ConfigError("this Corral is closed")

    def _require_connections(self) -> None:
        if self._connections.missing:
            raise ConfigError("this Corral connects to what tools come from: open it, with `async with` or `with`")

    @contextmanager
    def _lives(self, execution: Execution) -> Generator[None]:
        self._live.add(execution)
        try:
            yield
        finally:
            self._live.discard(execution)
