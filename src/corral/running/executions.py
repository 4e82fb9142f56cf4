"""`Corral.executions`: executions by id, both running ones and those in the ledger."""

from __future__ import annotations

import builtins
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Unpack

import anyio
from anyio.abc import TaskGroup

from corral.arguments import checked
from corral.calls import Call, Grant, ParkedCalls
from corral.concurrency.task_groups import plain_task_group
from corral.errors import (
    AccessDenied,
    ConfigError,
    CorralError,
    DecisionDenied,
    HeldElsewhere,
    LedgerDamaged,
    LedgerError,
    Outdated,
)
from corral.guest import UnencodableValue, decode_value
from corral.ledger import NOT_KEPT, WAITING, CallRow, Claim, ExecutionStatus, Query, Recorded, Records, StoredExecution
from corral.logs import get_logger
from corral.results import ExecutionResult
from corral.running.execution import Execution
from corral.running.journal import Recording, Step, changes_something
from corral.running.options import LiveOptions
from corral.running.peer_decisions import PeerDecisions
from corral.running.recorded import asked_of, pack_result, result_of
from corral.running.request import ExecutionRequest
from corral.tools import ToolRegistry
from corral.tools.tool_sources import Tools
from corral.types import (
    TIMER,
    ApprovalRequest,
    Approved,
    CallRequest,
    Denied,
    ExecutionContext,
    ExecutionError,
    MayDecide,
    Reply,
    Retry,
    Settled,
    Settlement,
)

logger = get_logger("corral.ledger")

_UNDONE = ("undoing", "undone")
_LOOK_SECONDS = 10.0
"""Time between two looks for executions whose host is lost."""
_MOST_WAITING = 10_000
"""Maximum number of calls that `waiting` lists."""
_MOST_EARLIER = 100
"""Maximum number of executions that are read for `after`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExecution:
    """Execution whose calls wait for decisions."""

    execution_id: str
    context: ExecutionContext
    calls: tuple[ApprovalRequest, ...]
    """Calls that wait for decisions, oldest first."""
    status: Literal["running", "paused"] = "running"
    """`paused` means that no process runs it; `resume` continues it once the calls are decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRecord:
    """Execution in the ledger. In lists, `request` and the fields after it are left out."""

    execution_id: str
    status: ExecutionStatus
    user_id: str
    organization_id: str | None
    created: float
    updated: float
    """Seconds since the Unix epoch."""
    request: ExecutionRequest | None = None
    tools: tuple[str, ...] = ()
    """Tools that its program can call."""
    value: Any = None
    error: ExecutionError | None = None
    result: ExecutionResult | None = None
    """Result, if it has ended or paused, as it was. None if its host was lost before it was rolled back."""
    pending: tuple[ApprovalRequest, ...] = ()
    """Calls that wait for decisions."""
    decided: frozenset[int] = frozenset()
    """Numbers of pending calls that have been decided and wait for `resume`."""
    pauses: int = 0
    """Number of times that the execution has paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Replay of an execution with its state before each reply."""

    result: ExecutionResult
    steps: tuple[Step, ...]
    """In the order of the replies; those of timers too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneCall:
    """One change, and its outcome in a rollback."""

    sequence: int
    tool: str
    outcome: Literal["undone", "failed", "not_undoable", "uncertain"]
    """`failed`: its undo raised an error. `not_undoable`: its tool is gone or has no `undo`. `uncertain`: its effect is
    unknown."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Report of a rollback."""

    execution_id: str
    calls: tuple[UndoneCall, ...]
    """Changes that the execution made, the last one first, including those that an earlier rollback has undone."""

    @property
    def complete(self) -> bool:
        """True if all changes are undone."""
        return all(each.outcome == "undone" for each in self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Calls of one tool by one user on one day."""

    organization_id: str | None
    user_id: str
    tool: str
    """Tool or service of the host, as in programs."""
    day: str
    """Date in UTC, such as 2026-11-28."""
    calls: int
    failed: int
    duration_ms: float
    """Time that the calls took, without that in which programs were paused."""
    input_bytes: int
    output_bytes: int
    """Sizes as JSON."""


class Executions:
    """Executions of one Corral by id: `Corral.executions`.

    Only a Corral with a `ledger` has recorded executions.
    """

    _shown_as = "Corral.executions"  # in errors

    def __init__(
        self,
        parked: ParkedCalls,
        live: Callable[[], Iterable[Execution]],
        records: Records | None,
        run: Callable[[ExecutionRequest, Recording, LiveOptions], Awaitable[ExecutionResult]],
        grant_to_undo: Callable[[str, ExecutionRequest, Tools | None], Grant],
        undo: Callable[[Call, object, Callable[[], Awaitable[None]]], Awaitable[Reply]],
        *,
        may_decide: MayDecide | None,
        registry: Callable[[Tools | None], ToolRegistry],
        is_closed: Callable[[], bool],
        peers: PeerDecisions | None = None,
    ) -> None:
        self._parked = parked
        self._peers = peers
        self._live = live
        self._ledger = records
        self._run = run
        self._grant_to_undo = grant_to_undo
        self._undo = undo
        self._may_decide = may_decide
        self._registry = registry
        self._is_closed = is_closed

    @property
    def _records(self) -> Records:
        if (records := self._opened()) is None:
            raise ConfigError("durable executions need a ledger; make the Corral with Corral(ledger=...)")
        return records

    def _opened(self) -> Records | None:
        """Returns the records of the ledger, if there is one. Those of a closed Corral would open it again."""
        if self._ledger is not None and self._is_closed():
            raise ConfigError("this Corral is closed; `async with corral` opens it again")
        return self._ledger

    @checked
    async def waiting(
        self, *, user_id: str | None = None, organization_id: str | None = None, elsewhere: bool = True
    ) -> tuple[PendingExecution, ...]:
        """Returns the executions whose calls wait for decisions, in this process, at its peers or in the ledger.

        The longest waiting come first. `user_id` and `organization_id` select the executions of one caller.
        `elsewhere=False` does not ask the peers.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        query = Query(user_id, organization_id, limit=_MOST_WAITING)
        asked: dict[str, dict[int, ApprovalRequest]] = {}
        for request in self._parked.requests():
            if query.includes(request.context.owner):
                asked.setdefault(request.execution_id, {})[request.sequence] = request
        paused: set[str] = set()
        if (records := self._opened()) is not None:
            contexts: dict[str, ExecutionContext] = {}

            def read(
                execution_id: str, status: ExecutionStatus, row: CallRow
            ) -> tuple[ExecutionStatus, ApprovalRequest]:
                return status, asked_of(row, execution_id, contexts)[1]

            for status, request in await records.waiting(read, query):
                if not query.includes(request.context.owner):
                    raise LedgerDamaged(f"the owner of {request.execution_id} in the ledger was altered")
                asked.setdefault(request.execution_id, {}).setdefault(request.sequence, request)
                if status == "paused":
                    paused.add(request.execution_id)
        if self._peers is not None and elsewhere:
            for request in await self._peers.waiting(query):
                if query.includes(request.context.owner):
                    asked.setdefault(request.execution_id, {}).setdefault(request.sequence, request)
            asked = dict(sorted(asked.items(), key=lambda item: min(each.asked_at for each in item[1].values())))
        return tuple(
            PendingExecution(
                execution_id=name,
                context=next(iter(calls.values())).context,
                calls=tuple(calls.values()),
                status="paused" if name in paused else "running",
            )
            for name, calls in asked.items()
        )

    @checked
    async def settle(
        self,
        execution_id: str,
        decisions: Mapping[int, Approved | Denied | Retry | Settled],
        *,
        by: str | ExecutionContext | None = None,
        digests: Mapping[int, str] | None = None,
    ) -> frozenset[int]:
        """Decides on waiting calls, by their `sequence`. The first decision on a call holds.

        `by` is the person: a name, for decisions that do not name anyone, or a context, whose user counts in any case.
        Without `Corral(may_decide=...)` the host has to check the person's right to decide: `waiting` has the `context`
        of the execution. `digests` are those of the requests that the person was shown (`ApprovalRequest.digest`): a
        call that differs from them now is not decided. Returns the calls that were decided, without calls that did not
        wait. `Retry`, `Settled` and `Denied` are for uncertain calls, `Approved` and `Denied` for others.

        Raises:
            DecisionDenied: the person has no right to decide on one of the calls. None of them is decided.
            HostLost: a peer does not answer, and no other host has the execution.
            ConfigError: a decision does not apply to such a call, or a program cannot receive its value.
            LedgerError: the decision could not be recorded.
        """
        person = by.user_id if isinstance(by, ExecutionContext) else None
        named = {sequence: replace(each, by=person or each.by or by) for sequence, each in decisions.items()}
        records = self._opened()
        undecided = None if records is None else await records.undecided(execution_id)
        waiting = {row.sequence: (row, *asked_of(row, execution_id)) for row in undecided or ()}
        asked = {sequence: request for sequence, (_, _, request) in waiting.items()}
        asked |= {each.sequence: each for each in self._parked.requests() if each.execution_id == execution_id}
        if self._peers is not None and not asked and undecided is None:
            return await self._peers.settle(execution_id, named, by, digests or {})
        for sequence, digest in (digests or {}).items():
            if sequence in asked and asked[sequence].digest != digest:
                named.pop(sequence, None)
        for sequence in named.keys() & asked.keys():
            await self._expect_right(asked[sequence], by, named[sequence])
        decided: set[int] = set()
        for sequence, decision in named.items():
            if records is None or undecided is None:
                if isinstance(decision, Approved | Denied) and self._parked.decide(execution_id, sequence, decision):
                    decided.add(sequence)
            elif sequence in waiting:
                row, binding, _ = waiting[sequence]
                _expect_fitting(row, decision)
                try:
                    if await records.decide(execution_id, sequence, binding, decision) is decision:
                        decided.add(sequence)
                except UnencodableValue as error:
                    text = f"the value for call {sequence} cannot be given to a program: {error}"
                    raise ConfigError(text) from error
        return frozenset(decided)

    async def _expect_right(
        self, asked: ApprovalRequest, by: str | ExecutionContext | None, decision: Settlement
    ) -> None:
        if self._may_decide is None:
            return
        person = by if isinstance(by, ExecutionContext) else ExecutionContext(user_id=decision.by or "anonymous")
        allowed = self._may_decide(asked, person)
        if (await allowed if inspect.isawaitable(allowed) else allowed) is not True:
            text = f"{person.user_id} may not decide on call {asked.sequence}, {asked.tool}, of {asked.execution_id}"
            raise DecisionDenied(f"{text}: Corral(may_decide=...) refused it")

    @checked
    async def resume(
        self, execution_id: str, *, context: ExecutionContext | None = None, **options: Unpack[LiveOptions]
    ) -> ExecutionResult:
        """Continues an execution that is paused or has lost its host, to its end or its next pause.

        `context` replaces the recorded one, and must have the same user and organization; `context.local` is never
        recorded. Scopes, rates and limits are checked again.

        Raises:
            ConfigError: there is no such execution, or no ledger.
            AccessDenied: the context has another user or organization. HeldElsewhere: another host runs the execution,
            or it has ended or expired. Outdated: it was recorded with another version of the engine or of a package.
            LedgerError: the record cannot be read.
            StartFailed: the sandbox did not start.
        """
        return await self._run(*await claimed(self._records, execution_id, context), options)

    @checked
    async def resume_lost(self, *, at_once: int = 4, **options: Unpack[LiveOptions]) -> tuple[ExecutionResult, ...]:
        """Continues the executions whose host is lost, and returns their results; a host calls it now and then.

        Of several hosts one gets each execution. One with an uncertain call pauses until a person has
        decided. Left out are those that this host lacks tools for, those that cannot be continued here, such as those
        of another version, which the log names once, and those that have been claimed 20 times.

        Raises:
            ConfigError: there is no ledger, or the Corral is closed.
            LedgerError: the ledger cannot be read.
        """
        results = builtins.list[ExecutionResult]()
        async with plain_task_group() as tasks:
            await self._resume_lost(tasks, anyio.CapacityLimiter(at_once), set(), options, results.append)
        return tuple(results)

    async def keep_resuming(self) -> None:
        """Continues the executions whose hosts are lost, four at a time, until it is cancelled."""
        limiter, names = anyio.CapacityLimiter(4), set[str]()
        async with plain_task_group() as tasks:
            while not self._is_closed():
                try:
                    await self._resume_lost(tasks, limiter, names, {}, lambda _: None)
                except LedgerError as error:
                    logger.warning("executions that have lost their host cannot be resumed: %s", error)
                await anyio.sleep(_LOOK_SECONDS)

    async def _resume_lost(
        self,
        tasks: TaskGroup,
        limiter: anyio.CapacityLimiter,
        names: set[str],
        options: LiveOptions,
        take: Callable[[ExecutionResult], object],
    ) -> None:
        """Starts tasks that resume the lost executions, except those in `names`, for which there are such tasks."""
        records, tools = self._records, self._registry(options.get("tools"))

        def admit(recorded: Recorded) -> None:
            if recorded.execution.status != "running":
                raise HeldElsewhere(f"another host has resumed {recorded.execution.execution_id}")
            unfinished = [row for row in recorded.calls if row.status != "done"]
            if missing := missing_tools(recorded.head["tools"], unfinished, tools):
                raise ConfigError(f"this Corral has no tool {', '.join(missing)}")

        async def resume(execution_id: str) -> None:
            async with limiter:
                try:
                    take(await self._run(*await claimed(records, execution_id, None, admit), options))
                except HeldElsewhere:
                    pass  # another host was faster
                except CorralError as error:
                    if isinstance(error, ConfigError | LedgerDamaged | Outdated) and not self._is_closed():
                        records.refused.add(execution_id)
                        logger.warning("%s has lost its host and cannot be resumed here: %s", execution_id, error)
                except Exception:  # of a sandbox, for example; the others go on
                    logger.exception("%s has lost its host, and resuming it has failed", execution_id)
                finally:
                    names.discard(execution_id)

        lost = await records.lost()
        # one that moves to another sandbox is claimed by nobody for a moment
        live = {each.execution_id for each in self._live() if not each.ended.is_set()}
        for execution_id in lost:
            if execution_id not in records.refused | names | live:
                names.add(execution_id)
                tasks.start_soon(resume, execution_id)

    @checked
    async def replay(
        self, execution_id: str, *, until: int | None = None, source: str | None = None, **options: Unpack[LiveOptions]
    ) -> ExecutionResult:
        """Runs a recorded program again, offline: every call is answered from the record, and no tool runs.

        It ends where the record ends, before the reply to call number `until`, or before the reply of a tool with
        `journal=False`, with the status `paused`. With another `source` it is a dry run of that program: it ends at the
        calls that are not on record, which are in `pending`.

        Raises:
            ConfigError: there is no such execution, or no ledger. Outdated: it was recorded with another version of the
            engine or of a package. LedgerError: the record cannot be read.
        """
        return await self._replay(execution_id, until, source, None, options)

    @checked
    async def timeline(self, execution_id: str, **options: Unpack[LiveOptions]) -> Timeline:
        """Replays an execution, and notes its state before each reply. Raises as `replay`."""
        steps: builtins.list[Step] = []
        result = await self._replay(execution_id, None, None, steps, options)
        return Timeline(result=result, steps=tuple(steps))

    async def _replay(
        self,
        execution_id: str,
        until: int | None,
        source: str | None,
        steps: builtins.list[Step] | None,
        options: LiveOptions,
    ) -> ExecutionResult:
        recorded = await self._records.load(execution_id)
        request, head = _with_source(_request_of(recorded, None), recorded.head, source)
        rows = _until(recorded.calls, until, offline=True)
        recording = Recording(
            records=self._records,
            execution_id=execution_id,
            offline=True,
            steps=steps,
            is_dry=source is not None,
            head=head,
            rows=rows,
            state=recorded.result if len(rows) == len(recorded.calls) and source is None else {},
        )
        result = await self._run(request, recording, options)
        if result.status != "paused" or until is not None or source is not None:
            return result
        return replace(result, pending=tuple(asked for _, asked in _waiting(recorded)))

    @checked
    async def fork(
        self,
        execution_id: str,
        *,
        at: int,
        source: str | None = None,
        context: ExecutionContext | None = None,
        **options: Unpack[LiveOptions],
    ) -> ExecutionResult:
        """Runs a recorded program again as a new execution, with the same replies up to call number `at`.

        From there on, its calls are made. If you pass another `source`, that program has to make the same calls up to
        there. `context` replaces the recorded one, as in `resume`.

        Raises:
            ConfigError: there is no such execution, or no ledger. AccessDenied: the context has another user or
            organization. Outdated: it was recorded with another version of the engine or of a package.
            LedgerError: the record cannot be read, or the new execution cannot be recorded.
            StartFailed: the sandbox did not start.
        """
        recorded = await self._records.load(execution_id)
        rows = _until(recorded.calls, at)
        if (undone := next((row for row in rows if row.status in _UNDONE), None)) is not None:
            number = undone.sequence
            raise ConfigError(f"fork(at={at}): call {number} was rolled back; fork at {number}, or an earlier call")
        request, head = _with_source(_request_of(recorded, context), recorded.head, source)
        request = request.model_copy(update={"execution_id": None})
        head = {**head, "forked": [execution_id, at], "request": request.model_dump(mode="json")}
        recording = Recording(records=self._records, head=head, rows=rows)
        return await self._run(request, recording, options)

    @checked
    async def discard(self, execution_id: str, *, context: ExecutionContext | None = None) -> None:
        """Ends an execution that is paused or has lost its host, for good: its status is then `cancelled`.

        Raises:
            ConfigError: there is no such execution, or no ledger.
            AccessDenied: the context has another user or organization. HeldElsewhere: it is running, or has ended.
            LedgerError: the record cannot be read or written.
        """
        records = self._records
        claim, recorded = await records.claim(execution_id, lambda each: _request_of(each, context))
        language = _request_of(recorded, None).language
        empty = ExecutionResult(execution_id=execution_id, status="cancelled", language=language)
        await records.end(claim, "cancelled", lambda: recorded.result or {**pack_result(empty)})

    @checked
    async def rollback(
        self,
        execution_id: str,
        *,
        until: int | None = None,
        context: ExecutionContext | None = None,
        tools: Tools | None = None,
    ) -> Rollback:
        """Undoes the changes that an execution has made, the last one first, with the `undo` of their tools.

        With `until`, the calls that `replay(until=...)` shows are kept. All others are tried, even if one fails. Each
        undo is recorded before the next one, and is not repeated if this is called again. The execution can no longer
        be resumed. The user's scopes are checked again, against `context`, as in `resume`; no approvals are requested,
        and limits and rates do not apply.

        Raises:
            ConfigError: there is no such execution, or no ledger.
            AccessDenied: the context has another user or organization. HeldElsewhere: the execution is running.
            LedgerError: the record cannot be read, or an undo cannot be recorded.
        """
        records = self._records
        claim, recorded = await records.claim(execution_id, lambda each: _request_of(each, context), ended=True)
        try:
            grant = self._grant_to_undo(execution_id, _request_of(recorded, context), tools)
            kept = {row.sequence for row in _until(recorded.calls, until)} if until is not None else frozenset[int]()
            left = [row for row in recorded.calls if row.sequence > 0 and row.sequence not in kept]
            left.sort(key=lambda row: len(recorded.calls) if row.place is None else row.place, reverse=True)
            calls = [call for row in left if (call := await self._roll_back(row, grant, claim)) is not None]
        except BaseException:
            with anyio.CancelScope(shield=True):
                await records.end(claim, recorded.execution.status, None)
            raise
        await records.end(claim, "rolled_back", lambda: recorded.result)
        return Rollback(execution_id=execution_id, calls=tuple(calls))

    async def _roll_back(self, row: CallRow, grant: Grant, claim: Claim) -> UndoneCall | None:
        """Undoes a call and records that; returns None if the call has changed nothing."""
        tool, raw = grant.peek_tool(row.tool), decode_value(row.input.text, tagged=row.input.tagged)
        request = CallRequest(row.tool, raw, row.sequence)
        if row.tool.startswith("$"):
            changed = changes_something(request)
        else:
            changed = row.status != "pending" and (tool is None or not tool.read_only)
        if not changed or (row.has_failed and not row.is_uncertain):
            return None
        named = partial(UndoneCall, sequence=row.sequence, tool=row.tool)
        if row.status == "undone":
            return named(outcome="undone")
        if row.is_uncertain:
            return named(outcome="uncertain", reason="it may have taken effect")
        if row.tool.startswith("$"):
            return named(outcome="not_undoable", reason="requests of programs cannot be undone")
        if tool is None or tool.undo is None:
            return named(outcome="not_undoable", reason=f"the tool {'is gone' if tool is None else 'has no undo'}")
        writer, encoded = self._records.writer, row.recorded_reply().encoded
        output = None if encoded is None else decode_value(encoded.text, tagged=encoded.tagged)

        async def starting() -> None:
            writer.put(claim, row._replace(status="undoing"))
            await writer.durable(claim)

        call = Call(request, grant, protocol="rollback")
        reply = await self._undo(call, output, starting)
        if reply.error is not None:
            if call.state == "raised":  # so the change is in effect
                writer.put(claim, row._replace(status="done"))
            return named(outcome="failed", reason=reply.error.message)
        writer.put(claim, row._replace(status="undone"))
        return named(outcome="undone")

    @checked
    async def get(self, execution_id: str) -> ExecutionRecord:
        """Returns a recorded execution.

        Raises:
            ConfigError: there is no such execution, or no ledger. LedgerError: the record cannot be read.
        """
        return _full_record(await self._records.load(execution_id))

    @checked
    async def find(self, execution_id: str) -> ExecutionRecord | None:
        """Returns a recorded execution; None if the ledger does not have it.

        Raises:
            ConfigError: there is no ledger. LedgerError: the record cannot be read.
        """
        recorded = await self._records.find(execution_id)
        return None if recorded is None else _full_record(recorded)

    @checked
    async def list(
        self,
        *,
        statuses: Collection[ExecutionStatus] = (),
        since: float | None = None,
        user_id: str | None = None,
        organization_id: str | None = None,
        limit: int = 1_000,
    ) -> tuple[ExecutionRecord, ...]:
        """Returns the last updated executions in the ledger that match all criteria, the oldest first.

        Raises:
            ConfigError: there is no ledger.
            LedgerError: it cannot be read.
        """
        rows = await self._records.list(Query(user_id, organization_id, statuses, since, limit))
        return tuple(map(_record_of, rows))

    @checked
    async def costs(
        self,
        *,
        since: float | None = None,
        user_id: str | None = None,
        organization_id: str | None = None,
        limit: int = 1_000,
    ) -> tuple[Cost, ...]:
        """Adds up the calls of the last updated executions in the ledger by organization, user, tool and day.

        Each of at most `limit` executions is read and opened, one after the other. `since`: executions that were
        updated from then on.

        Raises:
            ConfigError: there is no ledger.
            LedgerError: it cannot be read.
        """
        records, sums = self._records, dict[tuple[str | None, str, str, str], builtins.list[float]]()
        listed = await records.list(Query(user_id, organization_id, since=since, limit=limit))
        for each in listed:
            for row in await records.calls(each.execution_id):
                if row.place is None or row.tool in ("", TIMER):
                    continue
                day = datetime.fromtimestamp(row.wall / 1000, UTC).date().isoformat()
                sizes = row.duration, len(row.input.text), max(0, len(row.reply) - 1)
                total = sums.setdefault((each.organization_id, each.user_id, row.tool, day), [0, 0, 0.0, 0, 0])
                for index, number in enumerate((1, row.has_failed, *sizes)):
                    total[index] += number
        return tuple(
            Cost(
                organization_id=organization,
                user_id=user,
                tool=tool,
                day=day,
                calls=int(calls),
                failed=int(failed),
                duration_ms=duration,
                input_bytes=int(inputs),
                output_bytes=int(outputs),
            )
            for (organization, user, tool, day), (calls, failed, duration, inputs, outputs) in sums.items()
        )

    @checked
    async def prune(self, older_than_seconds: float | None = None) -> int:
        """Deletes executions that ended at least `older_than_seconds` ago, and those that have expired. Returns their
        number.

        None stands for the time for which the ledger keeps them.

        Raises:
            ConfigError: there is no ledger, or the time is negative. LedgerError: the ledger cannot be written.
        """
        if older_than_seconds is not None and not older_than_seconds >= 0:
            raise ConfigError(f"prune(): older_than_seconds must not be negative, but is {older_than_seconds}")
        writer = self._records.writer
        return await writer.run(lambda: writer.prune(older_than_seconds))

    @checked
    def cancel(self, execution_id: str) -> bool:
        """Cancels an execution, whose result gets the status `cancelled`. Returns False if it does not run here."""
        for execution in [*self._live()]:
            if execution.execution_id == execution_id and not execution.ended.is_set():
                execution.cancel()
                return True
        return False


def missing_tools(
    offered: Collection[str], calls: Iterable[CallRow | ApprovalRequest], tools: ToolRegistry
) -> builtins.list[str]:
    """Returns the tools without which a recorded program would fail: those of unfinished calls, or all of them."""
    missing = sorted({each.tool for each in calls if not each.tool.startswith("$") and tools.get(each.tool) is None})
    has_none = not any(tools.get(name) for name in offered)
    return missing or (sorted(offered) if has_none else [])


async def claimed(
    records: Records,
    execution_id: str,
    context: ExecutionContext | None,
    admit: Callable[[Recorded], object] = lambda _: None,
) -> tuple[ExecutionRequest, Recording]:
    """Claims an execution for this host, to continue it, unless `admit` raises. Raises as `Executions.resume`."""

    request: ExecutionRequest | None = None

    def accept(recorded: Recorded) -> None:
        nonlocal request
        admit(recorded)
        request = _request_of(recorded, context)
        if any(row.status in _UNDONE for row in recorded.calls):
            raise HeldElsewhere(
                f"{execution_id} has been rolled back; executions.fork can continue from calls that stay"
            )

    claim, recorded = await records.claim(execution_id, accept)
    recording = Recording(
        records=records,
        execution_id=execution_id,
        claim=claim,
        head=recorded.head,
        rows=recorded.calls,
        state=recorded.result,
        decisions=recorded.decisions,
        saved=recorded.saved,
        was_paused=recorded.execution.status == "paused",
    )
    assert request is not None
    return request, recording


async def found_again(
    records: Records, request: ExecutionRequest, execution_id: str
) -> tuple[ExecutionRequest, Recording] | None:
    """For a request whose id is in the ledger, returns what to run: its recorded result, or the remainder of it.

    Raises:
        ConfigError: the recorded execution has another request.
        HeldElsewhere: another host runs it, it has expired, or was rolled back.
        LedgerError: it cannot be read.
    """
    if (recorded := await records.find(execution_id)) is None:
        return None
    first = ExecutionRequest.model_validate(recorded.head["request"])
    is_same_owner = first.context.owner == request.context.owner
    if others := _differences(first, request) if is_same_owner else ["user or organization"]:
        text = f"execution_id={execution_id!r} belongs to an earlier request with another {' and '.join(others)}"
        raise ConfigError(f"{text}; use a new id for another request")
    status, waiting = recorded.execution.status, _waiting(recorded)
    if status == "rolled_back":
        raise HeldElsewhere(f"{execution_id} has been rolled back; use a new execution_id to run the program again")
    if status == "running" or (status == "paused" and not _undecided(recorded, waiting)):
        return await claimed(records, execution_id, request.context)
    result = result_of(recorded, request.language, (asked for _, asked in waiting))
    return request, Recording(records=records, execution_id=execution_id, result=result)


async def earlier_calls(
    recording: Recording, execution_id: str, context: ExecutionContext, tools: ToolRegistry
) -> Mapping[bytes, builtins.list[CallRow]]:
    """Returns the calls of an earlier execution that changed something or are uncertain, by digest, without those that
    recorded calls have taken. If it did not succeed, the remaining ones of the execution before it follow.

    Raises:
        ConfigError: there is no such execution, or it is still running.
        AccessDenied: the context has another user or organization.
        LedgerError: it cannot be read.
    """
    chain: builtins.list[Recorded] = []
    name: str | None = execution_id
    while name is not None:
        if len(chain) == _MOST_EARLIER:
            raise ConfigError(f"after={execution_id!r}: {_MOST_EARLIER} executions before it have failed; start anew")
        recorded = await recording.records.load(name)
        request = _request_of(recorded, context)
        if recorded.is_held:
            raise ConfigError(f"after={name!r} still runs; wait for its end, or cancel it")
        chain.append(recorded)
        name = None if recorded.execution.status == "succeeded" else request.after
    left: dict[bytes, builtins.list[CallRow]] = {}
    for recorded in reversed(chain):
        left = _left(left, recorded.calls)
        made = [row for row in recorded.calls if row.status not in ("pending", "undone") and not row.has_failed]
        own: dict[bytes, builtins.list[CallRow]] = {}
        for row in made:
            if (tool := tools.get(row.tool)) is not None and not tool.read_only:
                own.setdefault(row.digest, []).append(row)
        left = {digest: [*own.get(digest, ()), *left.get(digest, ())] for digest in {**own, **left}}
    return _left(left, recording.rows)


def _left(
    earlier: Mapping[bytes, builtins.list[CallRow]], rows: Iterable[CallRow]
) -> dict[bytes, builtins.list[CallRow]]:
    """Returns the earlier calls that no row of a later execution has taken. Each row takes the first call with its
    digest."""
    taken = Counter(row.digest for row in rows)
    return {digest: calls[taken[digest] :] for digest, calls in earlier.items()}


def _expect_fitting(row: CallRow, decision: Settlement) -> None:
    fitting = (Retry, Settled, Denied) if row.status == "uncertain" else (Approved, Denied)
    if type(decision) not in fitting:
        names = ", ".join(each.__name__ for each in fitting)
        raise ConfigError(f"call {row.sequence}, {row.tool}, is {row.status}: decide by one of {names}")


def _request_of(recorded: Recorded, context: ExecutionContext | None) -> ExecutionRequest:
    """Returns the recorded request, with another context if one is passed."""
    request = ExecutionRequest.model_validate(recorded.head["request"])
    if context is None:
        return request
    if context.owner != request.context.owner:
        raise AccessDenied(f"{recorded.execution.execution_id} belongs to another user or organization")
    return request.model_copy(update={"context": context})


_NOT_COMPARED = {"context", "tool_call_id", "after", "asked"}


def _differences(first: ExecutionRequest, second: ExecutionRequest) -> builtins.list[str]:
    """Returns the fields in which two requests differ, other than those of the caller and the conversation. Recorded
    limits include the Corral's."""
    one, two = (each.model_dump(mode="json", exclude=_NOT_COMPARED) for each in (first, second))
    return [name for name in one if one[name] != two[name] and not (name == "limits" and two[name] is None)]


def _undecided(recorded: Recorded, waiting: Iterable[tuple[bytes, ApprovalRequest]]) -> builtins.list[ApprovalRequest]:
    return [asked for binding, asked in waiting if (asked.sequence, binding) not in recorded.decisions]


def _with_source(
    request: ExecutionRequest, head: Mapping[str, Any], source: str | None
) -> tuple[ExecutionRequest, Mapping[str, Any]]:
    """Returns the recorded start of a program, for another program if there is one."""
    if source is None:
        return request, head
    head = {name: value for name, value in head.items() if name not in ("code", "imports", "types")}
    return request.model_copy(update={"source": source}), head


def _until(calls: Sequence[CallRow], until: int | None, *, offline: bool = False) -> Sequence[CallRow]:
    """Returns the calls with a reply, up to the first reply to call number `until` or a later one, or that is not kept
    if it is `offline`; else all calls."""
    if until is None and not (offline and any(row.reply == NOT_KEPT for row in calls)):
        return calls
    replied = sorted((row for row in calls if row.place is not None), key=lambda row: row.place or 0)

    def is_end(row: CallRow) -> bool:
        passed = until is not None and (row.sequence >= until or row.sequence == 0)
        return passed or (offline and row.reply == NOT_KEPT)

    return replied[: next((index for index, row in enumerate(replied) if is_end(row)), None)]


def _waiting(recorded: Recorded) -> builtins.list[tuple[bytes, ApprovalRequest]]:
    """Returns the calls that wait, with the digests to which decisions on them are bound; empty if the execution has
    ended."""
    execution = recorded.execution
    calls = recorded.calls if execution.status in ("running", "paused") else ()
    return [asked_of(row, execution.execution_id) for row in calls if row.status in WAITING]


def _full_record(recorded: Recorded) -> ExecutionRecord:
    request = _request_of(recorded, None)
    waiting = _waiting(recorded)
    pending, undecided = tuple(asked for _, asked in waiting), _undecided(recorded, waiting)
    has_result = recorded.execution.status != "running" and "value" in recorded.result
    result = result_of(recorded, request.language, pending) if has_result else None
    return replace(
        _record_of(recorded.execution),
        request=request,
        tools=tuple(recorded.head["tools"]),
        value=None if result is None else result.value,
        error=None if result is None else result.error,
        result=result,
        pending=pending,
        decided=frozenset(asked.sequence for _, asked in waiting) - {asked.sequence for asked in undecided},
        pauses=recorded.result.get("pauses", 0),
    )


def _record_of(execution: StoredExecution) -> ExecutionRecord:
    return ExecutionRecord(
        execution_id=execution.execution_id,
        status=execution.status,
        user_id=execution.user_id,
        organization_id=execution.organization_id,
        created=execution.created,
        updated=execution.updated,
    )
