import asyncio
import json
from typing import Any

import httpx2
from anthropic import AsyncAnthropic

from corral import Corral, tool
from corral.integrations.anthropic import CodeMode

CELSIUS = {"Bergen": 4.5, "Oslo": -2.5}
PROGRAM = """\
const cities = await tools.list_cities();
return await Promise.all(cities.map((city) => tools.get_temperature({ city })));
"""


@tool
def list_cities() -> list[str]:
    """The cities with a weather station."""
    return sorted(CELSIUS)


@tool
async def get_temperature(city: str) -> float:
    """The temperature in a city, in °C."""
    return CELSIUS[city]


def scripted(request: httpx2.Request) -> httpx2.Response:
    """Stands in for the API: the model writes a program, and then answers with its result."""
    last = json.loads(request.content)["messages"][-1]["content"]
    block_data: dict[str, Any]
    if isinstance(last, str):
        block_data = {"type": "tool_use", "id": "toolu_1", "name": "execute_code", "input": {"code": PROGRAM}}
    else:
        block_data = {"type": "text", "text": last[0]["content"]}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted"}
    stop_reason = "tool_use" if block_data["type"] == "tool_use" else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    return httpx2.Response(200, json={**message, "content": [block_data], "stop_reason": stop_reason, "usage": usage})


async def main() -> None:
    transport = httpx2.MockTransport(scripted)
    async with (
        Corral(tools=[list_cities, get_temperature]) as corral,
        AsyncAnthropic(api_key="none", http_client=httpx2.AsyncClient(transport=transport)) as client,
    ):
        runner = client.beta.messages.tool_runner(
            model="scripted",
            max_tokens=1_000,
            messages=[{"role": "user", "content": "How cold is it?"}],
            **CodeMode(corral).kwargs(system="You are a meteorologist."),
        )
        async for message in runner:
            for block in message.content:
                print(block.text if block.type == "text" else block.type)


asyncio.run(main())
