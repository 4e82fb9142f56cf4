"""Calls that wait for a decision. They wait in this process, unless a store takes them over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from corral.concurrency.event_loop import asyncio_loop
from corral.concurrency.fairness import Shares
from corral.rendering.full_text import full_text
from corral.types import Approved, Denied, ExecutionContext, Later

__all__ = ["ApprovalRequest", "Approve", "Decision", "ParkedCalls", "TakeOver", "WaitingCall"]

_MOST_PARKED = 32
"""Executions that wait here for `Corral.decide` at the same time, by fair shares of users: each has a sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """Call that waits for an approval. `input` is what the tool will receive: validated, not copied."""

    tool: str
    """As the program wrote it: `name` or `namespace.name`."""
    input: Any
    """For a function, a dict from parameter to value; else the parsed input document."""
    arguments: Any
    """Input as the program wrote it: plain data, without defaults."""
    description: str
    read_only: bool
    context: ExecutionContext
    execution_id: str
    sequence: int

    def shown(self, max_chars: int = 10_000) -> str:
        """Formats the whole input for a person: JSON, one member a line if it is not short.

        Characters that hide, move or imitate others, such as control characters and directions, are escaped.

        Raises:
            ApprovalDenied: the text is longer than `max_chars`, or a value cannot be shown. Raised within `approve`, it
                denies the call with this reason.
        """
        return full_text(self.input, max_chars)


Decision: TypeAlias = Approved | Denied

Approve: TypeAlias = Callable[[ApprovalRequest], bool | Decision | Later | Awaitable[bool | Decision | Later]]
"""Function that decides on a call that needs an approval. Only `Approved`, or True, allows it. `Denied` denies it with
a reason that the program sees, as raising `ApprovalDenied` does. `Later` leaves it to `Corral.decide`. Concurrent calls
are asked about concurrently."""

TakeOver: TypeAlias = Callable[[ApprovalRequest], Awaitable[None]]
"""Function that stores an undecided call, so that it can go on in another process. An error denies the call."""


class WaitingCall:
    """Call whose request is open. Its `scope` is cancelled when it is decided."""

    def __init__(self, request: ApprovalRequest, seconds: float) -> None:
        self.request = request
        self.decision: Decision | None = None
        """Decision of `ParkedCalls.decide`."""
        self.parked = False
        """True once `approve` has answered `Later`."""
        self.scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self._loop = asyncio_loop()

    def decide(self, decision: Decision) -> None:
        self.decision = decision
        if self._loop is None or self._loop is asyncio_loop():
            self.scope.cancel()
        else:
            self._loop.call_soon_threadsafe(self.scope.cancel)


class ParkedCalls:
    """Calls of one Corral that wait for a decision, of `approve` or by `decide`.

    Without `take_over` they wait in this process, until `approval_seconds` have passed. With it, a call is stored when
    `approve` answers `Later` or does not answer in time; its reply is `Reply(parked=True)`.
    """

    def __init__(self, take_over: TakeOver | None = None) -> None:
        self.take_over = take_over
        self._waiting: dict[tuple[str, int], WaitingCall] = {}

    def requests(self) -> tuple[ApprovalRequest, ...]:
        """Returns the requests that are open, oldest first."""
        return tuple(each.request for each in list(self._waiting.values()))

    def decide(self, execution_id: str, sequence: int, decision: Decision) -> bool:
        """Decides on a call; the first decision holds. False if the call does not wait for one."""
        waiting = self._waiting.pop((execution_id, sequence), None)
        if waiting is None:
            return False
        waiting.decide(decision)
        return True

    @contextmanager
    def waiting(self, request: ApprovalRequest, seconds: float) -> Generator[WaitingCall]:
        """Makes a call decidable for the duration of the block."""
        key = request.execution_id, request.sequence  # unique: the host numbers calls, or checks their numbers
        waiting = self._waiting[key] = WaitingCall(request, seconds)
        try:
            yield waiting
        finally:
            self._waiting.pop(key, None)

    def park(self, waiting: WaitingCall) -> bool:
        """Lets a call wait for `decide` alone. False if calls of too many executions do already."""
        own = waiting.request
        parked = {
            each.request.execution_id: each.request.context.trust_domain
            for each in list(self._waiting.values())
            if each.parked
        }
        shares = Shares(_MOST_PARKED, parked.values())
        waiting.parked = own.execution_id in parked or shares.has_room(own.context.trust_domain)
        return waiting.parked
