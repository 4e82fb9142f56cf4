import asyncio

from corral import Corral, Tool, define_tool


async def nothing(input: object) -> None:
    pass


def convert(unit: str) -> Tool:
    schema = {"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]}
    return define_tool(
        name=f"to_{unit}",
        namespace="units",
        description=f"Converts a value to {unit}.\n\nRounds to six digits.",
        input_schema=schema,
        output_schema={"type": "number"},
        execute=nothing,
    )


UNITS = """
    acres bars carats decibels degrees farads feet furlongs gallons grams hectares henries hours inches joules kelvins
    knots litres lumens miles moles newtons ohms ounces pascals pints pounds quarts radians siemens slugs teslas tonnes
""".split()


async def main() -> None:
    async with Corral(tools=[convert(unit) for unit in UNITS]) as corral:
        catalog = corral.model.catalog(budget_tokens=500)
        _, search, describe = corral.model.tools(catalog=catalog)
        print(catalog.level)
        for tool, arguments in (
            (search, {"query": "convert to litres", "limit": 2}),
            (describe, {"name": "units.to_litres"}),
            (describe, {"name": "units.to_liters"}),
        ):
            print("---")
            print(tool.name, arguments)
            print(await tool(arguments))


asyncio.run(main())
