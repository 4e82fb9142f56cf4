"""`Corral.executions`: executions that run now, by their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from corral.arguments import checked
from corral.calls import ParkedCalls
from corral.running.execution import Execution
from corral.types import ApprovalRequest, Approved, Denied, ExecutionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExecution:
    """Execution whose calls wait for decisions."""

    execution_id: str
    context: ExecutionContext
    calls: tuple[ApprovalRequest, ...]
    """The calls that wait, oldest first."""


class Executions:
    """Executions of one Corral by their ids: `Corral.executions`."""

    _shown_as = "Corral.executions"  # in errors

    def __init__(self, parked: ParkedCalls, live: Callable[[], Iterable[Execution]]) -> None:
        self._parked = parked
        self._live = live

    @checked
    async def waiting(
        self, *, user_id: str | None = None, organization_id: str | None = None
    ) -> tuple[PendingExecution, ...]:
        """Returns the executions whose calls wait for decisions, those that waited first at the front.

        `user_id` and `organization_id` select those of one caller.
        """
        calls: dict[str, list[ApprovalRequest]] = {}
        for request in self._parked.requests():
            context = request.context
            if user_id in (None, context.user_id) and organization_id in (None, context.organization_id):
                calls.setdefault(request.execution_id, []).append(request)
        return tuple(
            PendingExecution(execution_id=execution_id, context=requests[0].context, calls=tuple(requests))
            for execution_id, requests in calls.items()
        )

    @checked
    async def settle(
        self, execution_id: str, decisions: Mapping[int, Approved | Denied], *, by: str | None = None
    ) -> frozenset[int]:
        """Decides on calls that wait, by their `sequence`; the first decision on a call holds.

        The host has to know that the person may decide: `waiting` has the `context` of the execution. `by` names who
        decided, for decisions that do not say so. Returns the calls that this decided: not those that do not wait, or
        no longer.
        """
        return frozenset(
            sequence
            for sequence, decision in decisions.items()
            if self._parked.decide(execution_id, sequence, replace(decision, by=decision.by or by))
        )

    @checked
    def cancel(self, execution_id: str) -> bool:
        """Cancels an execution; its result has the status `cancelled`. Returns False if it does not run here."""
        for execution in [*self._live()]:
            if execution.execution_id == execution_id and not execution.ended.is_set():
                execution.cancel()
                return True
        return False
