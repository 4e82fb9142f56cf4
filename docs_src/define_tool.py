import asyncio
from typing import Any

from corral import Corral, ExecutionContext, define_tool
from corral.tools import ToolRegistry


async def search(input: dict[str, Any], context: ExecutionContext) -> list[str]:
    return [f"{input['query']} for {context.user_id}"]


registry = ToolRegistry()
registry.register(
    define_tool(
        name="web-search",
        description="Searches the web.",
        input_schema={
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
            "additionalProperties": False,
        },
        output_schema={"type": "array", "items": {"type": "string"}},
        execute=search,
    ),
    namespace="web",
)


async def main() -> None:
    async with Corral(tools=registry) as corral:
        print(corral.model.declarations(), end="")
        result = await corral.execute("return await tools.web.web_search({ query: 'sheep' })")
        print(result.value)


asyncio.run(main())
