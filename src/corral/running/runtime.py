"""Parts that the executions of one Corral share, and the first phase of each."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from logging import Logger

import anyio

from corral.audit import AuditEvent, AuditLog, Telemetry, digest, new_event_id
from corral.bridges.selection import Protocols
from corral.calls import (
    Call,
    Grants,
    Handler,
    ImpliedScopes,
    ParkedCalls,
    RateLimits,
    ServiceSource,
    ValueRoom,
    outcome_of,
    record_denial,
)
from corral.checking import Checker
from corral.containment import Space, Tier
from corral.errors import ConfigError, LimitNotEnforceable, ProgramRejected
from corral.events import Observation
from corral.jail.workers import WorkerError, run_bounded, run_in_worker
from corral.languages import LANGUAGES
from corral.model import LearntResults
from corral.npm import NpmModules
from corral.packages import NpmPackages, PythonPackages
from corral.policy.flow import DataFlow
from corral.programs import TooLongToParse, parsing_within, read_program
from corral.programs.compiled import Compiled, Compiler, compiled_code, with_source
from corral.programs.mends.names import ToolNames
from corral.programs.mends.reading import read_meant
from corral.programs.syntax.parsing import INLINE_CHARS, INLINE_NODES, INLINE_SECONDS
from corral.results import ExecutionResult
from corral.running.notebooks import Notebooks
from corral.running.request import CheckMode, ExecutionRequest, check_mode
from corral.sandboxes import SandboxProvider
from corral.sandboxes.selection import Providers
from corral.sessions.skills import SkillSet
from corral.texts import SourceMap, read_source_map
from corral.tools import Tool, ToolRegistry
from corral.tools.schema import has_member
from corral.types import (
    LIMITS_OF_SANDBOXES,
    Containment,
    ExecutionContext,
    ExecutionError,
    Language,
    Limits,
    Owner,
    Program,
    PythonModules,
    Reply,
    SandboxConfig,
)

_ENGINES_OWN = ("javascript", "typescript")
_NO_TOOLS = ToolRegistry()
_READ_SECONDS = 5.0
"""Maximum processor seconds in a worker. The largest programs take one second."""


@dataclass(kw_only=True)
class Runtime:
    """Parts and settings shared by all executions of one Corral."""

    tools: ToolRegistry
    limits: Limits
    """Default limits for requests."""
    check: CheckMode
    """Default check mode for requests."""
    providers: Providers
    checker: Checker
    containment: Containment
    protocols: Protocols
    handler: Handler
    undo: Callable[[Call, object, Callable[[], Awaitable[None]]], Awaitable[Reply]]
    """Undoes a call, given its output."""
    grants: Grants
    rates: RateLimits
    implied: ImpliedScopes
    audit: AuditLog | None
    parked: ParkedCalls
    telemetry: Telemetry | None = None
    flow: DataFlow | None = None
    """Data flow of all sessions; None if the policy follows none."""
    service_sources: tuple[ServiceSource, ...] = ()
    """Services of the host for all programs."""
    modules: NpmPackages | None = None
    """Packages that programs in TypeScript may import."""
    packages: PythonPackages | None = None
    """Packages that Python programs may import."""
    skills: SkillSet = field(default_factory=SkillSet)
    compilers: Mapping[str, Compiler] = field(default_factory=dict[str, Compiler])
    """Compilers by their name in requests."""
    program_logger: Logger
    """Logger for the source of every program."""
    learnt: LearntResults = field(default_factory=LearntResults)
    """Observed types of results that tools do not declare."""
    values: ValueRoom = field(default_factory=ValueRoom)
    failed: dict[tuple[Owner, str], str] = field(default_factory=dict[tuple[Owner, str], str])
    """Last failed programs of models, by user and session."""
    notebooks: Notebooks = field(default_factory=Notebooks)
    observations: list[Observation] = field(default_factory=list[Observation])
    """Observers of all executions."""
    keeps_warm: bool = False
    """True while the Corral is open. Only then are sandboxes kept ready, because closing it also closes them."""
    start_failed: float = -math.inf
    """Time of the last failed sandbox start, by `time.monotonic`; None after a successful one."""
    _warm: set[Language] = field(default_factory=set[Language])
    _warming: anyio.Lock = field(default_factory=anyio.Lock)

    def provider(self, language: Language, *, durable: bool = False) -> SandboxProvider:
        """Returns the sandbox provider for a language, or that of its durable programs.

        Raises:
            UnknownProvider: no provider runs this language.
            LimitNotEnforceable: the provider cannot enforce a required limit here.
        """
        provider = self.providers.get(language)
        provider = provider.for_durable() if durable else provider
        missing = sorted(LIMITS_OF_SANDBOXES - provider.capabilities.enforces - self.containment.accept_unenforced)
        if missing:
            accepted = sorted({*missing, *self.containment.accept_unenforced})
            raise LimitNotEnforceable(
                f"sandbox {provider.name!r} does not enforce {', '.join(missing)} on this system; use one that does, "
                "such as 'wasm' for TypeScript or 'monty' for Python (corral[monty,wasm]), or accept it with "
                f"Containment(accept_unenforced={{{', '.join(map(repr, accepted))}}})"
            )
        return provider

    def check_of(self, request: ExecutionRequest) -> CheckMode:
        """Returns the check setting for a request's program."""
        return self.check if request.check is None else check_mode(request.check)

    def loads_modules(
        self, language: Language, *, modules: NpmPackages | None = None, in_session: bool = False
    ) -> bool:
        """Returns True if programs load modules: with packages of their own or the Corral's, and in every session."""
        return LANGUAGES[language].npm and (in_session or (modules or self.modules) is not None)

    def packages_for(self, language: Language, packages: PythonPackages | None) -> PythonPackages | None:
        """Returns the Python packages for a program: its own, else the Corral's."""
        return None if LANGUAGES[language].npm else packages or self.packages

    def sandbox_config(
        self,
        language: Language,
        limits: Limits,
        *,
        owner: Owner | None = None,
        space: Space | None = None,
        loads_modules: bool | None = None,
        packages: PythonPackages | None = None,
        modules: NpmPackages | None = None,
    ) -> SandboxConfig:
        """Returns the settings of a sandbox, which are equal for a prepared sandbox and the execution that takes it."""
        python_packages = self.packages_for(language, packages)
        npm = (modules or self.modules) if LANGUAGES[language].npm else None
        config = _config(
            language,
            limits.memory_mb,
            self.containment.required,
            owner,
            self.loads_modules(language) if loads_modules is None else loads_modules,
            None if python_packages is None else python_packages.modules,
            None if npm is None else npm.preloads,
        )
        return config if space is None else config.model_copy(update={"space": space})

    def compiler(self, request: ExecutionRequest) -> Compiler | None:
        """Returns the compiler for a request's source; None if the source needs none.

        Raises:
            ConfigError: the compiler is unknown, or the request's language is not TypeScript.
        """
        name = request.compiler
        if name is None or name in _ENGINES_OWN:
            compiler = None
        elif (compiler := self.compilers.get(name)) is None:
            known = ", ".join(sorted({*_ENGINES_OWN, *self.compilers}))
            raise ConfigError(f"unknown compiler={name!r}; known: {known}; add others with Corral(compilers=...)")
        if name is not None and not LANGUAGES[request.language].npm:
            raise ConfigError(f"compiler={name!r} produces JavaScript; leave out language={request.language!r}")
        return compiler

    async def warm_up(self, language: Language) -> None:
        """Keeps sandboxes of this language ready from now on, if the Corral is open.

        Raises:
            StartFailed: a sandbox cannot be started.
        """
        if not self.keeps_warm or language in self._warm:
            return
        if self.check != "off":
            self.checker.start(language, self.tools)
        async with self._warming:
            if language not in self._warm:
                await self.providers.get(language).warm(self.sandbox_config(language, self.limits))
                self._warm.add(language)

    def renew(self, providers: Providers | None = None) -> None:
        """Replaces parts that a fork does not inherit, or that were closed."""
        if providers is not None:
            self.providers = providers
            self.protocols = self.protocols.copy()
        self.checker = Checker(packages=self.checker.packages)
        self.notebooks = self.notebooks.empty()
        self._warm, self._warming = set(), anyio.Lock()


@lru_cache(maxsize=1_000)
def _config(
    language: Language,
    memory_mb: int,
    required_tier: Tier,
    owner: Owner | None,
    modules: bool,
    packages: PythonModules | None,
    preloads: NpmModules | None,
) -> SandboxConfig:
    return SandboxConfig(
        language=language,
        memory_mb=memory_mb,
        required_tier=required_tier,
        owner=owner,
        modules=modules,
        packages=packages,
        preloads=preloads,
    )


async def prepare_request(
    request: ExecutionRequest,
    compiler: Compiler | None,
    limits: Limits,
    tools: ToolRegistry,
    bound: frozenset[str] | None = None,
) -> Program:
    """Recovers, compiles and prepares the program in a request. `tools` are the tools that it can call.

    For `bound` see `prepare`.

    Raises:
        ProgramRejected: the answer has no valid program, or is too large.
    """
    source = request.source
    if compiler is None:
        return await prepare(source, request.language, limits, request.context, tools, bound)
    _expect_size(source, limits)
    source_map: SourceMap | None = None
    try:
        with anyio.fail_after(limits.wall_seconds):
            name = request.compiler or ""
            compiled = await compiled_code(source, name, compiler)
            source_map = await _source_map(compiled, name, request.context)
        program = await prepare(compiled.code, request.language, limits, request.context, bound=bound)
    except TimeoutError:
        raise ProgramRejected("compiling the program took longer than its time limit; write a smaller one") from None
    except ProgramRejected as error:
        if source_map is None or error.line is None:
            raise
        place = source_map(error.line, error.column or 1)
        raise ProgramRejected(str(error), line=place.line, column=place.column) from error
    return with_source(program, source, source_map)


async def _source_map(compiled: Compiled, name: str, context: ExecutionContext) -> SourceMap | None:
    """Reads a compiler's source map, in a worker if it is large, because the compiler can be a hostile package."""
    text = compiled.source_map
    if text is None:
        return None
    try:
        return await run_bounded(
            read_source_map, text, compiled.margin, size=len(text), seconds=_READ_SECONDS, owner=context.owner
        )
    except (ValueError, WorkerError) as error:
        raise ProgramRejected(f"the compiler {name!r} returned an unreadable source map: {error}") from error


def _tool_names(by_path: Mapping[str, Tool]) -> ToolNames:
    def is_member(path: str, steps: tuple[str | None, ...], name: str) -> bool:
        tool = by_path.get(path)
        return tool is not None and not tool.stream and has_member(tool.output_schema, steps, name)

    return ToolNames(by_path, lambda path: by_path[path].input_schema if path in by_path else None, is_member)


def _expect_size(source: str, limits: Limits) -> None:
    size = len(source) if source.isascii() else len(source.encode("utf-8", "surrogatepass"))
    if size > limits.source_bytes:
        raise ProgramRejected(f"the program has {size} bytes; {limits.source_bytes} are allowed")


async def prepare(
    source: str,
    language: Language,
    limits: Limits,
    context: ExecutionContext | None = None,
    tools: ToolRegistry | None = None,
    bound: frozenset[str] | None = None,
) -> Program:
    """Recovers and prepares the program in a model's answer, and corrects unmistakable errors in its use of `tools`.

    For a notebook's cell, `bound` are the variables of earlier cells.

    Raises:
        ProgramRejected: the answer has no valid program, or is too large.
    """
    _expect_size(source, limits)
    if len(source) < INLINE_CHARS:
        with contextlib.suppress(TooLongToParse), parsing_within(INLINE_SECONDS, INLINE_NODES):
            return read_meant(source, language, (_NO_TOOLS if tools is None else tools).computed(_tool_names), bound)
    owner = None if context is None else context.owner
    with anyio.move_on_after(limits.wall_seconds):
        try:
            return await run_in_worker(read_program, source, language, bound, seconds=_READ_SECONDS, owner=owner)
        except WorkerError as error:
            raise ProgramRejected(f"the program could not be prepared: {error}; write a smaller one") from error
    raise ProgramRejected("preparing the program took longer than its time limit; write a smaller one")


async def record_execution(
    audit: AuditLog,
    request: ExecutionRequest,
    result: ExecutionResult,
    *,
    began: float,
    protocol: str,
    hidden_denial: ExecutionError | None,
) -> None:
    """Writes the audit event of an execution. A denial is recorded before the result is returned."""
    context = request.context
    error = (hidden_denial if result.status == "rejected" else None) or result.error
    outcome = "pending" if result.status == "paused" else outcome_of(error)
    if outcome == "denied" and result.status != "rejected":
        outcome = "failed"  # the program threw the denial of a call, which has its own event
    event = AuditEvent(
        id=new_event_id(began),
        time=began,
        kind="execution",
        outcome=outcome,
        code=error and error.code,
        reason=error.message if error is not None and outcome == "denied" else None,
        execution_id=result.execution_id,
        user_id=context.user_id,
        organization_id=context.organization_id,
        session_id=context.session_id,
        duration_ms=result.duration_ms,
        protocol=protocol,
        language=result.language,
        containment=result.containment and str(result.containment),
        calls=len(result.tool_calls),
        program=digest(request.source),
    )
    if outcome == "denied":
        await record_denial(audit, event)
    else:
        await audit.record(event)
