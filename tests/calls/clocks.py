"""The clock of an execution, as the guards and tools of its calls find it."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import anyio

from corral.calls import Grant
from corral.calls.grants import current_grant


def grant_here() -> Grant:
    """The grant of the call that is being made."""
    grant = current_grant.get()
    assert grant is not None
    return grant


def seconds_left(grant: Grant) -> float:
    """How long its program may run from now on, if its clock is not paused or goes on."""
    assert grant.clock is not None
    return grant.clock._scope.deadline - anyio.current_time()


def use_up(grant: Grant) -> None:
    """Lets the rest of its program's time pass at once."""
    assert grant.clock is not None
    grant.clock._scope.deadline = anyio.current_time()
