"""Jobs in the background: a stored program, or a whole agent, runs for a user and mails the result to that user.

A worker takes a job out of its queue before the job runs, so a job runs once or not at all: payments are not repeated
when a worker is killed. Usage: `python examples/tenants/jobs.py`, with `Settings` as JSON on standard input.
"""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Self

from corral import AuditLog, Corral, ExecutionContext, ToolError
from opentelemetry import trace
from pydantic import TypeAdapter
from pydantic_ai import UsageLimits
from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker

from assistant import invoice_agent
from database import program_of
from service import Settings, context_of, open_corral
from tools import approve_unattended

__all__ = ["Jobs", "main"]

_TIMEOUT_SECONDS = 60
_AGENT_LIMITS = UsageLimits(request_limit=8, tool_calls_limit=8)
_AT_ONCE = 2
_tracer = trace.get_tracer("tenants.jobs")

Work = Callable[[Corral, ExecutionContext], Awaitable[str]]


class Jobs:
    """The queue, and the two kinds of jobs in it. Messages name a user; what that user may do, the worker looks up."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # A worker waits for its next job as long as it takes: the client's default would end that after 5 s.
        self.broker: Any = ListQueueBroker(settings.valkey, queue_name="jobs", socket_timeout=None)

        @self.broker.task("program", timeout=_TIMEOUT_SECONDS)
        async def program(user: str, name: str) -> None:
            await self.run_program(user, name)

        @self.broker.task("agent", timeout=_TIMEOUT_SECONDS)
        async def agent(user: str, prompt: str) -> None:
            await self.run_agent(user, prompt)

        self.program: Any = program
        self.agent: Any = agent

    async def __aenter__(self) -> Self:
        await self.broker.startup()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.broker.shutdown()

    async def run_program(self, user: str, name: str) -> None:
        async def run(corral: Corral, caller: ExecutionContext) -> str:
            source = await program_of(self._settings.postgres, caller, name)
            return (await corral.execute(source, context=caller)).model_text()

        await self._run("program", user, run)

    async def run_agent(self, user: str, prompt: str) -> None:
        async def run(corral: Corral, caller: ExecutionContext) -> str:
            answer = await invoice_agent(corral).run(prompt, deps=caller, usage_limits=_AGENT_LIMITS)
            return answer.output

        await self._run("agent", user, run)

    async def _run(self, kind: str, user: str, work: Work) -> None:
        """Runs a job in a corral of its own, which is closed whatever happens, and mails what came of it."""
        caller = context_of(user)
        attributes = {"job.kind": kind, "user.id": user, "organization.id": str(caller.organization_id)}
        with _tracer.start_as_current_span("job", attributes=attributes):
            audit = AuditLog(self._settings.audit)
            try:
                async with open_corral(self._settings, audit, approve=approve_unattended) as corral:
                    text = await work(corral, caller)
            except ToolError as error:
                text = str(error)
            except Exception:
                await self._mail(caller, kind, "The job failed.")
                raise
            await self._mail(caller, kind, text)

    async def _mail(self, caller: ExecutionContext, kind: str, text: str) -> None:
        address = f"{caller.user_id}@{caller.organization_id}.example"
        await self._settings.mail.send(address, f"Your job: {kind}", text)


async def _work(settings: Settings) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, task.cancel)
    await run_receiver_task(Jobs(settings).broker, max_async_tasks=_AT_ONCE, run_startup=True)


def main() -> None:
    settings = TypeAdapter(Settings).validate_json(sys.stdin.read())
    try:
        asyncio.run(
            _work(settings)
        )  # which, at its end, cancels jobs and waits until they have closed what they opened
    except asyncio.CancelledError:
        sys.exit(0)


if __name__ == "__main__":
    main()
