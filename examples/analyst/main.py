"""An analyst: programs in Python with pandas and matplotlib, over rows that never reach the model."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path

from pydantic import BaseModel

from corral import Corral, Limits, tool
from corral.sandboxes import CPythonSandbox


class Sale(BaseModel):
    month: int
    product: str
    units: int
    euros: float


def _sales() -> list[Sale]:
    chance = random.Random(7)  # noqa: S311 - made-up data
    products = {"chair": 40.0, "table": 150.0, "lamp": 25.0}
    return [
        Sale(month=month, product=product, units=units, euros=round(units * price, 2))
        for month in range(1, 13)
        for product, price in products.items()
        for units in (chance.randint(1, 30) for _ in range(20))
    ]


SALES = _sales()


@tool(read_only=True)
def sales(month: int) -> list[Sale]:
    """All sales of a month, 1 to 12."""
    return [each for each in SALES if each.month == month]


TABLE = """
import asyncio
import pandas as pd

months = await asyncio.gather(*(tools.sales(month=month) for month in range(1, 13)))
frame = pd.DataFrame([row for rows in months for row in rows])
frame.groupby("product")["euros"].agg(["sum", "mean"]).round(0).sort_values("sum", ascending=False).reset_index()
"""
PLOT = """
import asyncio
import pandas as pd
from matplotlib import pyplot as plt

months = await asyncio.gather(*(tools.sales(month=month) for month in range(1, 13)))
frame = pd.DataFrame([row for rows in months for row in rows])
fig, axes = plt.subplots(figsize=(6, 3))
frame.pivot_table(index="month", columns="product", values="euros", aggfunc="sum").plot(ax=axes, ylabel="EUR")
fig
"""


async def main(target: Path) -> None:
    # Of this environment. In a service, lock and preload them instead: docs/packages.md.
    sandbox = CPythonSandbox(packages=["pandas", "matplotlib"])
    async with Corral([sales], sandbox={"python": sandbox}, limits=Limits(memory_mb=256)) as corral:
        table = (await corral.execute(TABLE, language="python")).raise_for_error()
        for row in table.value:
            print(row)
        print(f"{len(SALES)} rows stayed in the sandbox, {len(table.model_text())} characters came back")
        plot = (await corral.execute(PLOT, language="python")).raise_for_error()
    target.write_bytes(plot.value)  # noqa: ASYNC240 - the last thing that it does
    print("a plot was written:", plot.value.startswith(b"\x89PNG") and len(plot.value) > 5_000)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(), "sales.png")))
