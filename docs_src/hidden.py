import asyncio

from corral import Corral, ExecutionContext, tool


@tool(namespace="orders")
async def look_up(number: int) -> str:
    """The state of an order."""
    return "shipped"


@tool(namespace="orders", scopes={"refunds"})
async def refund(number: int) -> str:
    """Refunds an order."""
    return "refunded"


PROGRAM = """
const found = await tools.search("order");
try {
  return [found.total, await tools.orders["re" + "fund"]({ number: 7 })];
} catch (error) {
  return [found.total, error.message];
}
"""


async def main() -> None:
    customer, clerk = ExecutionContext(user_id="cy"), ExecutionContext(user_id="kim", scopes={"refunds"})
    async with Corral(tools=[look_up, refund], hide_denied=True) as corral:
        for context in (customer, clerk):
            print("refund" in corral.model.prompt(context=context), end=" ")
            print((await corral.execute(PROGRAM, context=context)).value)


asyncio.run(main())
