"""One execution: source in, `ExecutionResult` out. Deadline, cancellation and cleanup are here, and only here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal, TypeAlias

import anyio

from corral.audit import AuditEvent, AuditLog, digest, new_event_id
from corral.bridges import (
    BridgeProtocol,
    CallRecorder,
    Grant,
    Grants,
    ImpliedScopes,
    Services,
    ValueRoom,
    capabilities_of,
    early_denial,
    hidden_denial,
    new_execution_id,
    outcome_of,
    record_denial,
    remarks_on,
)
from corral.checking import Case, Checker, Gate
from corral.concurrency.deadline import PausableDeadline
from corral.errors import (
    Cancelled,
    ConfigError,
    CorralError,
    LimitNotEnforceable,
    MemoryExceeded,
    ProgramRejected,
    ProgramTimeout,
    SandboxError,
    SandboxLost,
    StartFailed,
)
from corral.event_listener import EventListener, OnEvent
from corral.logs import Lines, get_logger
from corral.programs import TooLongToParse, parsing_within, read_program
from corral.results import (
    ConsoleOutput,
    Event,
    ExecutionFinished,
    ExecutionResult,
    ExecutionStarted,
    ProgramCapabilities,
)
from corral.sandboxes import Job, Sandbox, SandboxProvider, failed_exit
from corral.sandboxes.selection import Providers
from corral.tools import ToolRegistry
from corral.types import (
    Diagnostic,
    ExecutionContext,
    ExecutionError,
    Exit,
    Handler,
    Isolation,
    Language,
    Limits,
    LogEntry,
    Program,
    SandboxConfig,
    Tier,
    reaches,
)
from corral.workers import WorkerError, run_in_worker

__all__ = ["Check", "Execution", "ExecutionRequest", "Run", "Runtime", "prepare"]

logger = get_logger("corral")
program_logger = get_logger("corral.programs")
"""Logs every program as the model wrote it, at level DEBUG."""

Check: TypeAlias = bool | Literal["required"]
"""True: programs are type-checked before their first call if a checker is available. False: never. "required": a
program that cannot be checked does not run."""

_CORE_LIMITS = frozenset({"wall_seconds", "source_bytes"})
"""Limits that are enforced outside the sandbox."""
_START_SECONDS = 30.0
"""Generous: on a loaded machine a sandbox starts in tenths of a second."""
_ENDED_FROM_OUTSIDE = frozenset({ProgramTimeout.code, SandboxLost.code, MemoryExceeded.code})
_CHECK_HELP = "`corral doctor` lists the language servers"
_LONG_SOURCE_CHARS = 8_000
"""Longer sources are prepared in a worker process."""
_PARSE_HERE_SECONDS = 0.02
"""Shorter sources too, if parsing takes longer; usual programs take a millisecond."""
_READ_SECONDS = 5.0
"""Processor time in a worker; the largest programs take one second."""


@dataclass(kw_only=True)
class Runtime:
    """Parts of one Corral that all its executions share."""

    providers: Providers
    checker: Checker
    warm_up: Callable[[Language], Awaitable[None]]
    """Keeps sandboxes of a language ready from now on, if the Corral is open."""
    required_tier: Tier
    bridge: BridgeProtocol
    handler: Handler
    grants: Grants
    implied: ImpliedScopes
    audit: AuditLog | None
    values: ValueRoom = field(default_factory=ValueRoom)

    def provider(self, language: Language) -> SandboxProvider:
        """The sandbox provider for a language.

        Raises:
            UnknownProvider: no provider runs this language.
            ConfigError: the provider cannot use this Corral's bridge.
            LimitNotEnforceable: the provider cannot enforce all limits here.
        """
        provider = self.providers.get(language)
        if self.bridge.name not in provider.capabilities.bridges:
            raise ConfigError(f"sandbox {provider.name!r} does not support the bridge {self.bridge.name!r}")
        enforced = provider.capabilities.enforces | _CORE_LIMITS
        if missing := [name for name in Limits.model_fields if name not in enforced]:
            raise LimitNotEnforceable(
                f"sandbox {provider.name!r} cannot enforce {', '.join(missing)} on this system; run it on Linux, "
                "the only system where it can"
            )
        return provider


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    """One program, its caller, and its settings. `tools`, `services` and `on_event` are live objects."""

    source: str
    language: Language
    context: ExecutionContext
    limits: Limits
    env: Mapping[str, str] | None
    check: Check
    tools: ToolRegistry
    services: Services
    on_event: OnEvent | None = None


class Execution:
    """Takes one program through prepare, check, start, run and conclude. `run` is called once, `cancel` at any time."""

    def __init__(self, runtime: Runtime, request: ExecutionRequest) -> None:
        self.execution_id = new_execution_id()
        self.ended = anyio.Event()
        self._runtime = runtime
        self._request = request
        self._provider = runtime.provider(request.language)
        self._listener = None if request.on_event is None else EventListener(request.on_event, self.execution_id)
        self._observers: list[Callable[[Event], object]] = [] if self._listener is None else [self._listener]
        self._recorder = CallRecorder(self._emit, rooms=runtime.values, observed=lambda: bool(self._observers))
        self._clock = PausableDeadline(request.limits.wall_seconds)
        self._grant = Grant(
            execution_id=self.execution_id,
            context=request.context,
            scopes=runtime.implied.held_with(request.context.scopes),
            limits=request.limits,
            tools=request.tools,
            services=request.services,
            clock=self._clock,
            recorder=self._recorder,
        )
        self._scope = anyio.CancelScope()
        self._began, self._started = 0.0, 0.0
        self._concluded = False
        """True once the result exists and is recorded."""
        self._gate: Gate | None = None
        self._logs: list[LogEntry] = []
        self._isolation: Isolation | None = None
        self._capabilities: ProgramCapabilities | None = None
        self._early_outcome: Exit | None = None
        self._hidden_denial: ExecutionError | None = None
        """Denial of hidden tools that the program names, for the audit log only."""

    def observe(self, observer: Callable[[Event], object]) -> None:
        """Adds a function that receives every event."""
        self._observers.append(observer)

    def cancel(self) -> None:
        """Ends the execution with the status `cancelled`; does nothing once it has ended."""
        self._scope.cancel()

    async def run(self) -> ExecutionResult:
        """Runs the program to its end.

        Raises:
            StartFailed: the sandbox did not start.
        """
        try:
            return await (self._run() if self._listener is None else self._listener.during(self._run))
        finally:
            self.ended.set()

    async def _run(self) -> ExecutionResult:
        self._began, self._started = time.time(), time.perf_counter()
        program_logger.debug("%s runs this program:\n%s", self.execution_id, Lines(self._request.source))
        self._emit(ExecutionStarted(execution_id=self.execution_id, language=self._request.language))
        try:
            with self._scope:
                return await self._conclude(*await self._prepare_check_and_run())
            return await self._conclude(None, None)
        except BaseException as error:
            if not self._concluded:  # a failure, or the task was cancelled: recorded like any other end
                cancelled = isinstance(error, anyio.get_cancelled_exc_class())
                await self._conclude(None, None if cancelled else _broken(error))
            raise
        finally:
            self._recorder.close()
            self.ended.set()

    async def _prepare_check_and_run(self) -> tuple[Program | None, Exit]:
        request = self._request
        try:
            program = await prepare(request.source, request.language, request.limits, request.context)
        except ProgramRejected as error:
            return None, _rejected(error)
        if (references := program.references) is not None:
            self._capabilities = capabilities_of(references, request.tools)
            self._hidden_denial = hidden_denial(references, request.tools, self._grant.scopes)
            if denial := early_denial(references, request.tools, self._grant.scopes):
                return program, Exit(status="rejected", exit_code=1, error=denial)
        if request.check:
            case = Case(
                request.source,
                request.language,
                request.tools,
                env=request.env is not None,
                must=request.check == "required",
                references=references,
                context=request.context,
            )
            gate = self._gate = Gate(self._runtime.checker, case)
            if not gate.is_decided:
                return program, await self._start_and_run_checked(program, gate)
            if gate.rejection is not None:
                return program, _rejected(gate.rejection)
        return program, await self._start_and_run(program)

    async def _start_and_run_checked(self, program: Program, gate: Gate) -> Exit:
        """Runs the program while it is checked; a rejection ends it before its first call."""
        exit: Exit | None = None
        failure: Exception | None = None

        async def decide() -> None:
            await gate.decide()
            if gate.is_open:
                for entry in self._logs:
                    self._emit(ConsoleOutput(entry=entry))
            else:
                tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(decide)
                try:
                    exit = await self._start_and_run(program)
                    await gate.wait()
                except Exception as error:  # raised below: a task group would wrap it
                    failure = error
                    tasks.cancel_scope.cancel()
        finally:
            gate.close()
        if gate.rejection is not None:
            self._logs.clear()
            return _rejected(gate.rejection)
        if failure is not None:
            raise failure
        if exit is None or not gate.is_open:
            reason = gate.verdict.unchecked if gate.verdict else "the program ended first"
            raise StartFailed(f"the program could not be checked, as it must be: {reason}; {_CHECK_HELP}")
        return exit

    async def _start_and_run(self, program: Program) -> Exit:
        runtime, limits = self._runtime, self._request.limits
        job = Job(
            execution_id=self.execution_id,
            program=program,
            limits=limits,
            tools=self._request.tools.names(),
            env=self._request.env,
            on_log=self._log,
            on_outcome=self._keep_outcome,
        )
        sandbox = await self._start_sandbox()
        try:
            self._isolation = sandbox.isolation
            with runtime.grants.live(self._grant), self._clock.running():
                handler = runtime.handler if self._gate is None else self._gate.guard(runtime.handler, self._clock)
                async with runtime.bridge.serve(handler, self._grant, runtime.grants) as endpoint:
                    return self._or_early_outcome(await sandbox.execute(job, endpoint))
            return self._or_early_outcome(
                failed_exit(
                    ProgramTimeout(f"the program did not end within {limits.wall_seconds:g} s, all it may take")
                )
            )
        finally:
            with anyio.CancelScope(shield=True):
                await sandbox.aclose()

    async def _start_sandbox(self) -> Sandbox:
        name, required = self._provider.name, self._runtime.required_tier
        config = SandboxConfig(
            language=self._request.language,
            memory_mb=self._request.limits.memory_mb,
            required_tier=required,
            trust_domain=self._request.context.trust_domain,
        )
        with anyio.move_on_after(_START_SECONDS):
            await self._runtime.warm_up(self._request.language)
            sandbox = await self._provider.start(config)
            if reaches(sandbox.isolation, required):
                return sandbox
            await sandbox.aclose()
            raise StartFailed(
                f"sandbox {name!r} runs in tier {sandbox.isolation!r}, below the required {required!r}; accept it "
                f"with Corral(required_tier={sandbox.isolation!r})"
            )
        raise StartFailed(f"sandbox {name!r} did not start within {_START_SECONDS:g} s")

    async def _conclude(self, program: Program | None, exit: Exit | None) -> ExecutionResult:
        """Makes the result, records it and emits it. No exit: the execution was cancelled."""
        result = self._result(program, exit, (time.perf_counter() - self._started) * 1000)
        self._concluded = True
        if self._runtime.audit is not None:
            with anyio.CancelScope(shield=True):
                await self._record(self._runtime.audit, result)
        self._emit(ExecutionFinished(result=result))
        return result

    def _keep_outcome(self, outcome: Exit) -> None:
        self._early_outcome = outcome

    def _or_early_outcome(self, exit: Exit) -> Exit:
        """Prefers the outcome that the program had reported before its remaining calls were cut short."""
        early = self._early_outcome
        if early is None or exit.error is None or exit.error.code not in _ENDED_FROM_OUTSIDE:
            return exit
        message = f"calls that nobody awaited were cut short: {exit.error.message}"
        remark = Diagnostic(severity="warning", message=message, code=exit.error.code)
        return replace(early, diagnostics=(*early.diagnostics, remark))

    def _log(self, entry: LogEntry) -> None:
        self._logs.append(entry)
        if self._gate is None or self._gate.is_open:
            self._emit(ConsoleOutput(entry=entry))

    def _emit(self, event: Event) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                logger.warning("an observer of %s raised on %r", self.execution_id, event.type, exc_info=True)

    async def _record(self, audit: AuditLog, result: ExecutionResult) -> None:
        """Writes the audit event of this execution. A denial is recorded before the result is returned."""
        context = self._request.context
        error = (self._hidden_denial if result.status == "rejected" else None) or result.error
        outcome = outcome_of(error)
        if outcome == "denied" and result.status != "rejected":
            outcome = "failed"  # the program threw the denial of a call; that call has its own event
        event = AuditEvent(
            id=new_event_id(self._began),
            time=self._began,
            kind="execution",
            outcome=outcome,
            code=error and error.code,
            reason=error.message if error is not None and outcome == "denied" else None,
            execution_id=self.execution_id,
            user_id=context.user_id,
            organization_id=context.organization_id,
            session_id=context.session_id,
            duration_ms=result.duration_ms,
            protocol=self._runtime.bridge.name,
            language=result.language,
            isolation=result.isolation,
            calls=len(result.tool_calls),
            program=digest(self._request.source),
        )
        if outcome == "denied":
            await record_denial(audit, event)
        else:
            await audit.record(event)

    def _result(self, program: Program | None, exit: Exit | None, duration_ms: float) -> ExecutionResult:
        result = ExecutionResult(
            execution_id=self.execution_id,
            status="cancelled",
            language=self._request.language,
            logs=tuple(self._logs),
            exit_code=130,
            duration_ms=duration_ms,
            tool_calls=tuple(self._recorder.records),
            isolation=self._isolation,
            capabilities=self._capabilities,
            checked=self._gate is not None and self._gate.is_checked,
        )
        if exit is None or exit.error is not None:
            self._recorder.look_up(self._request.tools)
        if exit is None:
            error = ExecutionError(code=Cancelled.code, name=Cancelled.__name__, message="the execution was cancelled")
            return replace(result, error=error)
        dropped = exit.dropped_log_bytes
        return replace(
            result,
            status=exit.status,
            value=exit.value,
            error=exit.error,
            exit_code=exit.exit_code,
            unawaited=exit.unawaited,
            diagnostics=(
                *_remarks(program, exit),
                *exit.diagnostics,
                *remarks_on(self._recorder.records, exit.error, self._request.language),
                *self._check_remarks(),
            ),
            truncated=(f"{dropped} bytes of console output over the limit were dropped",) if dropped else (),
        )

    def _check_remarks(self) -> tuple[Diagnostic, ...]:
        verdict = None if self._gate is None else self._gate.verdict
        if verdict is not None and verdict.unchecked is not None:
            message = f"the program was not checked: {verdict.unchecked}"
            return (Diagnostic(severity="info", message=message, code="unchecked", show="on_failure"),)
        return () if verdict is None else verdict.diagnostics


class Run:
    """Handle of a running execution: iterate its events, await its result, or cancel it."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._send, self._events = anyio.create_memory_object_stream[Event](inf)  # bounded by the limits of the run
        self._result: ExecutionResult | None = None
        self._failure: Exception | None = None
        self.done = anyio.Event()
        execution.observe(self._send.send_nowait)

    def __repr__(self) -> str:
        return f"<Run of {self.execution_id}, {'ended' if self.done.is_set() else 'running'}>"

    @property
    def execution_id(self) -> str:
        return self._execution.execution_id

    def cancel(self) -> None:
        """Ends the execution with the status `cancelled`."""
        self._execution.cancel()

    async def result(self) -> ExecutionResult:
        """Waits for the end and returns the result.

        Raises:
            StartFailed: the sandbox did not start.
            Cancelled: the task that ran the execution was cancelled from outside, not by `cancel`.
        """
        await self.done.wait()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yields the events from the start up to `ExecutionFinished`. Each event goes to one iterator only."""
        async for event in self._events:
            yield event

    async def drive(self) -> None:
        """Runs the execution; called once by `Corral.start`."""
        try:
            self._result = await self._execution.run()
        except Exception as error:
            self._failure = error  # raised by `result`
        except BaseException:
            self._failure = Cancelled("the task that ran the execution was cancelled")
            raise
        finally:
            self._send.close()
            self.done.set()

    def close(self) -> None:
        """Drops unread events; called once by `Corral.start`."""
        self._events.close()


async def prepare(source: str, language: Language, limits: Limits, context: ExecutionContext | None = None) -> Program:
    """Finds and prepares the program in a model's answer.

    Raises:
        ProgramRejected: the answer has no valid program, or is too large.
    """
    size = len(source) if source.isascii() else len(source.encode("utf-8", "surrogatepass"))
    if size > limits.source_bytes:
        raise ProgramRejected(f"the program has {size} bytes; {limits.source_bytes} are allowed")
    if len(source) < _LONG_SOURCE_CHARS:
        with contextlib.suppress(TooLongToParse), parsing_within(_PARSE_HERE_SECONDS):
            return read_program(source, language)
    tenant = None if context is None else context.trust_domain
    with anyio.move_on_after(limits.wall_seconds):
        try:
            return await run_in_worker(read_program, source, language, seconds=_READ_SECONDS, tenant=tenant)
        except WorkerError as error:
            raise ProgramRejected(f"the program could not be prepared: {error}; write a smaller one") from error
    raise ProgramRejected("the program took longer to prepare than it may run; write a smaller one")


def _broken(error: BaseException) -> Exit:
    shown = error if isinstance(error, CorralError) else SandboxError("the sandbox could not be used")
    return Exit(
        status="failed",
        exit_code=1,
        error=ExecutionError(code=shown.code, name=type(shown).__name__, message=str(shown)),
    )


def _rejected(error: ProgramRejected) -> Exit:
    return Exit(
        status="rejected",
        exit_code=1,
        error=ExecutionError(
            code=error.code, name=type(error).__name__, message=str(error), line=error.line, column=error.column
        ),
    )


def _remarks(program: Program | None, exit: Exit) -> tuple[Diagnostic, ...]:
    """Returns recovery's remarks. The remark that a program has no result is left out if it has one."""
    if program is None or exit.value is not None or exit.error is not None:
        return tuple(each for each in (program.diagnostics if program else ()) if each.severity != "info")
    return program.diagnostics
