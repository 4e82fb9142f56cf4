"""How many calls one execution makes, and how many of them run at the same time."""

from __future__ import annotations

import anyio

from corral.bridges.grants import Grant, granted
from corral.errors import CallBudgetExceeded
from corral.types import Call, Handler, Reply

__all__ = ["limited"]


def limited(handler: Handler) -> Handler:
    """Holds the budget of calls, and makes calls wait while too many of their execution are running."""

    async def limit(call: Call) -> Reply:
        grant = granted(call)
        grant.calls += 1
        if grant.calls > (calls := grant.limits.calls):
            raise CallBudgetExceeded(f"the budget of {calls} tool call{'' if calls == 1 else 's'} is used up")
        if grant.running < grant.limits.calls_in_flight:
            grant.running += 1
        else:
            await _turn(grant)
        try:
            return await handler(call)
        finally:
            _leave(grant)

    return limit


async def _turn(grant: Grant) -> None:
    grant.waiting.append(turn := anyio.Event())
    try:
        await turn.wait()
    except BaseException:
        if turn.is_set():
            _leave(grant)
        else:
            grant.waiting.remove(turn)
        raise


def _leave(grant: Grant) -> None:
    if grant.waiting:
        grant.waiting.popleft().set()  # the place passes on, so that nobody can come between
    else:
        grant.running -= 1
