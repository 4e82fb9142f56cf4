import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain.tools import ToolException, ToolRuntime, tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from corral import ExecutionContext
from corral.integrations.langchain import CodeMode


@dataclass
class Customer:
    name: str
    orders: dict[int, str]


@tool
def list_orders(runtime: ToolRuntime[Customer, Any]) -> list[int]:
    """The numbers of the customer's orders."""
    return list(runtime.context.orders)


@tool
async def get_status(order: int, runtime: ToolRuntime[Customer, Any]) -> str:
    """Where an order is."""
    if order not in runtime.context.orders:
        raise ToolException(f"there is no order {order}; list_orders gives all")
    return runtime.context.orders[order]


WRONG = "return await tools.get_status({ id: 7 })"
RIGHT = """
const orders = await tools.list_orders();
return await Promise.all(orders.map(async (order) => [order, await tools.get_status({ order })]));
"""


class Script(BaseChatModel):  # in place of a model
    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        results = len(messages) // 2 - 1  # results of programs
        if results > 0:
            print(messages[-1].text, end="\n\n")
        if results < 2:
            call = {"name": "execute_code", "args": {"code": RIGHT if results else WRONG}, "id": f"call_{results}"}
            message = AIMessage("", tool_calls=[call])
        else:
            message = AIMessage("Order 7 is in Bergen, order 9 is on its way.")
        return ChatResult(generations=[ChatGeneration(message=message)])


def context_of(runtime: ToolRuntime[Customer, Any]) -> ExecutionContext:
    return ExecutionContext(user_id=runtime.context.name)


async def main() -> None:
    agent: Any = create_agent(
        Script(),
        [list_orders, get_status],
        system_prompt="You answer questions about orders.",
        middleware=[CodeMode(context=context_of)],
        context_schema=Customer,
    )
    result = await agent.ainvoke(
        {"messages": [{"role": "user", "content": "Where are my orders?"}]},
        context=Customer("ada", {7: "Bergen", 9: "on its way"}),
    )
    print(result["messages"][-1].text)


asyncio.run(main())
