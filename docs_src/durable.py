import asyncio
import os
import tempfile
from pathlib import Path

from corral import Approved, Corral, tool
from corral.ledger import SqliteLedger


@tool
async def note(text: str) -> None:
    """Writes a line to the log of the shop."""
    print("note:", text)


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds an order."""
    print("refund:", order)
    return f"order {order} is refunded"


SOURCE = """
await tools.note({ text: "a customer complains" });
return await tools.refund({ order: 42 });
"""
KEYS = {"2026-11": os.urandom(32)}  # usually CORRAL_LEDGER_KEYS


async def main() -> None:
    path = Path(tempfile.mkdtemp()) / "runs.db"
    async with Corral([note, refund], ledger=SqliteLedger(path, keys=KEYS)) as corral:
        result = await corral.execute(SOURCE, durable=True)
        print(result.status, [(call.tool, call.input) for call in result.pending])

    # Days later, in another process:
    async with Corral([note, refund], ledger=SqliteLedger(path, keys=KEYS)) as corral:
        for execution in await corral.executions.waiting():
            decisions = {call.sequence: Approved() for call in execution.calls}
            await corral.executions.settle(execution.execution_id, decisions, by="ann")
            result = await corral.executions.resume(execution.execution_id)
            print(result.status, result.value)


asyncio.run(main())
