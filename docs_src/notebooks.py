import asyncio

from corral import Corral, ExecutionContext, Limits, tool


@tool
async def orders(month: str) -> list[dict[str, float]]:
    """Lists the orders of a month."""
    return [{"amount": 20.0}, {"amount": 22.5}] if month == "May" else []


LOAD = """
rows = await tools.orders(month="May")
def total(rows):
    return sum(row["amount"] for row in rows)
len(rows)
"""
CELLS = [LOAD, "total(rows)", "best = max(row['amount'] for row in rows)\nbest / 0", "best"]


async def main() -> None:
    ann = ExecutionContext(user_id="ann")
    async with (
        Corral([orders]) as corral,
        corral.session(context=ann, keep="variables") as session,
    ):
        for cell in CELLS:
            print((await session.execute(cell, language="python")).model_text())
        endless = await session.execute("while True: pass", language="python", limits=Limits(wall_seconds=0.5))
        print(endless.status)
        print((await session.execute("'again'", language="python")).model_text())


asyncio.run(main())
