import asyncio

from corral import Corral, ToolError, tool

CELSIUS = {"Bergen": 4.5, "Oslo": -2.5}


@tool
def list_cities() -> list[str]:
    """The cities with a weather station."""
    return sorted(CELSIUS)


@tool
async def get_temperature(city: str) -> float:
    """The temperature in a city, in °C."""
    if city not in CELSIUS:
        raise ToolError(f"there is no station in {city}")
    return CELSIUS[city]


ANSWERS = [
    {"code": 'return await tools.get_temperature({ city: "Oslo" })'},
    {"code": 'await tools.list_cities();\nreturn await tools.get_temperature({ city: "Rome" })'},
    {"program": "return 1"},
]


async def main() -> None:
    async with Corral(tools=[list_cities, get_temperature]) as corral:
        tool = corral.model.tools()[0]
        print(tool.name)
        print(tool.input_schema)
        print(tool.description)
        for answer in ANSWERS:
            print("---")
            print(await tool(answer))


asyncio.run(main())
