from dataclasses import dataclass

from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from corral.integrations.pydantic_ai import CodeMode


@dataclass
class Deps:
    orders: dict[int, str]


PROGRAM = """
const orders = await tools.list_orders();
return await Promise.all(orders.map(async (order) => [order, await tools.get_status({ order })]));
"""


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # in place of a model
    part = messages[-1].parts[0]
    if isinstance(part, ToolReturnPart):
        return ModelResponse([TextPart(part.model_response_str(wrap_if_error=False))])
    print("the model sees", [tool.name for tool in info.function_tools])
    return ModelResponse([ToolCallPart("execute_code", {"code": PROGRAM})])


agent = Agent(FunctionModel(script), deps_type=Deps, capabilities=[CodeMode(outside=["cancel_order"])])


@agent.tool
def list_orders(ctx: RunContext[Deps]) -> list[int]:
    """The numbers of the customer's orders."""
    return list(ctx.deps.orders)


@agent.tool
async def get_status(ctx: RunContext[Deps], order: int) -> str:
    """Where an order is."""
    if order not in ctx.deps.orders:
        raise ModelRetry(f"there is no order {order}; list_orders gives all")
    return ctx.deps.orders[order]


@agent.tool
async def cancel_order(ctx: RunContext[Deps], order: int) -> None:
    """Cancels an order."""
    del ctx.deps.orders[order]


answer = agent.run_sync("Where are my orders?", deps=Deps({7: "Bergen", 9: "on its way"}))
print(answer.output, f"({answer.usage.tool_calls} tool calls)")
