"""Handle of a running execution."""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import inf

import anyio

from corral.errors import ExecutionCancelled
from corral.events import Event
from corral.results import ExecutionResult
from corral.running.execution import Execution


class Run:
    """Handle of a running execution. Iterate over its events, await its result, or cancel it."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._send, self._events = anyio.create_memory_object_stream[Event](inf)  # bounded by the limits of the run
        self._result: ExecutionResult | None = None
        self._failure: Exception | None = None
        self.done = anyio.Event()
        execution.observe(self._send.send_nowait)

    def __repr__(self) -> str:
        return f"<Run of {self.execution_id}, {'ended' if self.done.is_set() else 'running'}>"

    @property
    def execution_id(self) -> str:
        return self._execution.execution_id

    def cancel(self) -> None:
        """Ends the execution with the status `cancelled`."""
        self._execution.cancel()

    async def result(self) -> ExecutionResult:
        """Waits for the execution to end and returns its result.

        Raises:
            StartFailed: the sandbox did not start. ExecutionCancelled: the task that ran the execution was cancelled
            from outside, and not by `cancel`.
        """
        await self.done.wait()
        if self._failure is not None:
            raise self._failure
        assert self._result is not None
        return self._result

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yields the events from the start up to `ExecutionFinished`. Each event goes to one iterator only."""
        async for event in self._events:
            yield event

    async def drive(self) -> None:
        """Runs the execution. Called once, by `Corral.start`."""
        try:
            self._result = await self._execution.run()
        except Exception as error:
            self._failure = error  # `result` raises it
        except BaseException:
            self._failure = ExecutionCancelled("the task that ran the execution was cancelled")
            raise
        finally:
            self._send.close()
            self.done.set()

    def close(self) -> None:
        """Drops unread events. Called once, by `Corral.start`."""
        self._events.close()
