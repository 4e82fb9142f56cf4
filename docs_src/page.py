import asyncio
import json

from corral import Approved, Corral, ExecutionContext, Later, tool
from corral.events import ApprovalRequested, Event


@tool(needs_approval=True)
async def refund(order: int, euros: float) -> str:
    """Refunds an order."""
    return f"refunded {euros:g} euros"


async def main() -> None:
    async with Corral(tools=[refund], approve=lambda request: Later(), approval_seconds=3600) as corral:

        async def send(event: Event) -> None:  # what a server would write to the page of this session
            data = json.loads(event.to_json())
            print(data["number"], data["type"], data.get("shown") or data.get("decision") or "")
            if isinstance(event, ApprovalRequested):  # what a click of a person would post
                [waiting] = await corral.executions.waiting()
                assert waiting.context.user_id == "ann"
                await corral.executions.settle(event.execution_id, {event.sequence: Approved()}, by="ann")

        async with corral.observe(send, session_id="page-1"):
            context = ExecutionContext(user_id="ann", session_id="page-1")
            result = await corral.execute("return await tools.refund({ order: 7, euros: 12 })", context=context)
        print(result.value, result.tool_calls[0].decision)


asyncio.run(main())
