import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, RunState, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from corral import Corral, tool
from corral.integrations.openai_agents import CodeMode
from corral.ledger import MemoryLedger

PROGRAM = """
const paid = await Promise.allSettled([1, 2].map((order) => tools.refund({ order })));
return paid.map((each) => each.value ?? each.reason.message);
"""


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds an order."""
    return f"order {order} is refunded"


class Scripted(Model):
    """Stands in for a model: writes a program, and then answers with its result."""

    async def get_response(
        self, system_instructions: str | None, input: str | list[Any], *args: Any, **options: Any
    ) -> ModelResponse:
        item: Any = ResponseFunctionToolCall(
            type="function_call", call_id="call_1", name="execute_code", arguments=json.dumps({"code": PROGRAM})
        )
        if not isinstance(input, str) and input[-1].get("type") == "function_call_output":
            text = ResponseOutputText(type="output_text", text=input[-1]["output"], annotations=[])
            item = ResponseOutputMessage(
                type="message", id="msg_1", role="assistant", status="completed", content=[text]
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def main() -> None:
    set_tracing_disabled(True)  # else the SDK sends its traces to OpenAI
    async with Corral([refund], ledger=MemoryLedger()) as corral:  # or "runs.db", so that programs survive the process
        agent = Agent[None](name="Shop", model=Scripted(), **CodeMode(corral).kwargs())
        paused = await Runner.run(agent, "Refund both orders.")
        stored = paused.to_state().to_string()

        # Days later:
        state = await RunState.from_string(agent, stored)
        for item in state.get_interruptions():
            call = json.loads(item.arguments or "")
            print(call["tool"], call["input"])
            if call["input"]["order"] == 1:
                state.approve(item)
            else:
                state.reject(item, rejection_message="it was delivered")
        result = await Runner.run(agent, state)
        print(result.final_output)


asyncio.run(main())
