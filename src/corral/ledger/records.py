"""Records of durable executions: a ledger's rows, decrypted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar, cast

import anyio
from pydantic_core import from_json, to_json

from corral.concurrency.fairness import run_in_turn
from corral.errors import ConfigError, HeldElsewhere, LedgerDamaged, LedgerError, LedgerFailed
from corral.guest import decode_value, encode_value, plain_json
from corral.ledger.base import Ledger
from corral.ledger.rows import (
    SAVED,
    CallRow,
    ExecutionStatus,
    Query,
    StoredCall,
    StoredDecision,
    StoredExecution,
    StoredSession,
    pack_call,
    unpack_call,
)
from corral.ledger.writer import LEASE_SECONDS, Claim, Writer, place_of
from corral.types import Approved, Denied, Owner, Retry, Settled, Settlement

T = TypeVar("T")
ChangeSession: TypeAlias = Callable[[Mapping[str, Any] | None], tuple[bool, Mapping[str, Any]]]
"""Function of a session's stored state: None if the ledger has none, empty if it was deleted for its age. It returns
whether the session is exposed, and its new state.
"""

WAITING = ("pending", "uncertain")
"""Statuses of calls that wait for a decision."""
_OPEN: tuple[ExecutionStatus, ...] = ("running", "paused")
_MOST_CLAIMS = 20
"""Number of claims after which an execution is not resumed by itself: its program can be what its hosts die of."""
_MOST_TRIES = 20
_DECISIONS: Mapping[str, type[Any]] = {"approved": Approved, "denied": Denied, "retry": Retry, "settled": Settled}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One execution, with everything that is recorded."""

    execution: StoredExecution
    is_held: bool
    """True if a host is running it."""
    head: Mapping[str, Any]
    """Request, and everything else with which its program started."""
    result: Mapping[str, Any]
    """Result, or the state when it paused; empty before that."""
    calls: Sequence[CallRow]
    decisions: Mapping[tuple[int, bytes], Settlement]
    """Decisions, by the call's number and the digest to which they are bound."""
    saved: bytes = b""
    """Saved guest, if the execution was claimed."""


class Records:
    """Executions in one ledger. Every method runs after all rows that were queued before it are written."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.writer = Writer(ledger)
        self.refused: set[str] = set()
        """Lost executions that cannot be resumed here."""

    async def create(self, execution_id: str, owner: Owner, head: Mapping[str, Any]) -> Claim:
        """Records a new execution, and claims it for this host. It is durable with its first change, decision or end.

        Raises:
            HeldElsewhere: another host has just recorded one with that id.
            LedgerError: it could not be recorded.
        """
        claim = Claim(execution_id, 1)
        is_new = False

        def job() -> None:
            nonlocal is_new
            now = self.ledger.now()
            owned = execution_id, owner.organization_id, owner.user_id
            sealed = self.ledger.ring.seal(to_json(head), _head_place(*owned))
            try:
                self.ledger.create(StoredExecution(*owned, "running", now, now, 1, now + LEASE_SECONDS, sealed))
            except Exception as error:
                if self.ledger.get(execution_id) is None:
                    raise
                raise HeldElsewhere(f"another host has just begun {execution_id}") from error
            is_new = True

        try:
            await self.writer.run(job)
        except anyio.get_cancelled_exc_class():
            self.writer.submit(lambda: is_new and self._abandon(execution_id, 1, "running"))
            raise
        self.writer.hold(claim)
        return claim

    async def claim(
        self, execution_id: str, admit: Callable[[Recorded], object] = lambda _: None, *, ended: bool = False
    ) -> tuple[Claim, Recorded]:
        """Claims for this host an execution that is paused or has lost its host, unless `admit` raises.

        With `ended`, also claims one that has ended or expired.

        Raises:
            ConfigError: the ledger has no such execution. HeldElsewhere: another host runs the execution, or it has
            ended or expired. LedgerError: the record cannot be read.
        """

        taken: StoredExecution | None = None

        def job() -> Recorded:
            nonlocal taken
            recorded = self._recorded(execution_id, with_saved=True)  # to notice damaged rows before any change
            admit(recorded)
            before, now = recorded.execution, self.ledger.now()
            expires = self.ledger.expires_seconds
            if not ended and before.status == "paused" and expires is not None and before.updated < now - expires:
                raise HeldElsewhere(f"{execution_id} has expired: it was paused for longer than {expires:g} s")
            taken = self.ledger.claim(execution_id, now=now, lease=now + LEASE_SECONDS, ended=ended)
            if taken is None:
                held = self._execution(execution_id)
                state = f"has ended: {held.status}"
                if held.status == "running":
                    left = max(1, math.ceil(held.lease - now))
                    state = f"runs on another host, or has just lost its host; if so, it can be resumed in {left} s"
                raise HeldElsewhere(f"{execution_id} {state}")
            # read again, because a host whose lease has expired can have written until now
            return self._recorded(execution_id, taken, with_saved=True)

        try:
            recorded = await self.writer.run(job)
        except anyio.get_cancelled_exc_class():
            self.writer.submit(lambda: taken and self._abandon(execution_id, taken.claim, taken.status))
            raise
        claim = Claim(execution_id, recorded.execution.claim)
        claim.has_saved = bool(recorded.saved)
        self.writer.hold(claim)
        return claim, recorded

    def _abandon(self, execution_id: str, claim: int, status: ExecutionStatus) -> None:
        """Releases an execution to other hosts, after all jobs requested earlier."""
        self.writer.submit(lambda: self.ledger.end(execution_id, claim, status, None, now=self.ledger.now()))

    async def load(self, execution_id: str) -> Recorded:
        """Reads an execution.

        Raises:
            ConfigError: the ledger has no such execution. LedgerError: the record cannot be read.
        """
        return await self.writer.run(lambda: self._recorded(execution_id))

    async def calls(self, execution_id: str) -> Sequence[CallRow]:
        """Reads the calls of an execution; none if the ledger does not have it.

        Raises:
            LedgerError: they cannot be read.
        """
        return await self.writer.run(lambda: [*map(self._call, self._stored(execution_id))])

    async def find(self, execution_id: str) -> Recorded | None:
        """Reads an execution; returns None if the ledger does not have it.

        Raises:
            LedgerError: the record cannot be read.
        """
        ledger = self.ledger
        return await self.writer.run(
            lambda: None if (row := ledger.get(execution_id)) is None else self._recorded(execution_id, row)
        )

    async def undecided(self, execution_id: str) -> Sequence[CallRow] | None:
        """Reads the calls of an execution that wait for a decision, none if it has ended; None if the ledger has no
        such execution.

        Raises:
            LedgerError: they cannot be read.
        """

        def job() -> list[CallRow] | None:
            if (execution := self.ledger.get(execution_id)) is None:
                return None
            stored = self.ledger.calls(execution_id) if execution.status in _OPEN else ()
            return [self._call(each) for each in stored if each.status in WAITING]

        return await self.writer.run(job)

    async def end(self, claim: Claim, status: ExecutionStatus, result: Callable[[], Mapping[str, Any]] | None) -> None:
        """Ends a claim, durably: the execution has ended or paused. `result` is called in the writer's thread; None
        leaves the recorded result. The end of an execution empties the row with its saved guest.

        Raises:
            LedgerError: the end could not be recorded, or the execution has since been claimed again.
        """
        place = _result_place(claim.execution_id)
        if claim.has_saved and status not in _OPEN:
            self.writer.put(claim, CallRow.saved(b""))

        def job() -> LedgerError | None:
            if result is not None and claim.failure is not None:
                return claim.failure
            body = None if result is None else plain_json({**result(), "status": status})
            sealed = None if body is None else self.ledger.ring.seal(body, place)
            if not self.ledger.end(claim.execution_id, claim.number, status, sealed, now=self.ledger.now()):
                return HeldElsewhere(f"another host has taken over {claim.execution_id}")
            self.writer.release(claim)
            return None

        try:
            error = await self.writer.run(job)
        finally:
            self.writer.release(claim)
        if error is not None:
            raise error

    async def decide(self, execution_id: str, sequence: int, binding: bytes, decision: Settlement) -> Settlement:
        """Records a decision durably, unless there is one. Returns the decision that holds.

        Raises:
            LedgerError: the decision could not be recorded, or the recorded one cannot be read.
            UnencodableValue: a program cannot receive its value.
        """
        place = _decision_place(execution_id, sequence, binding)
        body = {name: getattr(decision, name) for name in _DECIDED if hasattr(decision, name)}
        if isinstance(decision, Settled):
            text, tagged = await run_in_turn(encode_value, decision.value, "value")
            body["value"] = [text.decode(), tagged]

        def job() -> Settlement:
            stored = StoredDecision(execution_id, sequence, binding, self.ledger.ring.seal(to_json(body), place))
            if self.ledger.decide(stored, now=self.ledger.now()):
                self.writer.look(execution_id)
                return decision
            return self._decisions(execution_id)[sequence, binding]

        return await self.writer.run(job)

    def watch(self, claim: Claim, take: Callable[[Mapping[tuple[int, bytes], Settlement]], object]) -> None:
        """Calls `take` in the event loop of a claim when there are new decisions, with all of them. Any host can make
        them. Ends when `claim.look` is reset."""
        known = 0

        def look() -> None:
            nonlocal known
            if len(decisions := self._decisions(claim.execution_id)) != known:
                known = len(decisions)
                claim.call(lambda: take(decisions))

        claim.look = look

    async def waiting(self, read: Callable[[str, ExecutionStatus, CallRow], T], query: Query) -> Sequence[T]:
        """Calls `read`, in the writer's thread, for each call that waits for a decision, with the name and the status
        of its execution. Returns the results."""
        return await self.writer.run(
            lambda: [read(each.execution_id, status, self._call(each)) for status, each in self.ledger.waiting(query)]
        )

    async def list(self, query: Query) -> Sequence[StoredExecution]:
        """Returns the last updated executions that match all criteria, the oldest first."""
        return await self.writer.run(lambda: self.ledger.list(query))

    async def lost(self) -> Sequence[str]:
        """Returns the executions whose host is lost, the oldest first; not those that have lost many hosts."""

        def job() -> list[str]:
            now = self.ledger.now()
            running = self.ledger.list(Query(statuses=("running",), limit=10_000))
            return [each.execution_id for each in running if each.lease <= now and each.claim < _MOST_CLAIMS]

        return await self.writer.run(job)

    async def update_session(self, key: Sequence[str | None], change: ChangeSession) -> Mapping[str, Any]:
        """Changes the state of a session durably, and returns it. `change` is called in the writer's thread.

        Raises:
            LedgerError: the state could not be read or written.
        """
        return await self.writer.run(lambda: self._update_session(key, change))

    def submit_session(self, key: Sequence[str | None], change: ChangeSession) -> None:
        """Changes the state of a session without waiting for the write. Errors are logged."""
        self.writer.submit(lambda: self._update_session(key, change))

    async def session_state(self, key: Sequence[str | None]) -> Mapping[str, Any] | None:
        """Reads the state of a session; None if the ledger does not have it.

        Raises:
            LedgerError: the state cannot be read.
        """

        def job() -> Mapping[str, Any] | None:
            stored = self.ledger.session(name := _session_name(key))
            if stored is None or stored.body is None:
                return None
            return self._json(stored.body, _session_place(name, stored.is_exposed))

        return await self.writer.run(job)

    async def is_exposed(self, key: Sequence[str | None]) -> bool | None:
        """Returns True if a session has read text that others wrote; None if the ledger does not have the session.

        Raises:
            LedgerError: the state cannot be read.
        """

        def job() -> bool | None:
            stored = self.ledger.session(name := _session_name(key))
            if stored is not None and stored.body is not None:
                self._json(stored.body, _session_place(name, stored.is_exposed))  # so that an altered row is noticed
            return None if stored is None else stored.is_exposed

        return await self.writer.run(job)

    async def copy(self, execution_id: str, target: Ledger) -> None:
        """Copies an execution that has ended to another ledger, without the decisions on its calls.

        Raises:
            ConfigError: the ledger has no such execution. LedgerError: the record cannot be read or written.
        """

        def job() -> None:
            recorded, ring = self._recorded(execution_id), target.ring
            row = recorded.execution
            place = _head_place(execution_id, row.organization_id, row.user_id)
            head = ring.seal(to_json(recorded.head), place)
            target.create(row._replace(status="running", claim=1, lease=target.now(), head=head, result=None))
            calls = [
                StoredCall(
                    execution_id,
                    call.sequence,
                    call.status,
                    call.place,
                    ring.seal(pack_call(call), place_of(execution_id, call.sequence, call.status, call.place)),
                )
                for call in recorded.calls
            ]
            target.write({execution_id: 1}, calls, durably=False)
            result = ring.seal(to_json(recorded.result), _result_place(execution_id))
            target.end(execution_id, 1, row.status, result, now=row.updated)

        await self.writer.run(job)

    # --- in the ledger's thread

    def _update_session(self, key: Sequence[str | None], change: ChangeSession) -> Mapping[str, Any]:
        name = _session_name(key)
        for _ in range(_MOST_TRIES):
            stored = self.ledger.session(name)
            before: Mapping[str, Any] | None = None
            if stored is not None and stored.body is not None:
                before = self._json(stored.body, _session_place(name, stored.is_exposed))
            elif stored is not None:
                before = {}
            is_exposed, state = change(before)
            sealed = self.ledger.ring.seal(to_json(state), _session_place(name, is_exposed))
            version = 1 if stored is None else stored.version + 1
            if self.ledger.put_session(StoredSession(name, is_exposed, version, self.ledger.now(), sealed)):
                return state
        raise LedgerFailed("the state of a session in the ledger changes too often to be written; try again later")

    def _execution(self, execution_id: str) -> StoredExecution:
        if (execution := self.ledger.get(execution_id)) is None:
            raise ConfigError(f"{self.ledger!r} has no execution {execution_id!r}")
        return execution

    def _stored(self, execution_id: str) -> Sequence[StoredCall]:
        return [stored for stored in self.ledger.calls(execution_id) if stored.sequence != SAVED]

    def _recorded(
        self, execution_id: str, execution: StoredExecution | None = None, *, with_saved: bool = False
    ) -> Recorded:
        execution = execution or self._execution(execution_id)
        stored = execution.result
        result: Mapping[str, Any] = {} if stored is None else self._json(stored, _result_place(execution_id))
        if execution.status not in ("running", result.get("status")):
            raise LedgerDamaged(f"the status of {execution_id} in the ledger was altered")
        saved, calls = b"", list[CallRow]()
        for each in self.ledger.calls(execution_id):
            if each.sequence != SAVED:
                calls.append(self._call(each))
            elif with_saved:
                saved = self._call(each).reply
        places = sorted(call.place for call in calls if call.place is not None)
        if places != [*range(len(places))] or len(places) < result.get("replies", 0):
            raise LedgerDamaged(f"calls of {execution_id} are missing in the ledger")
        return Recorded(
            execution=execution,
            is_held=execution.status == "running" and execution.lease > self.ledger.now(),
            head=self._head(execution),
            result=result,
            calls=calls,
            decisions=self._decisions(execution_id),
            saved=saved,
        )

    def _head(self, execution: StoredExecution) -> Mapping[str, Any]:
        place = _head_place(execution.execution_id, execution.organization_id, execution.user_id)
        return self._json(execution.head, place)

    def _call(self, stored: StoredCall) -> CallRow:
        place = place_of(stored.execution_id, stored.sequence, stored.status, stored.place)
        return unpack_call(stored, self.ledger.ring.open(stored.body, place))

    def _decisions(self, execution_id: str) -> dict[tuple[int, bytes], Settlement]:
        decisions: dict[tuple[int, bytes], Settlement] = {}
        for each in self.ledger.decisions(execution_id):
            place = _decision_place(execution_id, each.sequence, each.binding)
            body = dict(self._json(each.body, place))
            kind = _DECISIONS.get(body.pop("type", ""))
            if kind is None:
                raise LedgerDamaged(f"a decision of {execution_id} in the ledger cannot be read")
            if "value" in body:
                text, tagged = body["value"]
                body["value"] = decode_value(text.encode(), tagged=tagged)
            decisions[each.sequence, each.binding] = kind(**body)
        return decisions

    def _json(self, sealed: bytes, place: str) -> Mapping[str, Any]:
        try:
            value = from_json(self.ledger.ring.open(sealed, place))
        except ValueError as error:
            raise LedgerDamaged(f"{place} cannot be read") from error
        return cast("Mapping[str, Any]", value)


_DECIDED = ("type", "by", "reason", "for_session")


def _head_place(execution_id: str, organization_id: str | None, user_id: str) -> str:
    owner = to_json([organization_id, user_id]).decode()
    return f"{execution_id}\0head\0{owner}"


def _session_name(key: Sequence[str | None]) -> str:
    return blake2b(to_json([*key]), digest_size=16).hexdigest()


def _session_place(name: str, is_exposed: bool) -> str:
    return f"session {name}\0{is_exposed}"


def _result_place(execution_id: str) -> str:
    return f"{execution_id}\0result"


def _decision_place(execution_id: str, sequence: int, binding: bytes) -> str:
    return f"{execution_id}\0decision {sequence}\0{binding.hex()}"
