import asyncio

from corral import Corral, tool
from corral.sandboxes import CPythonSandbox


@tool
async def readings(city: str) -> list[float]:
    """A week of temperatures, in °C."""
    return {"Bergen": [4.5, 5.0, 3.5, 4.0, 6.5, 5.0, 4.5], "Oslo": [-2.5, -4.0, -3.0, 0.5, 1.0, -1.5, -2.0]}[city]


PROGRAM = """
import asyncio
import numpy as np

bergen, oslo = await asyncio.gather(*(tools.readings(city=city) for city in ("Bergen", "Oslo")))
{
    "means": np.mean([bergen, oslo], axis=1).round(2).tolist(),
    "correlation": round(np.corrcoef(bergen, oslo)[0, 1], 2),
}
"""


async def main() -> None:
    sandbox = CPythonSandbox(packages=["numpy"])
    async with Corral(tools=[readings], sandbox={"python": sandbox}) as corral:
        result = await corral.execute(PROGRAM, language="python")
    print(result.status, result.value, result.containment in ("namespaces", "landlock"))


asyncio.run(main())
