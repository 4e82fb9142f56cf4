"""Queue that serves tenants in turn, and the wait for a job of such a queue."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

import anyio

from corral.concurrency.threads import thread_safe_callback

__all__ = ["FairQueue", "wait_for_job"]

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Queue that is first in, first out for each tenant and round-robin between tenants."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def count(self, tenant: Hashable) -> int:
        return len(self._waiting.get(tenant, ()))

    def add(self, tenant: Hashable, item: T) -> None:
        self._waiting.setdefault(tenant, deque()).append(item)

    def take(self, allowed: Callable[[Hashable], bool] | None = None) -> T:
        """Removes and returns the next item, of the tenants for which `allowed` is true.

        Raises:
            LookupError: none of them has an item.
        """
        for tenant, items in self._waiting.items():
            if allowed is None or allowed(tenant):
                item = items.popleft()
                del self._waiting[tenant]
                if items:
                    self._waiting[tenant] = items  # behind the other tenants
                return item
        raise LookupError

    def discard(self, tenant: Hashable, item: T) -> None:
        """Removes an item if it is still in the queue."""
        items = self._waiting.get(tenant)
        if items is not None and item in items:
            items.remove(item)
            if not items:
                del self._waiting[tenant]


async def wait_for_job(job: Future[T], seconds: float) -> T:
    """The job's result. The job is cancelled if the caller is, or if it has not begun in time.

    Raises:
        TimeoutError: it has not begun within `seconds`.
    """
    done = anyio.Event()
    notify = thread_safe_callback(done.set)
    job.add_done_callback(lambda _: notify())
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
