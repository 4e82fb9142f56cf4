import asyncio

from corral import Corral, tool
from corral.events import ConsoleOutput, ExecutionFinished, ToolCallFinished, ToolCallStarted


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


PROGRAM = """
console.log("adding");
return await tools.add({ a: 1, b: await tools.add({ a: 2, b: 3 }) });
"""


async def main() -> None:
    async with Corral(tools=[add]) as corral, corral.start(PROGRAM) as run:
        async for event in run:
            match event:
                case ConsoleOutput(entry=entry):
                    print(event.type, entry.level, entry.text)
                case ToolCallStarted(call=call):
                    print(event.type, call.name, call.input)
                case ToolCallFinished(call=call):
                    print(event.type, call.name, call.output)
                case ExecutionFinished(result=result):
                    print(event.type, result.status, result.value)
                case _:
                    print(event.type)


asyncio.run(main())
