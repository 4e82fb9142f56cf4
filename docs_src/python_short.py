from corral import Corral, tool

TEMPERATURES = {"Bergen": 4.5, "Oslo": -2.5, "Tromsø": -6.5}


@tool
async def get_temperature(city: str) -> float:
    """The temperature in a city, in °C."""
    return TEMPERATURES[city]


PROGRAM = """
import asyncio

cities = ["Bergen", "Oslo", "Tromsø"]
degrees = await asyncio.gather(*(tools.get_temperature(city=city) for city in cities))
min(zip(degrees, cities))
"""

with Corral(tools=[get_temperature]) as corral:
    print(corral.sync.execute(PROGRAM, language="python").value)
