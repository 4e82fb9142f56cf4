"""Journal of one durable execution: replays recorded replies in their order, then records new ones.

It wraps all guards, so a replayed call is neither audited, rate-limited nor validated again. The innermost part of the
pipeline calls `starting`, directly before a tool runs.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, cast

import anyio
from pydantic_core import to_json

from corral.calls import CallRecorder, Grant
from corral.errors import Diverged, JournalFull, LedgerError, UncertainCall
from corral.guest import decode_value, encode_value
from corral.ledger import NOT_KEPT, CallRow, Claim, Records, pack_reply
from corral.rendering.preview import preview_text
from corral.results import CallRecord, ExecutionResult
from corral.running.recorded import asked_of, pack_request, pack_result, pack_saved, unpack_saved
from corral.sandboxes import failed_exit
from corral.sandboxes.base import GRACE_SECONDS, SavedGuest
from corral.tools import Tool
from corral.types import (
    TIMER,
    UNCERTAIN,
    ApprovalRequest,
    Approved,
    CallError,
    CallRequest,
    Decision,
    Denied,
    EncodedValue,
    Exit,
    GuestState,
    LogEntry,
    Reply,
    RequestHandler,
    Retry,
    Settled,
    Settlement,
)

_PARTLY_UNDONE = "undoing it has failed or was interrupted, so it may be in effect"
UNRECORDED = "it is not on record, so it would be called"
_FINISH = 0
"""Number of the row for the end of the grace period. It is recorded because the end depends on the host's clock."""
_SHOWN_CHARS = 200
_SAVE_SECONDS = 1.0
_MOST_MILLISECONDS = 1e12
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_SUSPECTS = (
    "if its source is the same, it depends on something that differs each time: the depth of the stack, addresses of "
    "objects, or garbage collection"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """State of a program before the reply to a call."""

    sequence: int
    tool: str
    logs: int
    """Number of console entries so far."""
    waiting: tuple[int, ...]
    """Numbers of calls without a reply."""
    active_ms: float
    """Time for which the program has been live when it gets the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Ledger of a durable execution, and the recorded execution that it continues or replays."""

    records: Records
    execution_id: str | None = None
    """Recorded execution; None for a new one, even if it begins with recorded calls of another one."""
    claim: Claim | None = None
    """Right to write the rows of the execution. None if it is not recorded yet, or if nothing is written."""
    offline: bool = False
    """True for a replay, in which no tool runs and nothing is written."""
    is_dry: bool = False
    """True for a replay of another program, which ends at the calls that are not on record."""
    head: Mapping[str, Any] | None = None
    """Start of the recorded program; None if nothing is recorded."""
    rows: Sequence[CallRow] = ()
    """Recorded calls to replay."""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Number of replies when it paused or ended, and the guest's state after them."""
    decisions: Mapping[tuple[int, bytes], Settlement] = field(default_factory=dict[tuple[int, bytes], Settlement])
    """Decisions, by the call's number and the digest to which they are bound."""
    after: Mapping[bytes, list[CallRow]] = field(default_factory=dict[bytes, "list[CallRow]"])
    """Calls of an earlier execution that are not repeated, by digest."""

    steps: list[Step] | None = None
    """Receives the state before each recorded reply; the guest is then idle at each of them. For a replay."""

    saved: bytes = b""
    """Saved guest on record, if the program continues as that."""
    was_paused: bool = False
    """True if the execution was paused before this host claimed it."""
    result: ExecutionResult | None = None
    """Recorded result, which is returned without running anything."""

    @property
    def active_seconds(self) -> float:
        """Seconds that the program has been active so far."""
        return max((row.active for row in self.rows), default=0.0) / 1000


class Journal:
    """Answers the calls of one durable execution. `end` ends its guest. `on_live` is called once nothing is replayed
    any more. `logs` is the console output so far, to which `log` adds an entry. The engine `saves` guests, or runs
    programs again.
    """

    def __init__(
        self,
        recording: Recording,
        grant: Grant,
        recorder: CallRecorder,
        head: Mapping[str, Any],
        claim: Claim | None,
        *,
        logs: Sequence[LogEntry] = (),
        log: Callable[[LogEntry], object] = lambda _: None,
        saves: bool = False,
    ) -> None:
        self._recording = recording
        self._records = recording.records
        self.claim = claim
        self._grant = grant
        self._recorder = recorder
        self._head = head
        self._offline = recording.offline
        self._logs = logs
        self._log = log
        self._saves = saves and not recording.offline
        self.end: Callable[[], object] = _nothing
        self.on_live: Callable[[], object] = _nothing
        self.failure: LedgerError | None = None
        """Error that ended the execution."""
        self.has_recorded = False
        """True once a row was recorded, so that the execution no longer is as its last pause has left it."""
        self.paused = False
        self.spared: set[int] = set()
        """Numbers of calls that were not made, because an earlier execution had made them."""
        self.state = GuestState(0, "")
        """Last state that the guest has reported."""
        self._ask: Callable[[], None] = _nothing
        self._save: Callable[[], None] = _nothing
        self._saving: tuple[int, int, int] | None = None
        """State of the host when it asked for the guest's state."""
        self._left: anyio.Event | None = None
        """Set once the guest of a host that ends is saved, or its program has ended."""
        self._rows = {row.sequence: row for row in recording.rows}
        self._replayed = sorted((row for row in recording.rows if row.place is not None), key=_place)
        self._position = 0
        """Number of recorded replies that have been given so far."""
        self.replies = len(self._replayed)
        """Number of recorded replies, which is the place of the next one."""
        self._steps = recording.steps
        self.logged = 0
        """Number of console entries so far."""
        self._size = sum(row.size for row in recording.rows)
        self.bytes: dict[str, int] = {}
        """Bytes of new calls on record, by tool."""
        self._arrivals: dict[int, anyio.Event] = {}
        """Turns of the recorded calls that the program has made."""
        self._finish_turn, self._all_replayed = anyio.Event(), anyio.Event()
        self._live = anyio.Event()
        self._received = self._seen = 0
        """Numbers of calls received, and of calls accepted for answering."""
        self._busy: set[int] = set()
        """Number of calls that are being answered, without those that wait for a decision."""
        self._current: dict[int, CallRow] = {}
        """Rows of new calls that are being answered."""
        self._changing: set[int] = set()
        """Numbers of those that have begun to change something."""
        self._parked: dict[int, ApprovalRequest] = {}
        self._decisions = recording.decisions
        self._waits: dict[int, tuple[bytes, Callable[[Any], object]]] = {}
        """Digests that decisions on waiting calls are bound to, and functions to call with these."""
        self._decided: dict[int, anyio.Event] = {}
        """Set when there is a decision on a parked call."""
        self._timers: dict[int, anyio.CancelScope] = {}
        self._cleared: set[int] = set()
        self._ending = False
        self._asked: tuple[int, int, int] | None = None
        """State of the host when it last asked whether the guest is idle."""
        last = self._replayed[-1] if self._replayed else None
        self._wall = cast("float", head["now"]) if last is None else last.wall
        self._active = 0.0 if last is None else last.active
        self._live_since: float | None = None
        if claim is not None:
            claim.on_failure = self._lose_claim
        self._stored = unpack_saved(recording.saved, self.replies) if self._saves else None
        """Saved guest with which the program continues."""
        self._knows_unkept = any(row.reply == NOT_KEPT for row in recording.rows)
        """True if the program got outputs that are not kept."""
        if not self._replayed and self._stored is None:
            self._begin()

    def _begin(self) -> None:
        self._all_replayed.set()
        if not self._offline:
            self._go_live()

    @property
    def is_live(self) -> bool:
        """True once the program does something new."""
        return self._live_since is not None

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """Calls that a paused program waits for, and those that a dry run would make."""
        shown = self._parked if self.paused or self._recording.is_dry else ()
        return tuple(self._parked[sequence] for sequence in sorted(shown))

    # --- the session of its guest

    @property
    def start(self) -> Mapping[str, object]:
        return {"seed": self._head["seed"], "now": self._head["now"]}

    @property
    def stored(self) -> SavedGuest | None:
        return None if self._stored is None else self._stored[0]

    def attach(self, ask: Callable[[], None], save: Callable[[], None]) -> None:
        self._ask, self._save = ask, save

    def began(self, *, restored: bool) -> None:
        stored, self._stored = self._stored, None
        if stored is None:
            return
        if restored:
            for row in sorted(self._replayed, key=lambda row: row.sequence):
                if row.sequence > 0 and not row.tool.startswith("$"):
                    self._restore(row)
            for entry in stored[1]:
                self._log(entry)
            self._position = self.replies
        if restored or not self._replayed:
            self._begin()

    def _restore(self, row: CallRow) -> None:
        """Takes a call into account whose reply the restored program already has."""
        read, reply = partial(decode_value, row.input.text, tagged=row.input.tagged), row.recorded_reply()
        request = CallRequest(row.tool, read(), row.sequence, len(row.input.text), read, None, row.input)
        self._grant.calls += 1
        self._recorder.replay(self._recorder.replayed(request), reply)
        self._follow_reply(request, reply)

    async def save(self) -> None:
        """Records the guest's state before its host ends, if it is idle within a second."""
        if self._saves and self.is_live and not self._ending and self.failure is None:
            self._left = anyio.Event()
            self._look()
            with anyio.move_on_after(_SAVE_SECONDS):
                await self._left.wait()

    def saved(self, guest: SavedGuest | None) -> None:
        asked, self._saving = self._saving, None
        if asked != self._progress or not (self._is_stuck or self._left):  # a decision or a reply has arrived meanwhile
            self._look_if_stuck()
            return
        if guest is not None:
            self._keep(pack_saved(guest, self._logs, self.replies))
        if self._left is not None:
            self._left.set()
        else:
            self._pause()

    def _keep(self, saved: bytes) -> None:
        """Records a saved guest, unless it does not fit, or its program got an output that is not kept."""
        row = CallRow.saved(saved)
        has_room = self._size + row.size <= self._grant.limits.journal_bytes
        if has_room and not self._knows_unkept:
            assert self.claim is not None
            self.claim.has_saved = True
            self._put(row)

    def arrived(self) -> None:
        self._received += 1

    def cleared(self, sequence: int) -> None:
        self._cleared.add(sequence)
        if (scope := self._timers.get(sequence)) is not None and not self._is_recorded(sequence):
            scope.cancel()

    def _is_recorded(self, sequence: int) -> bool:
        return (row := self._rows.get(sequence)) is not None and row.place is not None

    def idle(self, state: GuestState) -> None:
        self.state = state
        asked, self._asked = self._asked, None
        if self._received != self._seen:
            return  # asked again when they are taken
        if asked != self._progress:
            self._look()
        elif self._position < self.replies and not self.is_live:
            self._expect(self._replayed[self._position])
            self._step(self._replayed[self._position])
        elif not self.is_live:
            self._compare(state)
            if self.failure is None:
                self._go_live()
        else:
            self._pause_if_stuck()

    def ending(self, state: GuestState) -> None:
        self.state = state
        self._ending = True

    async def grace(self) -> None:
        if self._recording.is_dry:
            await anyio.sleep(GRACE_SECONDS)
        elif not self.is_live and any(row.sequence == _FINISH for row in self._replayed):
            self._follow()
            await self._finish_turn.wait()
        else:
            await self._all_replayed.wait()
            await anyio.sleep(GRACE_SECONDS)

    def lost(self) -> None:
        self._grant.must_finish |= self._changing  # so that their replies are on record, and no effect is uncertain

    def finishing(self) -> None:
        if self._position < self.replies and not self.is_live:
            self._position += 1
        else:
            self._done(CallRow(_FINISH, "", b"\0" * 16, EncodedValue(b"", tagged=False)), Reply(nothing=True))

    def ended(self, state: GuestState) -> None:
        self.state = state
        if self._left is not None:
            self._left.set()
        if not self.is_live and not self._recording.is_dry:
            left = [row for row in self._replayed[self._position :] if row.sequence not in self._arrivals]
            missing = next((row for row in left if row.tool != TIMER and row.sequence != _FINISH), None)
            if missing is not None and self._received == self._seen:
                self._fail(
                    Diverged(f"the program ended before call {missing.sequence}, {_shown(missing)}; {_SUSPECTS}")
                )
            elif not left:
                self._compare(state)

    # --- around all guards

    def wrap(self, handler: RequestHandler) -> RequestHandler:
        """Returns a handler that answers from the record, and passes new calls to `handler`."""

        return partial(self._answer, handler)

    async def _answer(self, handler: RequestHandler, request: CallRequest) -> Reply:
        sequence, tool, encoded = request.sequence, request.tool, request.encoded
        if tool == TIMER and sequence not in self._timers:
            return await self._answer_timer(handler, request)
        assert encoded is not None
        digest = blake2b(b"%b\0%d%b" % (tool.encode(), encoded.tagged, encoded.text), digest_size=16).digest()
        new = CallRow(sequence, tool, digest, encoded, "started")
        row: CallRow | None = None
        self._seen += 1
        self._busy.add(sequence)
        try:
            if self._rows or self._live_since is None:
                row = self._rows.get(sequence)
                await self._require_same(request, row, new)
                if row is not None and row.place is not None and self._live_since is None:
                    return await self._replay(request, row, handler)
                if self._live_since is None:
                    self._look()
                    await self._live.wait()
            if self.claim is not None and self.claim.failure is not None:
                await anyio.sleep_forever()  # its end is under way
            if self._size > (allowed := self._grant.limits.journal_bytes):
                self._fail(JournalFull(f"the execution has recorded all that it may: Limits(journal_bytes={allowed})"))
                await anyio.sleep_forever()
            if tool == TIMER:
                await anyio.sleep(_seconds(request.input))
                return self._done(new, Reply(nothing=True))
            old = self._earlier(new) if row is None and self._recording.after else row
            if old is not None and (known := await self._known(request, old)) is not None:
                record = self._recorder.replayed(request)
                self._recorder.replay(record, known[0])
                self._follow_reply(request, known[0])
                if row is None:
                    self.spared.add(sequence)
                return self._done(new, known[0], by=known[1], request=request)
            return await self._make(request, new, handler)
        finally:
            self._busy.discard(sequence)
            if self._parked or self._left:
                self._look_if_stuck()

    async def _answer_timer(self, handler: RequestHandler, request: CallRequest) -> Reply:
        sequence = request.sequence
        try:
            with anyio.CancelScope() as scope:
                self._timers[sequence] = scope
                if sequence in self._cleared and not self._is_recorded(sequence):
                    scope.cancel()
                return await self._answer(handler, request)
            return Reply(parked=True)
        finally:
            del self._timers[sequence]

    async def _require_same(self, request: CallRequest, row: CallRow | None, new: CallRow) -> None:
        """Ends the execution if a call differs from the recorded one with its number."""
        if self._recording.is_dry and (row is None or row.digest != new.digest):
            self._parked[request.sequence] = self._asked_about(request, UNRECORDED)
            self._busy.discard(request.sequence)
            self._look()
            await anyio.sleep_forever()
        if row is not None and row.digest != new.digest:
            was = f"call {request.sequence} was {_shown(row)} when it ran first, and is {_shown(new)} now"
            self._fail(Diverged(f"{was}; {_SUSPECTS}"))
            await anyio.sleep_forever()

    def _streams(self, request: CallRequest) -> bool:
        tool = self._grant.peek_tool(request.tool)
        return tool is not None and tool.stream

    async def _replay(self, request: CallRequest, row: CallRow, handler: RequestHandler) -> Reply:
        record: CallRecord | None = None
        reply, is_stream, is_kept = row.recorded_reply(), row.is_stream, row.reply != NOT_KEPT
        if not row.tool.startswith("$") and is_kept:
            self._grant.calls += 1
            record = self._recorder.replayed(request)
        turn = self._arrivals[row.sequence] = anyio.Event()
        if not is_kept:
            reply = (await handler(request))._replace(stamp=reply.stamp)
            if reply.error is None and not reply.nothing and reply.encoded is None:
                reply = reply._replace(encoded=encode_value(reply.value))
            is_stream = self._streams(request)
        if self._steps is not None or self._replayed[self._position] is not row:
            self._look()
            await turn.wait()
        self._position += 1
        self._follow()
        if record is not None:
            self._recorder.replay(record, reply)
            self._follow_reply(request, reply)
        return _delivered(reply, request) if is_stream else reply

    def _follow_reply(self, request: CallRequest, reply: Reply) -> None:
        """Records a recorded reply, which no guard sees, in the flow of data."""
        if (flow := self._grant.flow) is None:
            return
        text = b"" if reply.encoded is None else reply.encoded.text
        if reply.error is not None:
            text = reply.error.message.encode("utf-8", "replace")
        value = None if reply.encoded is None else decode_value(reply.encoded.text, tagged=reply.encoded.tagged)
        tool = self._grant.peek_tool(request.tool)
        flow.replayed(request.tool, request.sequence, tool, request.input, value, text.decode("utf-8", "replace"))

    def _follow(self) -> None:
        """Releases the next recorded reply."""
        if self._position == self.replies:
            self._all_replayed.set()
            self._look()
            return
        following = self._replayed[self._position]
        if following.sequence == _FINISH and self._ending:
            self._finish_turn.set()
        elif (turn := self._arrivals.get(following.sequence)) is not None and self._steps is None:
            turn.set()
        else:
            self._look()

    def _step(self, row: CallRow) -> None:
        """Records the state of an idle guest, and gives it the next recorded reply."""
        turn = self._arrivals.get(row.sequence)
        if self._steps is None or turn is None or turn.is_set():
            return
        waiting = tuple(number for number, other in self._arrivals.items() if not other.is_set())
        step = Step(sequence=row.sequence, tool=row.tool, logs=self.logged, waiting=waiting, active_ms=row.active)
        self._steps.append(step)
        turn.set()

    async def _known(self, request: CallRequest, old: CallRow) -> tuple[Reply, str | None] | None:
        """Returns the reply to a call that was made before this host ran the program, and who gave it.

        Returns None if there is no reply, so the call has to be made. Waits for ever if a person has to decide.
        """
        if old.status == "done":  # in an earlier execution
            return old.recorded_reply(), old.by
        tool = self._grant.peek_tool(request.tool)
        if old.status == "pending" or (tool is not None and (tool.read_only or tool.idempotent)):
            return None
        number = 0 if self.claim is None else self.claim.number
        binding = blake2b(b"uncertain\0%b\0%d" % (old.digest, number), digest_size=16).digest()
        asked = self._asked_about(request, _PARTLY_UNDONE if old.status == "undoing" else UNCERTAIN)
        if old.status == "uncertain" and request.sequence in self._rows:
            binding, asked = asked_of(old, self._grant.execution_id)
        match self._decisions.get((request.sequence, binding)):
            case Retry():
                return None
            case Settled(value=value, by=by):
                return Reply(value=value, encoded=encode_value(value)), by
            case Denied(reason=reason, by=by):
                text = f"tools.{request.tool} was not called again: {reason or UNCERTAIN}"
                return Reply(error=CallError.of(UncertainCall(text))), by
            case _:
                self._wait(old._replace(sequence=request.sequence, status="uncertain"), asked, binding)
                self.park(asked)
                await self._until_decided(request.sequence)
                return await self._known(request, old)

    def _asked_about(self, request: CallRequest, reason: str) -> ApprovalRequest:
        tool = self._grant.peek_tool(request.tool)
        return ApprovalRequest(
            tool=request.tool,
            input=request.input,
            arguments=request.input,
            description="" if tool is None else tool.description,
            read_only=tool is not None and tool.read_only,
            context=self._grant.context,
            execution_id=self._grant.execution_id,
            sequence=request.sequence,
            reason=reason,
        )

    async def _make(self, request: CallRequest, row: CallRow, handler: RequestHandler) -> Reply:
        """Makes a call that has no recorded reply."""
        sequence = row.sequence
        while True:
            self._current[sequence] = row
            began = time.perf_counter()
            try:
                if row.tool.startswith("$") and changes_something(request):
                    await self._start(row)
                reply = await handler(request)
            finally:
                made = self._current.pop(sequence)
                self._changing.discard(sequence)
                if self._waits and sequence not in self._parked:
                    self._stop_waiting(sequence)
            if self.claim is not None and self.claim.failure is not None:
                await anyio.sleep_forever()  # its end is under way
            if not reply.parked:
                unclear = reply.error is not None and self._is_unclear(made)
                duration = (time.perf_counter() - began) * 1000
                return self._done(made, reply, by=made.by, request=request, unclear=unclear, duration=duration)
            await self._until_decided(sequence)

    def _is_unclear(self, row: CallRow) -> bool:
        """True if the effect of a call that has failed is unknown."""
        record = next((each for each in reversed(self._recorder.records) if each.sequence == row.sequence), None)
        return record is not None and record.state in ("started", "returned")

    async def _until_decided(self, sequence: int) -> None:
        """Waits for the decision on a parked call. Never returns if the program pauses first."""
        decided = self._decided[sequence]
        if not decided.is_set():
            self._busy.discard(sequence)
            self._look_if_stuck()
            await decided.wait()

    def _earlier(self, new: CallRow) -> CallRow | None:
        """Returns the row of the same call in an earlier execution. Each row is returned once."""
        rows = self._recording.after.get(new.digest)
        return rows.pop(0)._replace(sequence=new.sequence, place=None) if rows else None

    def _done(
        self,
        row: CallRow,
        reply: Reply,
        *,
        by: str | None = None,
        request: CallRequest | None = None,
        unclear: bool = False,
        duration: float = 0.0,
    ) -> Reply:
        """Gives a reply its place. Nothing is awaited from here until the reply is in the guest's buffer."""
        self._wall = max(self._wall, float(int(time.time() * 1000)))
        active = self._active
        if self._live_since is not None:
            active += round((time.perf_counter() - self._live_since) * 1000, 3)
        value, encoded, error, nothing, _, _ = reply
        if error is None and not nothing and encoded is None:
            encoded = encode_value(value)
        reply = Reply(value, encoded, error, nothing, False, (self._wall, active))
        tool = self._grant.peek_tool(row.tool)
        stream = tool is not None and tool.stream and encoded is not None and encoded.text[:1] == b"["
        kept = pack_reply(reply, stream=stream, unclear=unclear) if tool is None or tool.journal else NOT_KEPT
        self._knows_unkept = self._knows_unkept or kept is NOT_KEPT
        sequence, name, digest, input = row[:4]
        row = CallRow(sequence, name, digest, input, "done", self.replies, kept, self._wall, active, by, duration)
        self.replies += 1
        size = row.size
        self._size += size
        self.bytes[name] = self.bytes.get(name, 0) + size
        self._put(row)
        return _delivered(reply, request) if stream and request is not None else reply

    # --- from within the guards

    def starting(self, request: CallRequest) -> Awaitable[None]:
        """Records, durably, that a tool that changes something is about to start.

        Raises:
            LedgerError: it could not be recorded.
        """
        return self._start(self._current[request.sequence])

    def _start(self, row: CallRow) -> Awaitable[None]:
        assert self.claim is not None
        self._changing.add(row.sequence)
        self._put(row)
        return self._records.writer.durable(self.claim)

    def decision_of(self, request: CallRequest, tool: Tool) -> Decision | None:
        """Returns the decision on record for a call of the tool with its present settings."""
        decision = self._decisions.get((request.sequence, self._binding(request, tool)))
        if not isinstance(decision, Approved | Denied):
            return None
        self._current[request.sequence] = self._current[request.sequence]._replace(by=decision.by)
        return decision

    async def decided(self, request: CallRequest, tool: Tool, decision: Decision) -> Decision:
        """Records a decision. Returns the one that holds, which is the first.

        Raises:
            LedgerError: it could not be recorded.
        """
        binding = self._binding(request, tool)
        holds = await self._records.decide(self._grant.execution_id, request.sequence, binding, decision)
        holds = holds if isinstance(holds, Approved | Denied) else Denied()
        self._current[request.sequence] = self._current[request.sequence]._replace(by=holds.by)
        return holds

    def asks(
        self, asked: ApprovalRequest, request: CallRequest, tool: Tool, decide: Callable[[Decision], object]
    ) -> None:
        """Records that a call waits for a decision, which any host can record, also after this one has ended."""
        row = self._current[request.sequence]._replace(status="pending")
        self._wait(row, asked, self._binding(request, tool), decide)

    def _wait(
        self,
        row: CallRow,
        asked: ApprovalRequest,
        binding: bytes,
        decide: Callable[[Any], object] = lambda _: None,
    ) -> None:
        row = row._replace(reply=pack_request(asked, binding), place=None)
        self._size += row.size
        self._put(row)
        self._waits[row.sequence] = binding, decide
        if self.claim is not None:
            self._records.watch(self.claim, self._take)

    def park(self, asked: ApprovalRequest) -> None:
        """Lets a call that waits be answered by the record alone."""
        sequence, decided = asked.sequence, anyio.Event()

        def go_on(_: object) -> None:
            del self._parked[sequence]
            self._busy.add(sequence)
            decided.set()

        self._parked[sequence], self._decided[sequence] = asked, decided
        self._waits[sequence] = self._waits[sequence][0], go_on

    def _take(self, decisions: Mapping[tuple[int, bytes], Settlement]) -> None:
        """Goes on with the calls that there are decisions on now."""
        self._decisions = decisions
        for sequence, (binding, decide) in [*self._waits.items()]:
            if (decision := decisions.get((sequence, binding))) is not None:
                self._stop_waiting(sequence)
                decide(decision)

    def _stop_waiting(self, sequence: int) -> None:
        self._waits.pop(sequence, None)
        if not self._waits and self.claim is not None:
            self.claim.look = None

    def _binding(self, request: CallRequest, tool: Tool) -> bytes:
        """Returns a digest of the input, and of everything that the tool declares about itself."""
        row = self._current[request.sequence]
        declared = to_json([tool.description, tool.read_only, tool.idempotent, tool.input_schema, tool.output_schema])
        return blake2b(row.digest + declared, digest_size=16).digest()

    # --- pauses and ends

    def _put(self, row: CallRow) -> None:
        self.has_recorded = True
        if self.claim is not None:
            self._records.writer.put(self.claim, row)

    @property
    def _progress(self) -> tuple[int, int, int]:
        return self._seen, self._position, self.replies

    def _look(self) -> None:
        """Asks whether the guest is idle, unless that question is already under way."""
        if self._asked != self._progress:
            self._asked = self._progress
            self._ask()

    def _look_if_stuck(self) -> None:
        if self._is_stuck or self._left:
            self._look()

    @property
    def _is_stuck(self) -> bool:
        """True if the program waits only for people."""
        return bool(self._parked) and not self._busy and not self._ending

    def _pause_if_stuck(self) -> None:
        if not (self._is_stuck or self._left) or self._saving is not None:
            return
        if self._saves:
            self._saving = self._progress
            self._save()
        else:
            self._pause()

    def _pause(self) -> None:
        self.paused = True
        self.end()

    def _go_live(self) -> None:
        if self._offline:
            if not self._ending:
                self.paused = True
                self.end()
            return
        self._live_since = time.perf_counter()
        self._live.set()
        self.on_live()

    def _expect(self, row: CallRow) -> None:
        """Handles an idle guest that still has to make a recorded call."""
        if self._recording.is_dry:
            self.paused = True
            self.end()
            return
        if row.sequence == _FINISH and not self._ending:
            self._fail(Diverged(f"the program had ended when it ran first, and waits now; {_SUSPECTS}"))
        elif row.sequence not in self._arrivals and not self._ending:
            text = f"call {row.sequence}, {_shown(row)}, was made when it ran first, and is not made now"
            self._fail(Diverged(f"{text}; {_SUSPECTS}"))

    def _compare(self, state: GuestState) -> None:
        """Compares the guest's state with the recorded one after the same replies, if there is one."""
        recorded = self._recording.state
        if recorded.get("replies") != self.replies or recorded.get("state") in (None, [*state]):
            return
        self._fail(
            Diverged(
                "the program made the same calls as when it ran first, but drew other chance, made other timers or "
                f"printed something else; {_SUSPECTS}"
            )
        )

    def _lose_claim(self) -> None:
        assert self.claim is not None
        if self.claim.failure is not None:
            self._fail(self.claim.failure)

    def _fail(self, error: LedgerError) -> None:
        if self.failure is None:
            self.failure = error
        self.end()

    @property
    def is_resumable(self) -> bool:
        """True if the execution was ended by an error that need not occur on another host, or with other code."""
        return self.failure is not None and not isinstance(self.failure, JournalFull)

    def result(self, result: ExecutionResult) -> Mapping[str, object]:
        """Returns the record of the end or of a pause."""
        pauses = self._recording.state.get("pauses", 0) + self.paused
        return {**pack_result(result), "replies": self.replies, "state": [*self.state], "pauses": pauses}

    def exit(self, exit: Exit | None) -> Exit:
        """Returns the end of the execution; None if this journal has ended it."""
        if self.failure is not None:
            return failed_exit(self.failure)
        return Exit(status="paused") if self.paused or exit is None else exit


def _delivered(reply: Reply, request: CallRequest) -> Reply:
    """Returns the reply to a call of a tool that streams. The items are sent before it, all at once."""
    if reply.encoded is None or request.open_stream is None:
        return reply
    sink = request.open_stream(_nothing)
    items = EncodedValue(reply.encoded.text[1:-1], reply.encoded.tagged)
    if items.text:
        sink.put(items)
    return Reply(nothing=True, stamp=reply.stamp)


def changes_something(request: CallRequest) -> bool:
    """True for a program's own HTTP request that can change something."""
    match request.tool, request.input:
        case "$fetch", {"do": "open", "method": str() as method}:
            return method.upper() not in _SAFE_METHODS
        case "$http", {"do": "open", "raw": bytes() as raw}:
            return raw.partition(b" ")[0].decode("latin-1").upper() not in _SAFE_METHODS
        case (("$fetch" | "$http"), {"do": "open"}):
            return True
        case _:
            return False


def _shown(row: CallRow) -> str:
    return f"{row.tool}({preview_text(row.input.text.decode(errors='replace'), _SHOWN_CHARS)})"


def _place(row: CallRow) -> int:
    return -1 if row.place is None else row.place


def _seconds(milliseconds: object) -> float:
    return min(max(0.0, milliseconds), _MOST_MILLISECONDS) / 1000 if isinstance(milliseconds, int | float) else 0.0


def _nothing() -> None:
    pass
