"""One execution, in five phases: prepare, admit, start, run, conclude.

Only this module handles deadlines, cancellation and cleanup.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from secrets import token_hex
from typing import Any

import anyio

from corral.audit import digest
from corral.calls import (
    CallRecorder,
    Grant,
    Service,
    Services,
    ServiceSource,
    capabilities_of,
    early_denial,
    hidden_denial,
    new_execution_id,
    remarks_on,
)
from corral.checking import Case, Gate
from corral.concurrency.deadline import PausableDeadline
from corral.concurrency.fairness import owner_active
from corral.concurrency.garbage import spare_young
from corral.containment import ContainmentKind
from corral.errors import (
    AccessDenied,
    ConfigError,
    CorralError,
    Diverged,
    ExecutionCancelled,
    FileError,
    FilesExceeded,
    LedgerError,
    MemoryExceeded,
    Outdated,
    ProgramFailed,
    ProgramRejected,
    ProgramTimeout,
    SandboxError,
    SandboxLost,
    StartFailed,
)
from corral.events import (
    ConsoleOutput,
    EventListener,
    EventStream,
    ExecutionFinished,
    ExecutionPaused,
    ExecutionResumed,
    ExecutionStarted,
    OnEvent,
    ProgramChecked,
)
from corral.languages import LANGUAGES
from corral.ledger import Recorded
from corral.logs import Lines, get_logger
from corral.packages import NpmPackages, PythonPackages
from corral.policy.flow import ProgramFlow
from corral.programs.loops import loops_over_calls
from corral.results import CallRecord, ExecutionResult, FileChanges, ProgramCapabilities, calls_text
from corral.running.journal import Journal, Recording
from corral.running.notebooks import Notebook, loss_of
from corral.running.request import CheckMode, ExecutionRequest
from corral.running.runtime import Runtime, prepare_request, record_execution
from corral.sandboxes import Job, Sandbox, below_required_tier, failed_exit
from corral.sessions import KeptWorkspace, OpenSession
from corral.tools import ToolRegistry
from corral.types import (
    Approve,
    Capabilities,
    Diagnostic,
    Endpoint,
    ExecutionError,
    Exit,
    LogEntry,
    Program,
    SandboxConfig,
    ToolName,
)

_QUOTES_RESULTS = "output_not_as_declared"
"""Code of remarks that have names of members in results."""
_MOST_LEARNT = 5
"""Maximum number of tools whose observed results are described to a model."""
_ENDED_FROM_OUTSIDE = frozenset({ProgramTimeout.code, SandboxLost.code, MemoryExceeded.code})


def broken(error: BaseException) -> Exit:
    """Returns the exit of an execution that failed on the host's side."""
    shown = error if isinstance(error, CorralError) else SandboxError("the sandbox could not be used")
    return Exit(
        status="failed",
        error=ExecutionError(code=shown.code, name=type(shown).__name__, message=str(shown)),
    )


def rejected(error: ProgramRejected) -> Exit:
    """Returns the exit of a program that must not run."""
    return Exit(
        status="rejected",
        error=ExecutionError(
            code=error.code, name=type(error).__name__, message=str(error), line=error.line, column=error.column
        ),
    )


def prefer_early_outcome(exit: Exit, early: Exit | None) -> Exit:
    """Returns the outcome that the program reported before its remaining calls were cancelled, if any."""
    if early is None or exit.error is None or exit.error.code not in _ENDED_FROM_OUTSIDE:
        return exit
    message = f"unawaited calls were cut short: {exit.error.message}"
    remark = Diagnostic(severity="warning", message=message, code=exit.error.code)
    return replace(early, diagnostics=(*early.diagnostics, remark))


def why_not_durable(sandbox: str, capabilities: Capabilities, protocol: str, *, has_files: bool) -> str | None:
    """Returns the reason why programs cannot be durable; None if they can."""
    if not capabilities.durable:
        return f"sandbox {sandbox!r} cannot run a program the same way again; 'wasm', and 'auto' on Linux, can"
    if has_files:
        return "the files of a session are not on record; leave out the session and its session_id, or keep='variables'"
    if protocol != "pipe":
        return f"its calls come over {protocol!r}; leave out Corral(bridge=...)"
    return None


def concluded(
    running: ExecutionResult,
    program: Program | None,
    exit: Exit | None,
    *,
    records: Sequence[CallRecord],
    gate: Gate | None,
    learnt: Callable[[str], str] = lambda name: "",  # noqa: ARG005
) -> ExecutionResult:
    """Completes a result with its program's exit. Without an exit, the execution was cancelled.

    `learnt` describes to a model the results of a tool that does not declare them.
    """
    if exit is None:
        error = ExecutionError(
            code=ExecutionCancelled.code, name=ExecutionCancelled.__name__, message="the execution was cancelled"
        )
        return replace(running, status="cancelled", error=error)
    dropped = exit.dropped_log_bytes
    return replace(
        running,
        status=exit.status,
        value=exit.value,
        error=exit.error,
        unawaited=exit.unawaited,
        diagnostics=(
            *_remarks(program, exit),
            *exit.diagnostics,
            *remarks_on(records, exit.error, running.language),
            *_looped_texts(program, records),
            *_check_remarks(gate),
            *_learnt_remarks(program, exit, records, learnt),
        ),
        truncated=(f"{dropped} bytes of console output over the limit were dropped",) if dropped else (),
    )


def _remarks(program: Program | None, exit: Exit) -> tuple[Diagnostic, ...]:
    """Returns the remarks of recovery, except "no result" if the program did return one."""
    if program is None or exit.value is not None or exit.error is not None or exit.status == "paused":
        return tuple(each for each in (program.diagnostics if program else ()) if each.severity != "info")
    return program.diagnostics


def _looped_texts(program: Program | None, records: Sequence[CallRecord]) -> Iterator[Diagnostic]:
    """Yields remarks on loops over string results, which iterated over their characters."""
    texts: dict[str, str] = {}
    others: set[str] = set()
    for record in records:
        if "output" not in record.unread and isinstance(record.output, str) and len(record.output) > 1:
            texts.setdefault(record.name, record.output)
        else:
            others.add(record.name)
    if program is None or texts.keys() <= others:
        return
    for loop in loops_over_calls(program):
        if (text := texts.get(loop.path)) is not None and loop.path not in others:
            message = f"{loop.shown} was a string of {len(text):,} characters: the loop iterated over its characters"
            yield Diagnostic(severity="warning", code="looped_text", message=message, line=loop.line)


def _check_remarks(gate: Gate | None) -> tuple[Diagnostic, ...]:
    verdict = None if gate is None else gate.verdict
    if verdict is not None and verdict.unchecked is not None:
        message = f"the program was not checked: {verdict.unchecked}"
        return (Diagnostic(severity="info", message=message, code="unchecked", show="on_failure"),)
    return () if verdict is None else verdict.diagnostics


def _learnt_remarks(
    program: Program | None, exit: Exit, records: Sequence[CallRecord], learnt: Callable[[str], str]
) -> Iterator[Diagnostic]:
    """Yields descriptions of observed but undeclared results, if the program failed or was rejected."""
    names: list[str] = []
    if exit.error is not None and exit.error.code == ProgramFailed.code:
        names = [record.name for record in records if record.state == "returned"]
    elif exit.error is not None and exit.error.code == ProgramRejected.code and program is not None:
        names = [] if program.references is None else [each.path for each in program.references.named]
    texts = ((name, learnt(name)) for name in dict.fromkeys(names))
    for name, text in islice(((name, text) for name, text in texts if text), _MOST_LEARNT):
        yield Diagnostic(severity="info", code="seen_in_results", message=f"tools.{name}, {text}")


logger = get_logger("corral.running")


_MOST_LOSSES = 3
"""Number of lost sandboxes after which an execution is not continued at once: its program can be the cause."""
_MANY_ENTRIES = 10_000
"""Number of console entries that are hidden from the garbage collector at a time."""
_KEEPS = "those of sandbox='auto' on Linux can; leave out keep='variables'"
_CHECK_HELP = "`corral doctor` lists the language servers"


class Execution:
    """Takes one request through its phases. `run` can be called once, `cancel` at any time.

    `tools` and `services` are those that the caller sees. `service_sources` are further services of the host, after the
    runtime's. `modules` and `packages` replace the runtime's for this program. `events` are those of the execution
    that this one continues because its sandbox was lost.

    Raises:
        ConfigError: the sandbox does not support packages.
    """

    def __init__(
        self,
        runtime: Runtime,
        request: ExecutionRequest,
        *,
        tools: ToolRegistry,
        services: Services,
        workspace: OpenSession | KeptWorkspace | None = None,
        modules: NpmPackages | None = None,
        packages: PythonPackages | None = None,
        service_sources: tuple[ServiceSource, ...] = (),
        on_event: OnEvent | None = None,
        approve: Approve | None = None,
        recording: Recording | None = None,
        events: EventStream | None = None,
    ) -> None:
        self._recording = recording
        self._is_offline = recording is not None and recording.offline
        self._cell: Mapping[str, Any] | None = ((recording and recording.head) or {}).get("cell")
        """Place of a recorded cell in its notebook."""
        self.execution_id = (recording and recording.execution_id) or request.execution_id or new_execution_id()
        self.ended = anyio.Event()
        self._runtime = runtime
        self._request = request
        self._tools = tools
        self.workspace = workspace
        self._service_sources = (*runtime.service_sources, *service_sources)
        self._limits = request.limits or runtime.limits
        self._check: CheckMode = (
            "off" if recording is not None and (recording.rows or recording.offline) else runtime.check_of(request)
        )
        self._provider = runtime.provider(request.language, durable=recording is not None)
        self._compiler = runtime.compiler(request)
        self._modules = (modules or runtime.modules) if LANGUAGES[request.language].npm else None
        has_files = workspace is not None and recording is None
        self._loads_modules = runtime.loads_modules(request.language, modules=modules, in_session=has_files)
        capabilities = self._provider.capabilities
        self._packages = packages or runtime.packages
        imported = self._modules or runtime.packages_for(request.language, packages)
        if imported is not None and not capabilities.modules:
            raise ConfigError(
                f"sandbox {self._provider.name!r} does not support packages here; leave out Corral(packages=...)"
            )
        self._protocol = runtime.protocols.supported_by(self._provider.name, capabilities.bridges)
        observations = () if self._is_offline else runtime.observations
        self._is_rest = events is not None
        self._events = events or EventStream(self.execution_id, request.context, request.tool_call_id, observations)
        self._listener: EventListener | None = None
        if on_event is not None:
            self._listener = EventListener(on_event, f"on_event of {self.execution_id}")
            self.observe(self._listener)
        self._recorder = CallRecorder(self._events, rooms=runtime.values)
        self._clock = PausableDeadline(self._limits.wall_seconds - self._active_before)
        self._grant = Grant(
            execution_id=self.execution_id,
            context=request.context,
            scopes=runtime.implied.held_with(request.context.scopes),
            limits=self._limits,
            tools=tools,
            services=services,
            clock=self._clock,
            recorder=self._recorder,
            approve=approve,
            source=request.source,
            has_files=workspace is not None,
        )
        if runtime.flow is not None and not self._is_offline:
            self._grant.flow = runtime.flow.begin(
                request.context,
                request.source,
                request.asked,
                shares=workspace is not None,
                continues=recording is not None and (recording.head is not None or recording.result is not None),
            )
        if recording is not None:
            self._expect_durable(capabilities)
        self._journal: Journal | None = None
        self._notebook: Notebook | None = None
        self._sandbox: Sandbox | None = None
        """Process of the notebook in which a recorded cell runs again."""
        self._is_kept = False
        """True for a cell whose process goes on, with its variables."""
        self._scope = anyio.CancelScope()
        self._is_final = True
        """False if the host has cancelled it in such a way that a durable execution can be resumed."""
        self._began, self._started, self._check_started = 0.0, 0.0, 0.0
        self._concluded = False
        """True once the result exists and is recorded."""
        self._is_lost = False
        """True once the sandbox of a durable execution was lost, which can be resumed."""
        self.losses = 0
        """Number of sandboxes that it has lost before."""
        self.make_rest: Callable[[EventStream], Awaitable[Execution]] | None = None
        """Makes the execution that continues this one if its sandbox is lost."""
        self._rest: Execution | None = None
        self._gate: Gate | None = None
        self._logs: list[LogEntry] = []
        self._containment: ContainmentKind | None = None
        self._room: OpenSession | None = None
        self._file_changes: FileChanges | None = None
        self._capabilities: ProgramCapabilities | None = None
        self._early_outcome: Exit | None = None
        self._hidden_denial: ExecutionError | None = None
        """Denial of hidden tools that the program names. For the audit log only."""

    @property
    def _active_before(self) -> float:
        """Seconds of wall clock that a durable program used before it was resumed."""
        recording = self._recording
        return 0.0 if recording is None or recording.offline else recording.active_seconds

    def _expect_durable(self, capabilities: Capabilities) -> None:
        reason = why_not_durable(
            self._provider.name,
            capabilities,
            self._protocol.name,
            has_files=self.workspace is not None and self.workspace.keep == "files",
        )
        if reason is not None:
            raise ConfigError(f"durable=True is not possible: {reason}")

    def observe(self, observer: OnEvent) -> None:
        """Adds a function that receives every event."""
        self._events.observers.append(observer)

    def cancel(self, *, final: bool = True) -> None:
        """Ends the execution with the status `cancelled`. Does nothing if it has already ended.

        Unless `final`, a durable execution can be resumed.
        """
        self._is_final = self._is_final and final
        self._scope.cancel()
        if self._rest is not None:
            self._rest.cancel(final=final)

    async def give_up(self) -> None:
        """Cancels the execution so that it can be resumed, after saving its guest if that is possible at once."""
        if self._rest is not None:
            await self._rest.give_up()
        elif self._journal is not None:
            await self._journal.save()
        self.cancel(final=False)

    async def run(self) -> ExecutionResult:
        """Runs the program to its end.

        Raises:
            StartFailed: the sandbox did not start.
        """
        if self._recording is not None and self._recording.result is not None:
            self.ended.set()
            return self._recording.result
        try:
            result = await self._run_measured()
            if not self._is_continued or self.make_rest is None:
                return result
            try:
                rest = self._rest = await self.make_rest(self._events)
            except BaseException:
                self._events.emit(lambda stamp: ExecutionFinished(result=result, **stamp))
                raise
            rest.losses = self.losses + 1
            if self._scope.cancel_called:
                rest.cancel(final=self._is_final)
            return await rest.run()
        finally:
            if self._listener is not None:
                await self._listener.finish()
            self.ended.set()

    @property
    def _is_continued(self) -> bool:
        """True if this is not the end of the execution, because its sandbox was lost and it continues in another."""
        return self._is_lost and self.make_rest is not None and self.losses + 1 < _MOST_LOSSES

    async def _run_measured(self) -> ExecutionResult:
        telemetry = self._runtime.telemetry
        instruments = None if telemetry is None else telemetry.instruments()
        if instruments is None:
            return await self._run()
        request = self._request
        with instruments.execution(request.language, request.context, self.execution_id) as ended:
            result = await self._run()
            if self._journal is not None:
                for tool, size in self._journal.bytes.items():
                    if self._grant.peek_tool(tool) is not None:  # guests must not create series
                        instruments.recorded(tool, request.context.organization_id, size)
            ended.failed(result.error)
            ended.attributes |= {"corral.status": result.status, "corral.containment": result.containment}
            return result

    @property
    def _log_fields(self) -> dict[str, object]:
        return {"execution_id": self.execution_id, "user_id": self._request.context.user_id}

    async def _run(self) -> ExecutionResult:
        self._began, self._started = time.time(), time.perf_counter()
        source, language = self._request.source, self._request.language
        self._runtime.program_logger.info(
            "%s runs this program:\n%s", self.execution_id, Lines(source), extra=self._log_fields
        )
        if not self._is_rest:
            self._events.emit(lambda stamp: ExecutionStarted(language=language, source=source, **stamp))
        try:
            with self._scope, owner_active(self._request.context.owner):
                if self._grant.flow is not None:
                    with anyio.CancelScope(shield=True):  # a cancelled write would count as a lost program
                        await self._grant.flow.join(self.execution_id)
                is_new = self._recording is None or self._recording.head is None
                is_cell = is_new and self.workspace is not None and self.workspace.keep == "variables"
                return await self._conclude(*await (self._run_cell() if is_cell else self._prepare_and_run()))
            return await self._conclude(None, None)
        except BaseException as error:
            if not self._concluded:  # a failure or a cancelled task, which is recorded like any other end
                cancelled = isinstance(error, anyio.get_cancelled_exc_class())
                self._is_final = False
                await self._conclude(None, None if cancelled else broken(error))
            raise
        finally:
            self._recorder.close()
            if not self._is_continued:
                self.ended.set()

    async def _run_cell(self) -> tuple[Program | None, Exit]:
        """Runs the program in the process of its session's notebook, after the programs before it."""
        assert self.workspace is not None
        notebooks = self._runtime.notebooks
        async with self.workspace.hold() as session:
            notebook = self._notebook = notebooks.of(session, self._request.language)
            async with notebook.turn, AsyncExitStack() as stack:
                if self._recording is not None:
                    await notebooks.load(notebook, self._recording.records, self._cell_again)
                is_durable = self._recording is not None
                if (reason := notebook.end_reason(self._grant.scopes, is_durable=is_durable)) is not None:
                    await notebooks.end(notebook, reason)
                if notebook.is_recorded:
                    try:  # before the check, during which it must not make room for others
                        await stack.enter_async_context(notebooks.process(notebook, self._start))
                    except LedgerError as error:
                        notebook.lose(loss_of(error))
                lost = notebook.lost()
                program, exit = await self._prepare_and_run()
                return program, notebook.with_remarks(exit, lost)

    def _cell_again(self, recorded: Recorded) -> Execution:
        """Makes the execution that runs a recorded cell of the notebook again, offline."""
        assert self._recording is not None
        return Execution(
            self._runtime,
            ExecutionRequest.model_validate(recorded.head["request"]),
            tools=self._tools,
            services=self._grant.services,
            modules=self._modules,
            packages=self._packages,
            service_sources=self._service_sources[len(self._runtime.service_sources) :],
            recording=Recording(
                records=self._recording.records,
                execution_id=recorded.execution.execution_id,
                offline=True,
                head=recorded.head,
                rows=recorded.calls,
                state=recorded.result,
            ),
        )

    async def read_again(self, bound: frozenset[str]) -> tuple[Program, frozenset[str]]:
        """Returns the program of a recorded cell, behind cells that have bound these names, and its scopes."""
        assert self._recording is not None
        assert self._recording.head is not None
        return await self._recorded_program(self._recording.head, bound), self._grant.scopes

    async def run_again(self, program: Program, sandbox: Sandbox | None) -> Sandbox:
        """Runs a recorded cell again in the process of its notebook, which it starts unless it has one.

        Raises:
            LedgerError: it took another course, or was recorded with other versions.
            SandboxLost: the process was lost.
        """
        started = self._sandbox = sandbox or await self._start()
        try:
            exit = await self._run_in_sandbox(program)
            assert self._recording is not None
            assert self._cell is not None
            if exit.error is not None and exit.error.code == SandboxLost.code:
                raise SandboxLost(f"the process was lost while program {self._cell['number']} ran again")
            if not started.is_usable or exit.status != self._recording.state["status"]:
                reason = "" if exit.error is None else f": {exit.error.message}"
                raise Diverged(f"program {self._cell['number']} did something else when it ran again{reason}")
            return started
        except BaseException:
            await _shielded(started.aclose)
            raise
        finally:
            self._recorder.close()

    async def _begin_recorded_cell(self, cell: Mapping[str, Any], recording: Recording) -> None:
        """Reads the cells before a recorded one, which continues in a separate process.

        Raises:
            LedgerError: they cannot be read.
            AccessDenied: the caller has scopes that they did not have.
        """
        notebook = self._notebook = Notebook(cell["notebook"])
        await notebook.load_up_to(cell["before"], recording.records, self._cell_again)
        if lost := notebook.lost():
            raise LedgerError(f"{self.execution_id} cannot continue: {lost}")
        if (reason := notebook.end_reason(self._grant.scopes, is_durable=True)) is not None:
            raise AccessDenied(f"{self.execution_id} cannot continue behind the programs before it: {reason}")

    async def _prepare_and_run(self) -> tuple[Program | None, Exit]:
        request = self._request
        head = None if self._recording is None else self._recording.head
        if self._cell is not None and self._recording is not None:
            await self._begin_recorded_cell(self._cell, self._recording)
        bound = None if self._notebook is None else self._notebook.names
        if head is not None and "code" in head:
            return (program := await self._recorded_program(head, bound)), await self._run_in_sandbox(program)
        try:
            program = await prepare_request(request, self._compiler, self._limits, self._tools, bound)
        except ProgramRejected as error:
            return None, rejected(error)
        if (refusal := self._admit(program)) is not None:
            return program, refusal
        if self._gate is None or self._gate.is_decided:
            return program, await self._run_in_sandbox(program)
        if self._notebook is not None:
            return program, await self._run_once_checked(program, self._gate)
        return program, await self._run_while_checked(program, self._gate)

    async def _recorded_program(self, head: Mapping[str, Any], bound: frozenset[str] | None) -> Program:
        """Returns the program as it first ran, because the tools, with which its source was read, might have changed
        since."""
        request, code = self._request, head["code"]
        with suppress(CorralError):
            program = await prepare_request(request, self._compiler, self._limits, self._tools, bound)
            if program.code == code:
                return program
        imports = tuple(head["imports"])
        return Program(language=request.language, source=request.source, code=code, imports=imports)

    # --- admit

    def _admit(self, program: Program) -> Exit | None:
        """Begins the check of the program. Returns a rejection if it names tools beyond its scopes, or if an earlier
        check has rejected it."""
        if (references := program.references) is not None:
            self._capabilities = capabilities_of(references, self._tools)
            self._hidden_denial = hidden_denial(references, self._tools, self._grant.scopes)
            if denial := early_denial(references, self._tools, self._grant.scopes):
                return Exit(status="rejected", error=denial)
        if self._check == "off":
            return None
        request = self._request
        case = Case(
            program if self._notebook is None else self._notebook.checked(program),
            self._tools,
            env=request.env is not None,
            must=self._check == "required",
            modules=self._loads_modules,
            network=any(source.origins for source in self._service_sources),
            lacks=self._provider.capabilities.lacks,
            context=request.context,
        )
        self._check_started = time.perf_counter()
        gate = self._gate = Gate(self._runtime.checker, case)
        if not gate.is_open:
            self._grant.gate = gate
        if gate.is_decided:
            self._emit_checked(gate)
        return rejected(gate.rejection) if gate.is_decided and gate.rejection is not None else None

    async def _run_while_checked(self, program: Program, gate: Gate) -> Exit:
        """Runs the program while it is checked. A rejection ends it before its first call."""
        exit: Exit | None = None
        failure: Exception | None = None

        async def decide() -> None:
            await gate.decide()
            self._emit_checked(gate)
            if gate.is_open:
                for entry in self._logs:
                    self._emit_console(entry)
            else:
                tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(decide)
                try:
                    exit = await self._run_in_sandbox(program)
                    await gate.wait()
                except Exception as error:  # raised below, because a task group would wrap it
                    failure = error
                    tasks.cancel_scope.cancel()
        finally:
            gate.close()
        if gate.rejection is not None:
            self._logs.clear()
            return rejected(gate.rejection)
        if failure is not None:
            raise failure
        if exit is None or not gate.is_open:
            raise self._unchecked(gate)
        return exit

    async def _run_once_checked(self, program: Program, gate: Gate) -> Exit:
        """Checks a cell before it runs, because a rejected cell must not have changed any variable."""
        try:
            await gate.decide()
        finally:
            gate.close()
        self._emit_checked(gate)
        if gate.rejection is not None:
            return rejected(gate.rejection)
        if not gate.is_open:
            raise self._unchecked(gate)
        return await self._run_in_sandbox(program)

    def _unchecked(self, gate: Gate) -> StartFailed:
        reason = gate.verdict.unchecked if gate.verdict else "the program ended first"
        return StartFailed(f"the program could not be checked, but check='required': {reason}; {_CHECK_HELP}")

    def _emit_checked(self, gate: Gate) -> None:
        if (verdict := gate.verdict) is None:  # the program ended first
            return
        duration_ms = (time.perf_counter() - self._check_started) * 1000
        self._events.emit(
            lambda stamp: ProgramChecked(
                verdict="rejected" if gate.rejection else "passed" if gate.is_checked else "unchecked",
                diagnostics=verdict.diagnostics,
                reason=verdict.unchecked,
                duration_ms=duration_ms,
                **stamp,
            )
        )

    # --- start and run

    async def _run_in_sandbox(self, program: Program) -> Exit:
        """Runs a program in a sandbox, with the directories of its session, if any, and the host's services."""
        runtime, limits = self._runtime, self._limits
        if self._grant.flow is not None:
            self._grant.flow.references = program.references
        over: list[str] = []
        exit = failed_exit(ProgramTimeout(f"the program exceeded its time limit of {limits.wall_seconds:g} s"))
        with anyio.CancelScope() as scope:

            def end(reason: str) -> None:
                over.append(reason)
                scope.cancel()

            async with AsyncExitStack() as stack:
                if self.workspace is not None and self._recording is None:
                    self._room = await stack.enter_async_context(self.workspace.enter(end))
                    stack.push_async_callback(_shielded, partial(self._look, self._room, over.append))
                if self._cell is not None:
                    program = replace(program, cell=self._cell["number"])
                if self._sandbox is not None:
                    sandbox = self._sandbox
                elif self._notebook is None or self._cell is not None:
                    notebook = self._notebook
                    sandbox = await (self._start() if notebook is None else notebook.start(self._start))
                    stack.push_async_callback(_shielded, sandbox.aclose)
                else:
                    process = runtime.notebooks.process(self._notebook, self._start)
                    sandbox = await stack.enter_async_context(process)
                    is_durable = self._recording is not None
                    number = self._notebook.begin(self._grant.scopes, is_durable=is_durable)
                    program = replace(program, cell=number)
                self._containment = sandbox.containment
                services: dict[str, Service] = {}
                for source in self._service_sources:
                    services |= await stack.enter_async_context(source.serve(self._grant, runtime.audit))
                self._grant.host_services = services
                modules = None if self._modules is None else await self._modules.texts_for(program)
                types = await runtime.checker.types_for(program, self._tools)
                job = Job(
                    execution_id=self.execution_id,
                    program=program,
                    limits=limits,
                    tools=self._tools.names(),
                    env=self._request.env,
                    on_log=self._log,
                    on_outcome=self._keep_outcome,
                    services=tuple(services),
                    mounts=() if self._room is None else self._room.space.places,
                    files=None if self._room is None else self._room.program_files,
                    modules=modules,
                    types=types,
                )
                if self._recording is not None:
                    job = await self._recorded_job(job, self._recording)
                with runtime.grants.live(self._grant), self._clock.running():
                    async with self._protocol.serve(runtime.protocols.host, self._grant) as endpoint:
                        if self._journal is None:
                            exit = await sandbox.execute(job, endpoint)
                        else:
                            exit = await self._run_durably(sandbox, job, endpoint, self._journal)
                if self._notebook is not None and sandbox.is_usable:
                    self._notebook.add(program, exit.status, self.execution_id)
                    self._is_kept = True
        if over:
            return failed_exit(FilesExceeded(f"the program wrote more than its session holds: {over[0]}"))
        exit = prefer_early_outcome(exit, self._early_outcome)
        self._is_lost = self._journal is not None and exit.lost
        return exit

    async def _recorded_job(self, job: Job, recording: Recording) -> Job:
        """Makes the journal, and returns the job with the recorded parts.

        Raises:
            LedgerError: the execution cannot be recorded, or was recorded with other versions.
        """
        head = self._head(job)
        if (recorded := recording.head) is not None:
            for name in ("engine", "packages"):
                if recorded[name] != head[name]:
                    text = f"{self.execution_id} was recorded with {recorded[name]}, and here is {head[name]}"
                    raise Outdated(f"{text}; run it with the same {'versions' if name == 'engine' else 'packages'}")
            head = {**head, **recorded}
            tools = tuple(ToolName.parse(name) for name in head["tools"])
            job = replace(job, tools=tools, services=tuple(head["services"]), types=head["types"])
        claim = recording.claim
        if claim is None and not recording.offline:
            claim = await recording.records.create(self.execution_id, self._request.context.owner, head)
            for row in recording.rows:
                recording.records.writer.put(claim, row)
        journal = self._journal = Journal(
            recording,
            self._grant,
            self._recorder,
            head,
            claim,
            logs=self._logs,
            log=self._log,
            saves=self._provider.capabilities.saves,
        )
        self._grant.journal = journal
        if self._notebook is not None and self._cell is None:
            await self._notebook.record(recording.records, self.execution_id)
        return replace(job, durable=journal)

    def _head(self, job: Job) -> Mapping[str, Any]:
        """Returns the recorded start of a durable program."""
        request, modules = self._request.model_copy(update={"limits": self._limits}), job.modules
        texts = sorted(modules.texts.items()) if modules is not None else []
        return {
            "request": request.model_dump(mode="json"),
            "seed": token_hex(32),
            "now": float(int(time.time() * 1000)),
            "engine": self._provider.engine_version(self._config()),
            "packages": ", ".join(f"{name} {digest(text)}" for name, text in texts) or "no packages",
            "code": job.program.code,
            "imports": job.program.imports,
            "types": job.types,
            "tools": [str(name) for name in job.tools],
            "services": job.services,
            **({} if self._notebook is None else {"cell": self._notebook.place}),
        }

    async def _run_durably(self, sandbox: Sandbox, job: Job, endpoint: Endpoint, journal: Journal) -> Exit:
        exit: Exit | None = None
        continues = self._recording is not None and self._recording.claim is not None
        replies = journal.replies

        def resumed() -> None:
            replay.close()
            if continues:
                self._events.emit(lambda stamp: ExecutionResumed(replies=replies, **stamp))

        with ExitStack() as replay, anyio.CancelScope() as scope:
            journal.end = scope.cancel
            if not journal.is_live and not self._is_offline:
                replay.enter_context(self._clock.paused())
                journal.on_live = resumed
            elif journal.is_live:
                resumed()
            exit = await sandbox.execute(job, endpoint)
        return journal.exit(exit)

    async def _look(self, room: OpenSession, over: Callable[[str], None]) -> None:
        """Records the session's changed files, and calls `over` if they exceed its quota."""
        try:
            self._file_changes = await room.look(over)
        except Exception as error:  # the user's own store can raise anything
            expected = isinstance(error, FileError)
            logger.warning(
                "%s: its changed files are unknown: %s",
                self.execution_id,
                error,
                exc_info=not expected,
                extra=self._log_fields,
            )

    async def _start(self) -> Sandbox:
        runtime, request, provider = self._runtime, self._request, self._provider
        config = self._config()
        if self._room is not None and await provider.space_host(config) is None:
            raise ConfigError(
                f"sandbox {provider.name!r} does not support session files; use a sandbox on this machine"
            )
        seconds = self._provider.capabilities.start_timeout_seconds
        try:
            with anyio.move_on_after(seconds):
                await runtime.warm_up(request.language)
                sandbox = await self._provider.start(config)
                if self._notebook is not None and not self._provider.capabilities.cells:
                    await sandbox.aclose()
                    raise ConfigError(f"sandbox {provider.name!r} cannot keep variables; {_KEEPS}")
                if self._recording is not None and not self._provider.capabilities.durable:  # chosen at the first start
                    await sandbox.aclose()
                    self._expect_durable(self._provider.capabilities)
                if not sandbox.containment.reaches(runtime.containment.required):
                    await sandbox.aclose()
                    raise below_required_tier(provider.name, sandbox.containment, runtime.containment.required)
                runtime.start_failed = -math.inf
                return sandbox
            raise StartFailed(f"sandbox {provider.name!r} did not start within {seconds:g} s")
        except StartFailed:
            runtime.start_failed = time.monotonic()
            raise

    def _config(self) -> SandboxConfig:
        config = self._runtime.sandbox_config(
            self._request.language,
            self._limits,
            owner=self._request.context.owner,
            space=None if self._room is None else self._room.space,
            loads_modules=self._loads_modules,
            packages=self._packages,
            modules=self._modules,
        )
        return config if self._recording is None else config.model_copy(update={"durable": True})

    def _keep_outcome(self, outcome: Exit) -> None:
        self._early_outcome = outcome

    def _log(self, entry: LogEntry) -> None:
        self._logs.append(entry)
        if self._grant.flow is not None:  # observers receive it while the program runs
            self._grant.flow.shows(entry.text)
        if self._journal is not None:
            self._journal.logged = len(self._logs)
        if len(self._logs) % _MANY_ENTRIES == 0:
            spare_young()
        if (self._gate is None or self._gate.is_open) and (self._journal is None or self._journal.is_live):
            self._emit_console(entry)

    def _emit_console(self, entry: LogEntry) -> None:
        self._events.emit(lambda stamp: ConsoleOutput(entry=entry, **stamp))

    # --- conclude

    async def _conclude(self, program: Program | None, exit: Exit | None) -> ExecutionResult:
        """Creates the result, records it and emits it. Without an exit, the execution was cancelled."""
        records = self._recorder.records
        if exit is None or exit.status != "succeeded" or exit.unawaited:
            self._recorder.look_up(self._tools)
        running = ExecutionResult(
            execution_id=self.execution_id,
            status="cancelled",
            language=self._request.language,
            logs=tuple(self._logs),
            duration_ms=(time.perf_counter() - self._started) * 1000,
            tool_calls=tuple(records),
            containment=self._containment,
            capabilities=self._capabilities,
            checked=self._gate is not None and self._gate.is_checked,
            files=self._file_changes,
            pending=() if self._journal is None else self._journal.pending,
        )
        result = concluded(running, program, exit, records=records, gate=self._gate, learnt=self._learnt_of)
        if self._grant.flow is not None:
            self._follow_to_model(self._grant.flow, result)
            with anyio.CancelScope(shield=True):
                try:
                    await self._grant.flow.leave()
                except LedgerError as error:
                    logger.warning(
                        "%s: its session now counts as exposed: %s", self.execution_id, error, extra=self._log_fields
                    )
        if self._journal is not None and self._journal.spared:
            self._recorder.look_up(self._tools)
            calls = calls_text([record for record in records if record.sequence in self._journal.spared])
            text = f"not called again, since the failed program before had made the same calls: {calls}"
            note = Diagnostic(severity="info", code="not_repeated", message=f"{text}; their recorded results were used")
            result = replace(result, diagnostics=(*result.diagnostics, note))
        self._concluded = True
        if self._recording is not None and not self._is_offline:
            with anyio.CancelScope(shield=True):
                result = await self._conclude_record(result, self._recording)
        if self._runtime.audit is not None and not self._is_offline:
            with anyio.CancelScope(shield=True):
                await record_execution(
                    self._runtime.audit,
                    self._request,
                    result,
                    began=self._began,
                    protocol=self._protocol.name,
                    hidden_denial=self._hidden_denial,
                )
        if result.status == "paused" and not self._is_offline:
            self._events.emit(lambda stamp: ExecutionPaused(pending=result.pending, **stamp))
        if not self._is_continued:
            self._events.emit(lambda stamp: ExecutionFinished(result=result, **stamp))
        return result

    def _follow_to_model(self, flow: ProgramFlow, result: ExecutionResult) -> None:
        """Records all of a result that a model reads. A failed or paused program shows inputs of its calls as well."""
        flow.shows([result.value, [entry.text for entry in result.logs]])
        if result.files is not None:
            flow.shows([*result.files.created, *result.files.changed, *result.files.deleted])
        quotes = any(each.code == _QUOTES_RESULTS for each in result.diagnostics)
        if flow.read and (result.error is not None or result.pending or result.unawaited or quotes):
            flow.expose()

    async def _conclude_record(self, result: ExecutionResult, recording: Recording) -> ExecutionResult:
        """Records the end of a durable execution. Returns the result, which is a failure if recording fails."""
        claim, journal = recording.claim, self._journal
        if journal is not None:
            claim = journal.claim
        if claim is None:
            return result
        resumable = journal is None or journal.is_resumable or self._is_lost or not self._is_final
        try:
            if resumable and result.status != "paused":
                is_as_paused = recording.was_paused and not (journal and journal.has_recorded)
                await recording.records.end(claim, "paused" if is_as_paused else "running", None)
            else:
                kept = {"kept": True} if self._is_kept else {}
                end = (lambda: {**journal.result(result), **kept}) if journal else dict
                await recording.records.end(claim, result.status, end)
        except LedgerError as error:
            if result.status in ("succeeded", "paused"):
                failed = failed_exit(error)
                return replace(result, status="failed", value=None, error=failed.error, pending=())
            logger.warning("%s: its end is not on record: %s", self.execution_id, error, extra=self._log_fields)
        return result

    def _learnt_of(self, name: str) -> str:
        tool, request = self._tools.get(name), self._request
        return "" if tool is None else self._runtime.learnt.told(tool, request.context, request.language)


async def _shielded(clean_up: Callable[[], Awaitable[None]]) -> None:
    with anyio.CancelScope(shield=True):
        await clean_up()
