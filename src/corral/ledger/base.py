"""Contract of a ledger: rows of durable executions in a store."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

from corral.errors import ConfigError
from corral.ledger.rows import ExecutionStatus, Query, StoredCall, StoredDecision, StoredExecution, StoredSession
from corral.ledger.sealing import Ring, keys_of

_DAY_SECONDS = 86_400.0


class Ledger(ABC):
    """Store of durable executions. Its methods block; a single thread calls them, one after another.

    `keys` are named keys of 16, 24 or 32 bytes with which all values are sealed: the first one seals, and all of them
    open. They default to those in the environment variable CORRAL_LEDGER_KEYS. `{}` stores values in plain text.

    Ended executions are deleted after `keep_days`. A paused execution expires after `expires_seconds`: it can no longer
    be resumed, and is deleted. With None it does not expire.

    Raises:
        ConfigError: there are no keys, or an option is invalid.
        MissingExtra: `cryptography` is not installed.
    """

    def __init__(
        self, *, keys: Mapping[str, bytes] | None = None, keep_days: float = 30.0, expires_seconds: float | None = None
    ) -> None:
        if not keep_days > 0 or not (expires_seconds is None or expires_seconds > 0):
            raise ConfigError(f"{type(self).__name__}(): keep_days and expires_seconds must be positive")
        self.ring = Ring(keys_of(os.environ) if keys is None else keys)
        self.keep_seconds = keep_days * _DAY_SECONDS
        self.expires_seconds = expires_seconds

    def now(self) -> float:
        """Returns the time in seconds since the Unix epoch, by a clock that all hosts with this store share."""
        return time.time()

    @abstractmethod
    def create(self, execution: StoredExecution) -> None:
        """Stores a new execution, durably at the latest with the next durable write. Raises if there is one of that
        id."""

    @abstractmethod
    def claim(self, execution_id: str, *, now: float, lease: float, ended: bool = False) -> StoredExecution | None:
        """Claims an execution that is paused, or running with an expired lease: makes it `running` for one more claim.

        With `ended`, also claims an ended one. Returns its previous row, with the number of the new claim; None if it
        is held or has ended.
        """

    @abstractmethod
    def renew(self, claims: Mapping[str, int], *, lease: float) -> Collection[str]:
        """Sets the leases of these claims, by execution. Returns the executions that have since been claimed again."""

    @abstractmethod
    def write(self, claims: Mapping[str, int], calls: Sequence[StoredCall], *, durably: bool) -> Collection[str]:
        """Stores calls in one transaction. A later row with the same number replaces an earlier one.

        With `durably`, returns only once these and all earlier rows would survive a power failure. Returns the
        executions that have since been claimed again, none of whose calls is stored.
        """

    @abstractmethod
    def end(self, execution_id: str, claim: int, status: ExecutionStatus, result: bytes | None, *, now: float) -> bool:
        """Ends a claim durably: sets the status and, if there is one, the result, and ends the lease. Returns False if
        the execution has since been claimed again."""

    @abstractmethod
    def decide(self, decision: StoredDecision, *, now: float) -> bool:
        """Stores a decision durably. Returns False if there already is one for that call and binding."""

    @abstractmethod
    def get(self, execution_id: str) -> StoredExecution | None:
        """Returns an execution, if the ledger has it."""

    @abstractmethod
    def calls(self, execution_id: str) -> Sequence[StoredCall]:
        """Returns the calls of an execution, by number."""

    @abstractmethod
    def waiting(self, query: Query) -> Sequence[tuple[ExecutionStatus, StoredCall]]:
        """Returns the `pending` and `uncertain` calls of executions that are paused or running, with the status of the
        execution, in the order in which the executions were updated."""

    @abstractmethod
    def decisions(self, execution_id: str) -> Sequence[StoredDecision]:
        """Returns the decisions on calls of an execution."""

    @abstractmethod
    def list(self, query: Query) -> Sequence[StoredExecution]:
        """Returns the last updated executions that match all criteria, the oldest first."""

    @abstractmethod
    def session(self, key: str) -> StoredSession | None:
        """Returns the state of a session, if the ledger has it."""

    @abstractmethod
    def put_session(self, session: StoredSession) -> bool:
        """Stores the state of a session durably. Returns False unless it directly follows the stored version."""

    @abstractmethod
    def prune(self, *, ended_before: float, paused_before: float | None) -> int:
        """Deletes executions that ended or paused before a time. Returns their number.

        Also deletes states of sessions that were written before `ended_before`. Of an exposed one, the row stays,
        without its body.
        """

    @abstractmethod
    def close(self) -> None:
        """Frees connections. The next method call opens them again."""
