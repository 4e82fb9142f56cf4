import asyncio

from corral import Corral, tool
from corral.events import ToolCallStarted


@tool
async def wait() -> None:
    """Waits for a very long time."""
    await asyncio.sleep(3600)


async def main() -> None:
    async with Corral(tools=[wait]) as corral, corral.start("console.log('x'); await tools.wait()") as run:
        async for event in run:
            if isinstance(event, ToolCallStarted):
                run.cancel()
        result = await run.result()
    print(result.status, repr(result.console))
    print([call.error.code for call in result.tool_calls if call.error])


asyncio.run(main())
