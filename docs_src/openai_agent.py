import asyncio
import json
from typing import Any

import httpx2
from openai import AsyncOpenAI

from corral import Corral, tool
from corral.integrations.openai import CodeMode

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
    last = json.loads(request.content)["input"][-1]
    item: dict[str, Any]
    if last.get("type") == "function_call_output":
        text: dict[str, Any] = {"type": "output_text", "text": last["output"], "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    else:
        arguments = json.dumps({"code": PROGRAM})
        item = {"type": "function_call", "call_id": "call_1", "name": "execute_code", "arguments": arguments}
    return httpx2.Response(200, json={"id": "resp_1", "object": "response", "output": [item]})


async def main() -> None:
    transport = httpx2.MockTransport(scripted)
    async with (
        Corral(tools=[list_cities, get_temperature]) as corral,
        AsyncOpenAI(api_key="none", http_client=httpx2.AsyncClient(transport=transport)) as client,
    ):
        mode = CodeMode(corral)
        request = mode.kwargs(instructions="You are a meteorologist.")
        input: list[Any] = [{"role": "user", "content": "How cold is it?"}]
        while True:
            response = await client.responses.create(model="scripted", input=input, **request)
            outputs = await mode.outputs(response, conversation=input)
            if not outputs:
                break
            print(outputs)
            input += [*response.output, *outputs]
        print(response.output_text)


asyncio.run(main())
