from corral import Corral, Limits, tool


@tool
async def read_page(number: int) -> str:
    """A page."""
    return f"page {number}"


PROGRAMS = ["for (let n = 1; ; n++) await tools.read_page({ number: n })", "while (true) {}"]

with Corral(tools=[read_page], limits=Limits(wall_seconds=0.5, calls=20)) as corral:
    for program in PROGRAMS:
        result = corral.sync.execute(program)
        print(result.status, len(result.tool_calls), result.error and result.error.message)
