import asyncio
import tempfile
from pathlib import Path

from dbos import DBOS, SetWorkflowID

from corral import Approved, Corral, tool
from corral.ledger import SqliteLedger

folder = Path(tempfile.mkdtemp())


@tool
async def note(text: str) -> None:
    """Writes a line to the log of the shop."""
    print("note:", text)


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds an order."""
    print("refund:", order)
    return f"order {order} is refunded"


corral = Corral([note, refund], ledger=SqliteLedger(folder / "runs.db", keys={}))  # keys={} seals nothing


@DBOS.step()
async def run(execution_id: str, source: str) -> str:
    result = await corral.execute(source, durable=True, execution_id=execution_id)
    return "paused" if result.status == "paused" else result.value


@DBOS.workflow()
async def program(source: str) -> str:
    while (outcome := await run(f"dbos-{DBOS.workflow_id}", source)) == "paused":
        print("paused")
        await DBOS.recv_async("decided", timeout_seconds=86_400)
    return outcome


async def main() -> None:
    DBOS(config={"name": "shop", "system_database_url": f"sqlite:///{folder}/dbos.db", "console_log_level": "ERROR"})
    source = "await tools.note({ text: 'order 42' }); return await tools.refund({ order: 42 })"
    async with corral:
        DBOS.launch()
        with SetWorkflowID("42"):
            handle = await DBOS.start_workflow_async(program, source)
        while not (paused := [each for each in await corral.executions.waiting() if each.status == "paused"]):
            await asyncio.sleep(0.1)
        for execution in paused:
            decisions = {call.sequence: Approved() for call in execution.calls}
            await corral.executions.settle(execution.execution_id, decisions, by="ann")
        await DBOS.send_async("42", "approved", "decided")
        print(await handle.get_result())
        DBOS.destroy()


asyncio.run(main())
