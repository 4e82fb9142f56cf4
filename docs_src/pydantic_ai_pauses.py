from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from corral import Corral, tool
from corral.integrations.pydantic_ai import CodeMode
from corral.ledger import MemoryLedger

PROGRAM = """
const paid = await Promise.allSettled([1, 2].map((order) => tools.refund({ order })));
return paid.map((each) => each.value ?? each.reason.message);
"""


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds an order."""
    return f"order {order} is refunded"


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # in place of a model
    part = messages[-1].parts[0]
    if isinstance(part, ToolReturnPart):
        return ModelResponse([TextPart(part.model_response_str(wrap_if_error=False))])
    return ModelResponse([ToolCallPart("execute_code", {"code": PROGRAM})])


ledger = MemoryLedger()  # or "runs.db", so that programs survive the process
agent = Agent(
    FunctionModel(script),
    capabilities=[CodeMode(Corral([refund], ledger=ledger))],
    output_type=[str, DeferredToolRequests],
)
paused = agent.run_sync("Refund both orders.")
assert isinstance(paused.output, DeferredToolRequests)
[call] = paused.output.approvals
metadata = paused.output.metadata[call.tool_call_id]
for each in metadata["calls"]:
    print(each["sequence"], each["tool"], each["input"])

# Days later, with the stored messages:
one_by_one = {**metadata, "decisions": {"1": True, "2": "it was delivered"}}
results = paused.output.build_results(
    approvals={call.tool_call_id: True},  # False or ToolDenied("why") denies all of them
    metadata={call.tool_call_id: one_by_one},  # paused.output.metadata decides the same about all
)
answer = agent.run_sync(message_history=paused.all_messages(), deferred_tool_results=results)
print(answer.output)
