import asyncio
import json
from typing import Any

import httpx2
from anthropic import AsyncAnthropic

from corral import Approved, Corral, Denied, tool
from corral.integrations.anthropic import CodeMode
from corral.ledger import MemoryLedger

PROGRAM = """
const paid = await Promise.allSettled([1, 2].map((order) => tools.refund({ order })));
return paid.map((each) => each.value ?? each.reason.message);
"""


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds an order."""
    return f"order {order} is refunded"


def scripted(request: httpx2.Request) -> httpx2.Response:
    """Stands in for the API: the model writes a program, and then repeats what it has read."""
    last = json.loads(request.content)["messages"][-1]["content"]
    block: dict[str, Any] = {"type": "text", "text": last if isinstance(last, str) else last[0]["content"]}
    if last == "Refund both orders.":
        block = {"type": "tool_use", "id": "toolu_1", "name": "execute_code", "input": {"code": PROGRAM}}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted"}
    stop_reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    return httpx2.Response(200, json={**message, "content": [block], "stop_reason": stop_reason, "usage": usage})


async def main() -> None:
    transport = httpx2.MockTransport(scripted)
    async with (
        Corral([refund], ledger=MemoryLedger()) as corral,  # or "runs.db", so that programs survive the process
        AsyncAnthropic(api_key="none", http_client=httpx2.AsyncClient(transport=transport)) as client,
    ):
        mode = CodeMode(corral)
        messages: list[Any] = [{"role": "user", "content": "Refund both orders."}]

        async def run() -> None:
            runner = client.beta.messages.tool_runner(
                model="scripted", max_tokens=1_000, messages=messages, **mode.kwargs()
            )
            answer = await runner.until_done()
            text = "".join(block.text for block in answer.content if block.type == "text")
            print(text.partition(";")[0].rpartition("): ")[2])
            messages.append({"role": "assistant", "content": text})

        await run()

        # Days later:
        [waiting] = await corral.executions.waiting()
        decisions = {1: Approved(by="ann"), 2: Denied("it was delivered", by="ann")}
        result = await mode.resume(waiting.execution_id, decisions, waiting.context)
        text = f"The program that was paused has ended ({waiting.execution_id}): {result.model_text()}"
        messages.append({"role": "user", "content": text})
        await run()


asyncio.run(main())
