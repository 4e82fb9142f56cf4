import asyncio

from langchain_core.tools import tool as langchain_tool
from mcp.server import MCPServer

from corral import Corral, tools_from


@langchain_tool
def get_rate(currency: str) -> float:
    """What one euro is in a currency."""
    return {"NOK": 11.8, "SEK": 11.1}[currency]


def get_price(product: str) -> float:
    """The price of a product in euros."""
    return {"tent": 240.0, "stove": 55.0}[product]


def list_products() -> list[str]:
    """What the shop has."""
    return ["stove", "tent"]


stock = MCPServer("stock", log_level="CRITICAL")


@stock.tool()
def count(product: str) -> int:
    """How many there are of a product."""
    return {"tent": 2, "stove": 30}[product]


PROGRAM = """
const rate = await tools.get_rate({ currency: "NOK" });
const products = await tools.list_products();
return await Promise.all(products.map(async (product) => ({
  product,
  kroner: await tools.get_price({ product }) * rate,
  left: await tools.stock.count({ product }),
})));
"""


async def main() -> None:
    async with Corral(tools_from(get_rate, get_price, list_products, stock), check="required") as corral:
        result = await corral.execute(PROGRAM)
        print(*result.raise_for_error().value, sep="\n")


asyncio.run(main())
