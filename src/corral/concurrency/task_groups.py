"""Task group that raises its block's own error unwrapped."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def plain_task_group() -> AsyncGenerator[TaskGroup]:
    """Task group that raises an error of its block unchanged; anyio's wraps it in an ExceptionGroup.

    An error in the block does not cancel the tasks: it is raised once they have ended.
    """
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield tasks
        except BaseException as error:
            failure = error
    if failure is not None:
        raise failure
