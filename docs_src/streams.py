import asyncio
from collections.abc import AsyncIterator

from corral import Corral, tool

READINGS = {"Bergen": [7.1, 7.4, 8.0, 6.9], "Oslo": [3.2, 2.8, 4.1, 3.7]}


@tool(stream=True)
async def readings(city: str) -> AsyncIterator[float]:
    """Temperatures of a station, oldest first."""
    for value in READINGS[city]:
        yield value


TYPESCRIPT = """
let warmest = -Infinity;
for await (const value of tools.readings({ city: "Bergen" })) {
  warmest = Math.max(warmest, value);
}
return warmest;
"""
PYTHON = """
async for value in tools.readings(city="Oslo"):
    if value < 3:
        break
value
"""


async def main() -> None:
    async with Corral(tools=[readings]) as corral:
        print(corral.model.declarations("typescript").splitlines()[2].strip())
        print((await corral.execute(TYPESCRIPT)).value)
        print((await corral.execute(PYTHON, language="python")).value)


asyncio.run(main())
