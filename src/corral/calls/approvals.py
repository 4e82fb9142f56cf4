"""Approvals: a program waits until the host has decided on a call."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import anyio

from corral.calls.calls import Call, Handler
from corral.calls.dispatch import being_cancelled, unexpected
from corral.concurrency.event_loop import asyncio_loop
from corral.concurrency.fairness import Shares
from corral.errors import ApprovalDenied
from corral.tools import Tool
from corral.types import ApprovalRequest, Approve, Approved, CallError, Decision, Denied, Later, Reply

_MOST_PARKED = 32
"""Maximum number of executions that wait for decisions at the same time, shared fairly among users. Each occupies a
sandbox."""


class WaitingCall:
    """Call that waits for a decision. Its `scope` is cancelled once there is one."""

    def __init__(self, request: ApprovalRequest, seconds: float) -> None:
        self.request = request
        self.decision: Decision | None = None
        """Decision passed to `ParkedCalls.decide`."""
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
    """Calls of one Corral that wait in this process for a decision by `approve` or `decide`.

    A call of a durable execution is left to its journal when `approve` answers `Later` or does not answer in time; its
    reply is `Reply(parked=True)`.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], WaitingCall] = {}

    def requests(self) -> tuple[ApprovalRequest, ...]:
        """Returns the open requests, oldest first."""
        return tuple(each.request for each in list(self._waiting.values()))

    def decide(self, execution_id: str, sequence: int, decision: Decision) -> bool:
        """Decides on a call; the first decision holds. Returns False if the call does not wait for a decision."""
        waiting = self._waiting.pop((execution_id, sequence), None)
        if waiting is None:
            return False
        waiting.decide(decision)
        return True

    @contextmanager
    def waiting(self, request: ApprovalRequest, seconds: float) -> Generator[WaitingCall]:
        """Makes a call known to `decide` during the block."""
        key = request.execution_id, request.sequence  # unique, because the host assigns or checks call numbers
        waiting = self._waiting[key] = WaitingCall(request, seconds)
        try:
            yield waiting
        finally:
            self._waiting.pop(key, None)

    def park(self, waiting: WaitingCall) -> bool:
        """Lets a call wait for `decide` only. Returns False if too many executions already have such calls."""
        own = waiting.request
        parked = {
            each.request.execution_id: each.request.context.owner
            for each in list(self._waiting.values())
            if each.parked
        }
        shares = Shares(_MOST_PARKED, parked.values())
        waiting.parked = own.execution_id in parked or shares.has_room(own.context.owner)
        return waiting.parked


def require_approval(
    handler: Handler, approve: Approve | None, within_seconds: float, parked: ParkedCalls | None = None
) -> Handler:
    """Asks the execution's `approve`, else this one, about calls of tools with `needs_approval`.

    A call is allowed only by `Approved` or True, returned in time. The program's clock is paused meanwhile. After one
    request has timed out, the execution makes no more; otherwise a program could keep its clock paused for ever.
    """
    open_requests = parked or ParkedCalls()

    async def guarded(call: Call) -> Reply:
        tool, parsed = call.tool, call.parsed
        if tool.needs_approval is False or not await _needed(tool, parsed.value, call):
            return await handler(call)
        grant, journal = call.grant, call.grant.journal
        decide = grant.approve or approve
        if decide is None and journal is None:
            raise ApprovalDenied(f"tools.{call.request.tool} requires approval, but no one is available to approve it")
        if grant.approval_timed_out:
            raise ApprovalDenied(
                f"tools.{call.request.tool} requires approval, but an earlier request was not answered in time"
            )
        request = ApprovalRequest(
            tool=call.request.tool,
            input=parsed.value if tool.resolve is None else await tool.resolve(parsed.value, grant.context),
            arguments=call.request.input,
            description=tool.description,
            read_only=tool.read_only,
            context=grant.context,
            execution_id=grant.execution_id,
            sequence=call.request.sequence,
        )
        with (
            grant.clock.paused() if grant.clock is not None else nullcontext(),
            open_requests.waiting(request, within_seconds) as waiting,
        ):
            call.decision = None if journal is None else journal.decision_of(call.request, tool)
            if call.decision is None:
                if grant.recorder is not None:
                    grant.recorder.approval_requested(request)
                if journal is not None:
                    journal.asks(
                        request,
                        call.request,
                        tool,
                        partial(open_requests.decide, request.execution_id, request.sequence),
                    )
                call.decision = await _decision(decide, waiting, call, open_requests)
                if call.decision is not None and journal is not None:
                    call.decision = await journal.decided(call.request, tool, call.decision)
        refusal = ApprovalDenied(f"tools.{call.request.tool} was not approved")
        if call.decision is None:
            refusal = ApprovalDenied(
                f"tools.{call.request.tool} requires approval, but no decision came within {within_seconds:g} s"
            )
            if journal is not None:
                journal.park(request)
                return Reply(error=CallError.of(refusal), parked=True)
            grant.approval_timed_out = True
            call.decision = Denied(f"no decision came within {within_seconds:g} s")
        elif isinstance(call.decision, Denied) and call.decision.reason:
            refusal = ApprovalDenied(f"tools.{call.request.tool} was not approved: {call.decision.reason}")
        if grant.recorder is not None:
            grant.recorder.approval_decided(request, call.decision)
        if isinstance(call.decision, Denied):
            raise refusal
        return await handler(call)

    return guarded


async def _needed(tool: Tool, value: Any, call: Call) -> bool:
    if not callable(tool.needs_approval):
        return tool.needs_approval is not False
    needed = tool.needs_approval(value, call.grant.context)
    return bool(await needed if inspect.isawaitable(needed) else needed)


async def _decision(approve: Approve | None, waiting: WaitingCall, call: Call, parked: ParkedCalls) -> Decision | None:
    """Returns the decision of `approve` or `ParkedCalls.decide`; None if there was none in time, or if a journal keeps
    the call until there is one."""
    answer: Decision | Later | None = None
    with waiting.scope:
        answer = Later() if approve is None else await _answer(approve, waiting.request, call)
        if isinstance(answer, Later) and call.grant.journal is None:
            if parked.park(waiting):
                await anyio.sleep_forever()
            answer = Denied("too many of your programs are waiting for a decision; try again after some are decided")
    return waiting.decision or (None if isinstance(answer, Later) else answer)


async def _answer(approve: Approve, request: ApprovalRequest, call: Call) -> Decision | Later:
    try:
        answered = approve(request)
        answer: object = await answered if inspect.isawaitable(answered) else answered
    except ApprovalDenied as denied:
        return Denied(str(denied))
    except anyio.get_cancelled_exc_class():
        if being_cancelled():
            raise
        return Denied(str(unexpected(call, "asking")))
    except Exception:
        return Denied(str(unexpected(call, "asking")))
    if isinstance(answer, Approved | Denied | Later):
        return answer
    return Approved() if answer is True else Denied()
