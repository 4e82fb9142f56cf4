"""One execution: source in, `ExecutionResult` out. Deadlines, cancellation and cleanup are held here, and only here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from math import inf

import anyio

from corral.audit import AuditEvent, AuditLog, digest, new_event_id
from corral.bridges import (
    BridgeProtocol,
    CallRecorder,
    Grant,
    Grants,
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
    CorralError,
    MemoryExceeded,
    ProgramRejected,
    ProgramTimeout,
    SandboxError,
    SandboxLost,
    StartFailed,
)
from corral.logs import Lines, get_logger
from corral.observers import Listener, OnEvent
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
from corral.tools import Tool, ToolRegistry
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

__all__ = ["Execution", "Run", "prepare"]

logger = get_logger("corral")
program_logger = get_logger("corral.programs")
"""Every program as the model wrote it, at level DEBUG."""

_START_SECONDS = 30.0
"""A sandbox that has not started by then never will; on a loaded machine one takes tenths of a second."""
_ENDED_FROM_OUTSIDE = frozenset({ProgramTimeout.code, SandboxLost.code, MemoryExceeded.code})
_CHECK_HELP = "`corral doctor` says which servers there are"
_LONG_SOURCE_CHARS = 8_000
"""Longer sources are read in a worker."""
_PARSE_HERE_SECONDS = 0.02
"""Shorter ones too, if they take longer than this to parse; programs take a millisecond."""
_READ_SECONDS = 5.0
"""Of processor time, in a worker; the largest programs take one."""


class Execution:
    """Takes one program through the pipeline. `run` is called once; `cancel` may come at any time."""

    def __init__(
        self,
        *,
        source: str,
        language: Language,
        context: ExecutionContext,
        limits: Limits,
        required_tier: Tier,
        env: Mapping[str, str] | None,
        scopes: frozenset[str],
        tools: ToolRegistry,
        discovery: Mapping[str, Tool],
        provider: SandboxProvider,
        warm_up: Callable[[], Awaitable[None]],
        bridge: BridgeProtocol,
        handler: Handler,
        grants: Grants,
        checker: Checker | None,
        must_be_checked: bool,
        audit: AuditLog | None,
        values: ValueRoom,
        on_event: OnEvent | None,
    ) -> None:
        self.execution_id = new_execution_id()
        self.ended = anyio.Event()
        self._concluded = False
        """Whether its result is there, and on record."""
        self._source = source
        self._language: Language = language
        self._context = context
        self._scopes = scopes
        self._limits = limits
        self._required_tier: Tier = required_tier
        self._env = env
        self._tools = tools
        self._discovery = discovery
        self._provider = provider
        self._warm_up = warm_up
        self._bridge = bridge
        self._handler = handler
        self._grants = grants
        self._checker = checker
        self._must_be_checked = must_be_checked
        self._gate: Gate | None = None
        self._audit = audit
        self._listener = None if on_event is None else Listener(on_event, self.execution_id)
        self._observers: list[Callable[[Event], object]] = [] if self._listener is None else [self._listener]
        self._scope = anyio.CancelScope()
        self._recorder = CallRecorder(self._emit, rooms=values, observed=lambda: bool(self._observers))
        self._logs: list[LogEntry] = []
        self._isolation: Isolation | None = None
        self._capabilities: ProgramCapabilities | None = None
        self._held: Exit | None = None
        self._unseen: ExecutionError | None = None
        """The denial of what it names that is hidden from its caller, for the audit alone."""

    def observe(self, observer: Callable[[Event], object]) -> None:
        """Adds someone who is told of every event."""
        self._observers.append(observer)

    def cancel(self) -> None:
        """Ends it; its status will be `cancelled`. Does nothing once it has ended."""
        self._scope.cancel()

    async def run(self) -> ExecutionResult:
        """Runs it to its end.

        Raises:
            StartFailed: the sandbox did not start.
        """
        try:
            return await (self._run_alone() if self._listener is None else self._run_heard(self._listener))
        finally:
            self.ended.set()

    async def _run_heard(self, listener: Listener) -> ExecutionResult:
        ended: list[ExecutionResult] = []
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.listen)
            try:
                ended.append(await self._run_alone())
            except BaseException as error:  # raised below: a task group would wrap it
                failure = error
            await listener.finish()
        if failure is not None:
            raise failure
        return ended[0]

    async def _run_alone(self) -> ExecutionResult:
        began, started = time.time(), time.perf_counter()
        program_logger.debug("%s runs this program:\n%s", self.execution_id, Lines(self._source))
        self._emit(ExecutionStarted(execution_id=self.execution_id, language=self._language))
        try:
            with self._scope:
                return await self._conclude(began, started, await self._prepare_and_execute())
            return await self._conclude(began, started, None)
        except BaseException as error:
            if not self._concluded:  # it raises, or its task was cancelled: on record all the same
                cancelled = isinstance(error, anyio.get_cancelled_exc_class())
                await self._conclude(began, started, None if cancelled else (None, _broken(error)))
            raise
        finally:
            self._recorder.close()
            self.ended.set()

    async def _conclude(
        self, began: float, started: float, ended: tuple[Program | None, Exit] | None
    ) -> ExecutionResult:
        result = self._result(ended, (time.perf_counter() - started) * 1000)
        self._concluded = True
        if self._audit is not None:
            with anyio.CancelScope(shield=True):
                await self._put_on_record(self._audit, began, result)
        self._emit(ExecutionFinished(result=result))
        return result

    async def _prepare_and_execute(self) -> tuple[Program | None, Exit]:
        try:
            program = await prepare(self._source, self._language, self._limits, self._context)
        except ProgramRejected as error:
            return None, _rejected(error)
        return program, await self._execute(program)

    async def _execute(self, program: Program) -> Exit:
        if program.references is not None:
            self._capabilities = capabilities_of(program.references, self._tools)
            self._unseen = hidden_denial(program.references, self._tools, self._scopes)
            if denial := early_denial(program.references, self._tools, self._scopes):
                return Exit(status="rejected", exit_code=1, error=denial)
        checker = self._checker
        return await (self._run(program) if checker is None else self._run_checked(program, checker))

    async def _run_checked(self, program: Program, checker: Checker) -> Exit:
        """Runs the program while it is checked; a rejection ends it, before its first call."""
        case = Case(
            self._source,
            self._language,
            self._tools,
            env=self._env is not None,
            must=self._must_be_checked,
            references=program.references,
            context=self._context,
        )
        gate = self._gate = Gate(checker, case)
        if gate.is_decided:
            return await self._run(program) if gate.rejection is None else _rejected(gate.rejection)
        exit: Exit | None = None
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._decide, gate, tasks.cancel_scope)
                try:
                    exit = await self._run(program)
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
            reason = gate.verdict.unchecked if gate.verdict else "it ended before that"
            raise StartFailed(f"the program could not be checked, as it must be: {reason}; {_CHECK_HELP}")
        return exit

    async def _decide(self, gate: Gate, running: anyio.CancelScope) -> None:
        """Has the program checked while it runs, and ends it if it may not go on."""
        await gate.decide()
        if gate.is_open:
            for entry in self._logs:
                self._emit(ConsoleOutput(entry=entry))
        else:
            running.cancel()

    async def _run(self, program: Program) -> Exit:
        job = Job(
            execution_id=self.execution_id,
            program=program,
            limits=self._limits,
            tools=self._tools.names(),
            env=self._env,
            on_log=self._log,
            on_outcome=self._hold,
        )
        clock = PausableDeadline(self._limits.wall_seconds)
        grant = Grant(
            execution_id=self.execution_id,
            context=self._context,
            scopes=self._scopes,
            limits=self._limits,
            tools=self._tools,
            discovery=self._discovery,
            clock=clock,
            recorder=self._recorder,
        )
        sandbox = await self._start_sandbox()
        try:
            self._isolation = sandbox.isolation
            with self._grants.live(grant), clock.running():
                handler = self._handler if self._gate is None else self._gate.guard(self._handler, clock)
                async with self._bridge.serve(handler, grant, self._grants) as endpoint:
                    return self._or_held(await sandbox.execute(job, endpoint))
            return self._or_held(
                failed_exit(
                    ProgramTimeout(f"the program did not end within {self._limits.wall_seconds:g} s, all it may take")
                )
            )
        finally:
            with anyio.CancelScope(shield=True):
                await sandbox.aclose()

    async def _start_sandbox(self) -> Sandbox:
        config = SandboxConfig(
            language=self._language,
            memory_mb=self._limits.memory_mb,
            required_tier=self._required_tier,
            trust_domain=self._context.trust_domain,
        )
        with anyio.move_on_after(_START_SECONDS):
            await self._warm_up()
            sandbox = await self._provider.start(config)
            if reaches(sandbox.isolation, self._required_tier):
                return sandbox
            await sandbox.aclose()
            raise StartFailed(
                f"sandbox {self._provider.name!r} runs in tier {sandbox.isolation!r}, below the required "
                f"{self._required_tier!r}; accept it with Corral(required_tier={sandbox.isolation!r})"
            )
        raise StartFailed(f"sandbox {self._provider.name!r} did not start within {_START_SECONDS:g} s")

    def _hold(self, outcome: Exit) -> None:
        self._held = outcome

    def _or_held(self, exit: Exit) -> Exit:
        """The outcome that the program already had when something ended it while calls were still running."""
        if self._held is None or exit.error is None or exit.error.code not in _ENDED_FROM_OUTSIDE:
            return exit
        message = f"calls that nobody awaited were cut short: {exit.error.message}"
        remark = Diagnostic(severity="warning", message=message, code=exit.error.code)
        return replace(self._held, diagnostics=(*self._held.diagnostics, remark))

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

    async def _put_on_record(self, audit: AuditLog, began: float, result: ExecutionResult) -> None:
        """Writes the event of this execution. One that was denied is on record before anybody hears of it."""
        error = (self._unseen if result.status == "rejected" else None) or result.error
        outcome = outcome_of(error)
        if outcome == "denied" and result.status != "rejected":
            outcome = "failed"  # what a program throws is its own affair, also where it is the denial of a call
        event = AuditEvent(
            id=new_event_id(began),
            time=began,
            kind="execution",
            outcome=outcome,
            code=error and error.code,
            reason=error.message if error is not None and outcome == "denied" else None,
            execution_id=self.execution_id,
            user_id=self._context.user_id,
            organization_id=self._context.organization_id,
            session_id=self._context.session_id,
            duration_ms=result.duration_ms,
            protocol=self._bridge.name,
            language=self._language,
            isolation=self._isolation,
            calls=len(result.tool_calls),
            program=digest(self._source),
        )
        if outcome == "denied":
            await record_denial(audit, event)
        else:
            await audit.record(event)

    def _result(self, ended: tuple[Program | None, Exit] | None, duration_ms: float) -> ExecutionResult:
        result = ExecutionResult(
            execution_id=self.execution_id,
            status="cancelled",
            language=self._language,
            logs=tuple(self._logs),
            exit_code=130,
            duration_ms=duration_ms,
            tool_calls=tuple(self._recorder.records),
            isolation=self._isolation,
            capabilities=self._capabilities,
            checked=self._gate is not None and self._gate.is_checked,
        )
        if ended is None:
            self._recorder.look_up(self._tools)
            error = ExecutionError(code=Cancelled.code, name=Cancelled.__name__, message="the execution was cancelled")
            return replace(result, error=error)
        program, exit = ended
        dropped = exit.dropped_log_bytes
        if exit.error is not None:
            self._recorder.look_up(self._tools)
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
                *remarks_on(self._recorder.records, exit.error, self._language),
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
    """A running execution: iterate its events, await its result, or cancel it."""

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
        """Ends the execution; its status will be `cancelled`."""
        self._execution.cancel()

    async def result(self) -> ExecutionResult:
        """Waits for the end.

        Raises:
            StartFailed: the sandbox did not start.
            Cancelled: the task that ran the execution was cancelled, by somebody else than `cancel`.
        """
        await self.done.wait()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    async def __aiter__(self) -> AsyncIterator[Event]:
        """The events from the start, as they happen, up to `ExecutionFinished`. Each is seen by one iterator."""
        async for event in self._events:
            yield event

    async def drive(self) -> None:
        """Runs the execution; called once by `Corral.start`."""
        try:
            self._result = await self._execution.run()
        except Exception as error:
            self._failure = error  # for whoever asks for the result
        except BaseException:
            self._failure = Cancelled("the task that ran the execution was cancelled")
            raise
        finally:
            self._send.close()
            self.done.set()

    def close(self) -> None:
        """Drops the events that nobody read; called once by `Corral.start`."""
        self._events.close()


async def prepare(source: str, language: Language, limits: Limits, context: ExecutionContext | None = None) -> Program:
    """The program in a model's answer.

    Raises:
        ProgramRejected: it cannot be a program, or is too large.
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
            raise ProgramRejected(f"the program cannot be read: {error}. Write a smaller one.") from error
    raise ProgramRejected("the program took longer to be read than it may run")


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
    """Recovery's remarks; that a program has no result is worth saying only if it really had none."""
    if program is None or exit.value is not None or exit.error is not None:
        return tuple(each for each in (program.diagnostics if program else ()) if each.severity != "info")
    return program.diagnostics
