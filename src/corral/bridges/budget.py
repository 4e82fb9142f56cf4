"""How many calls one execution makes, and how many of them run at the same time."""

from __future__ import annotations

from corral.bridges.grants import granted
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
        running = grant.running
        if not running.try_acquire():
            await running.acquire()
        try:
            return await handler(call)
        finally:
            running.release()

    return limit
