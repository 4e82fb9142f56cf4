import asyncio
import tempfile
from pathlib import Path

from corral import Corral, ExecutionContext, Sessions, tool
from corral.ledger import SqliteLedger


@tool
async def order(item: str) -> str:
    """Orders an item."""
    print("order:", item)
    return f"{item} is ordered"


ANN = ExecutionContext(user_id="ann", session_id="talk")


async def main() -> None:
    path = Path(tempfile.mkdtemp()) / "runs.db"
    for cell in ("note = await tools.order(item='tea')\nnote", "note.upper()"):
        ledger = SqliteLedger(path, keys={})  # keys={} seals nothing
        async with Corral([order], ledger=ledger, sessions=Sessions(keep="variables")) as corral:
            result = await corral.execute(cell, language="python", context=ANN, durable=True)
            print(result.model_text())


asyncio.run(main())
