import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from corral import Corral, ExecutionContext, tool
from corral.integrations.openai_agents import CodeMode

CELSIUS = {"Bergen": 4.5, "Oslo": -2.5}
PROGRAM = """\
const cities = await tools.list_cities();
return await Promise.all(cities.map((city) => tools.get_temperature({ city })));
"""


@tool
def list_cities(*, context: ExecutionContext) -> list[str]:
    """The cities with a weather station."""
    print("called for", context.user_id)
    return sorted(CELSIUS)


@tool
async def get_temperature(city: str) -> float:
    """The temperature in a city, in °C."""
    return CELSIUS[city]


@function_tool
def remind(text: str) -> str:
    """Reminds the user of something."""
    return "noted"


class Scripted(Model):
    """Stands in for a model: writes a program, and then answers with its result."""

    async def get_response(
        self, system_instructions: str | None, input: str | list[Any], *args: Any, **options: Any
    ) -> ModelResponse:
        if isinstance(input, str) or input[-1].get("type") != "function_call_output":
            print("tools of the model:", *(tool.name for tool in options["tools"]))
            item = ResponseFunctionToolCall(
                type="function_call",
                call_id="call_1",
                name="execute_code",
                arguments=json.dumps({"code": PROGRAM}),
            )
        else:
            text = ResponseOutputText(type="output_text", text=input[-1]["output"], annotations=[])
            item = ResponseOutputMessage(
                type="message", id="msg_1", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def main() -> None:
    set_tracing_disabled(True)  # else the SDK sends its traces to OpenAI
    async with Corral(tools=[list_cities, get_temperature]) as corral:
        agent = Agent[ExecutionContext](
            name="Meteorologist",
            model=Scripted(),
            **CodeMode(corral).kwargs(instructions="You are a meteorologist.", tools=[remind]),
        )
        result = await Runner.run(agent, "How cold is it?", context=ExecutionContext(user_id="ann"))
        print(result.final_output)


asyncio.run(main())
