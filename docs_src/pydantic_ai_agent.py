import asyncio
from dataclasses import dataclass

from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from corral import Corral, ExecutionContext, tools_from
from corral.integrations.pydantic_ai import CodeMode


@dataclass
class Deps:
    customer: str
    orders: dict[int, str]


def list_orders(ctx: RunContext[Deps]) -> list[int]:
    """The numbers of the customer's orders."""
    return list(ctx.deps.orders)


async def get_status(ctx: RunContext[Deps], order: int) -> str:
    """Where an order is.

    Args:
        order: Its number.
    """
    if order not in ctx.deps.orders:
        raise ModelRetry(f"there is no order {order}; list_orders gives all")
    return ctx.deps.orders[order]


WRONG = "return await tools.get_status({ id: 7 })"
RIGHT = """
const orders = await tools.list_orders();
return await Promise.all(orders.map(async (order) => [order, await tools.get_status({ order })]));
"""


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # in place of a model
    part = messages[-1].parts[0]
    if isinstance(part, ToolReturnPart):
        print(part.model_response_str(wrap_if_error=False), end="\n\n")
    if len(messages) < 5:
        return ModelResponse([ToolCallPart("execute_code", {"code": WRONG if len(messages) == 1 else RIGHT})])
    return ModelResponse([TextPart("Order 7 is in Bergen, order 9 is on its way.")])


def context_of(run: RunContext[Deps]) -> ExecutionContext:
    return ExecutionContext(user_id=run.deps.customer)


async def main() -> None:
    async with Corral(tools_from(Tool(list_orders), Tool(get_status)), check="required") as corral:
        agent = Agent(
            FunctionModel(script),
            deps_type=Deps,
            instructions="You answer questions about orders.",
            capabilities=[CodeMode(corral, context=context_of)],
        )
        result = await agent.run("Where are my orders?", deps=Deps("ada", {7: "Bergen", 9: "on its way"}))
        print(result.output)


asyncio.run(main())
