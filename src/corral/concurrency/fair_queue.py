"""Jobs that are done one at a time, tenants in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

import anyio

from corral.concurrency.threads import soon

__all__ = ["Turns", "outcome"]

T = TypeVar("T")


class Turns(Generic[T]):
    """What waits. The next of a tenant comes after one of every other tenant that waits."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, deque[T]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, tenant: Hashable, each: T) -> None:
        self._waiting.setdefault(tenant, deque()).append(each)

    def take(self) -> T:
        """The next one. Raises KeyError if nothing waits."""
        tenant, own = self._waiting.popitem(last=False)
        each = own.popleft()
        if own:
            self._waiting[tenant] = own
        return each


async def outcome(job: Future[T], seconds: float) -> T:
    """Waits for what becomes of a job, which is withdrawn if nobody waits any more, or it has not begun in time.

    Raises:
        TimeoutError: it has not begun in time.
    """
    done = anyio.Event()
    tell = soon(done.set)
    job.add_done_callback(lambda _: tell())
    try:
        with anyio.move_on_after(seconds):
            await done.wait()
        if not (job.done() or job.cancel()):
            await done.wait()
        if job.cancelled():
            raise TimeoutError
        return job.result()
    finally:
        job.cancel()
