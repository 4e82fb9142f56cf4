from corral import Corral, tool


@tool
async def get_temperature(city: str) -> float:
    """The temperature in a city, in °C."""
    return -2.5


with Corral(tools=[get_temperature]) as corral:
    result = corral.sync.execute('return await tools.get_temperature({ town: "Oslo" })')
    print(result.status, result.checked, len(result.tool_calls))
    print(result.model_text())
