# pyright: reportUnknownMemberType=false

import asyncio
from typing import Annotated, Any

from taskiq import Context, InMemoryBroker, SimpleRetryMiddleware, TaskiqDepends

from corral import Approved, Corral, tool
from corral.ledger import MemoryLedger


@tool
async def note(text: str) -> None:
    """Writes a line to the log of the shop."""
    print("note:", text)


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds an order."""
    print("refund:", order)
    return f"order {order} is refunded"


corral = Corral([note, refund], ledger=MemoryLedger())  # with workers, ledger="postgresql://..."
broker = InMemoryBroker(await_inplace=True).with_middlewares(SimpleRetryMiddleware(default_retry_count=10))


@broker.task("program", retry_on_error=True)
async def program(source: str, context: Annotated[Context, TaskiqDepends()]) -> str:
    job = context.message.task_id
    result = await corral.execute(source, durable=True, execution_id=f"job-{job}")
    return "paused" if result.status == "paused" else result.value


async def main() -> None:
    source = "await tools.note({ text: 'order 42' }); return await tools.refund({ order: 42 })"
    job: Any = program.kicker().with_task_id("42")
    async with corral:
        for _ in range(2):  # a queue can deliver a job twice
            print((await (await job.kiq(source)).wait_result()).return_value)
        for execution in await corral.executions.waiting():
            decisions = {call.sequence: Approved() for call in execution.calls}
            await corral.executions.settle(execution.execution_id, decisions, by="ann")
        for _ in range(2):  # whoever decides sends the job again
            print((await (await job.kiq(source)).wait_result()).return_value)


asyncio.run(main())
