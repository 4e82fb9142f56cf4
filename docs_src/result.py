import asyncio

from corral import Corral, ToolError, tool

STOCK = {"apples": 3, "pears": 0}


@tool
async def get_stock(item: str) -> int:
    """How many of an item are in stock."""
    if item not in STOCK:
        raise ToolError(f"there is no item {item!r}; there are: {', '.join(STOCK)}")
    return STOCK[item]


PROGRAM = """
console.log("asking");
const apples = await tools.get_stock({ item: "apples" });
return apples + await tools.get_stock({ item: "plums" });
"""


async def main() -> None:
    async with Corral(tools=[get_stock]) as corral:
        result = await corral.execute(PROGRAM)
    assert result.error is not None
    print(result.status, result.error.code)
    print([(call.name, call.input, call.output) for call in result.tool_calls])
    print("---")
    print(result.model_text())


asyncio.run(main())
