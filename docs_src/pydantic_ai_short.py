from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from corral import Corral, tool
from corral.integrations.pydantic_ai import CodeMode

CELSIUS = {"Bergen": 4.5, "Oslo": -2.5, "Tromsø": -6.5}
PROGRAM = """
const cities = ["Bergen", "Oslo", "Tromsø"];
const degrees = await Promise.all(cities.map((city) => tools.get_temperature({ city })));
return cities[degrees.indexOf(Math.min(...degrees))];
"""


@tool
async def get_temperature(city: str) -> float:
    """The temperature in a city, in °C."""
    return CELSIUS[city]


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # in place of a model
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("execute_code", {"code": PROGRAM})])
    return ModelResponse([TextPart("It is coldest in Tromsø.")])


agent = Agent(FunctionModel(script), capabilities=[CodeMode(Corral([get_temperature]))])
answer = agent.run_sync("Where is it coldest: Bergen, Oslo or Tromsø?")
print(answer.output, f"({answer.usage.requests} requests, {answer.usage.tool_calls} tool calls)")
