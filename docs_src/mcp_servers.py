import asyncio

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from corral import Corral
from corral.sources.mcp import McpServer

shop = MCPServer("shop", log_level="CRITICAL")
STOCK = {"apples": 3, "pears": 0}


@shop.tool(annotations=ToolAnnotations(read_only_hint=True))
def stock(product: str) -> int:
    """How many there are of a product."""
    return STOCK[product]


@shop.tool(annotations=ToolAnnotations(destructive_hint=True))
def clear(product: str) -> None:
    """Throws away all there are of a product."""
    STOCK[product] = 0


PROGRAM = """
const apples = await tools.shop.stock({ product: "apples" });
const attempt = async (call: () => Promise<unknown>) => {
  try { await call(); } catch (error) { return (error as Error).message; }
};
return {
  apples,
  clear: await attempt(() => tools.shop.clear({ product: "apples" })),
  weather: await attempt(() => tools.weather.today()),
};
"""


async def main() -> None:
    servers = [McpServer("shop", server=shop), McpServer("weather", command=["mcp-server-weather"])]
    async with Corral(servers, check=False) as corral:
        print(corral.model.declarations())
        result = await corral.execute(PROGRAM)
        for name, value in result.value.items():
            print(f"{name}: {value}")


asyncio.run(main())
