from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolCall
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from corral import Corral, tool
from corral.integrations.langchain import CodeMode
from corral.ledger import MemoryLedger

PROGRAM = """
const paid = await Promise.allSettled([1, 2].map((order) => tools.refund({ order })));
return paid.map((each) => each.value ?? each.reason.message);
"""


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds an order."""
    return f"order {order} is refunded"


class Scripted(GenericFakeChatModel):  # in place of a model
    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self


call = ToolCall(name="execute_code", args={"code": PROGRAM}, id="call_1")
model = Scripted(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Done.")]))
corral = Corral([refund], ledger=MemoryLedger())  # or "runs.db", so that programs survive the process
agent: Any = create_agent(model, middleware=[CodeMode(corral)], checkpointer=InMemorySaver())
config = {"configurable": {"thread_id": "1"}}
paused = agent.invoke({"messages": [HumanMessage("Refund both orders.")]}, config)
[interrupted] = paused["__interrupt__"]
for action in interrupted.value["action_requests"]:
    print(action["name"], action["args"])

# Days later:
decisions = [{"type": "approve"}, {"type": "reject", "message": "it was delivered"}]
answer = agent.invoke(Command(resume={"decisions": decisions}), config)
print(answer["messages"][-2].content)
