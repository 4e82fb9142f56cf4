import asyncio

from corral import Corral, tool

TEMPERATURES = {"Bergen": 4.5, "Oslo": -2.5, "Tromsø": -6.5}


@tool
def list_cities() -> list[str]:
    """The cities with a weather station."""
    return sorted(TEMPERATURES)


@tool
async def get_temperature(city: str) -> float:
    """The temperature in a city, in °C."""
    return TEMPERATURES[city]


PROGRAM = """
import asyncio

cities = await tools.list_cities()
degrees = await asyncio.gather(*(tools.get_temperature(city=city) for city in cities))
coldest, city = min(zip(degrees, cities))
{"city": city, "coldest": coldest, "compared": len(cities)}
"""


async def main() -> None:
    async with Corral(tools=[list_cities, get_temperature]) as corral:
        result = await corral.execute(PROGRAM, language="python")
        print(result.value)


asyncio.run(main())
