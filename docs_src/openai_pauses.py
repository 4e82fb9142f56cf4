import asyncio
import json
from typing import Any

import httpx2
from openai import AsyncOpenAI
from openai.types.responses import Response

from corral import Approved, Corral, Denied, tool
from corral.integrations.openai import CodeMode
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
    """Stands in for the API: the model writes a program, and then answers with its result."""
    last = json.loads(request.content)["input"][-1]
    arguments = json.dumps({"code": PROGRAM})
    item: dict[str, Any] = {"type": "function_call", "call_id": "c", "name": "execute_code", "arguments": arguments}
    if last.get("type") == "function_call_output":
        text: dict[str, Any] = {"type": "output_text", "text": last["output"], "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    response = {"id": "resp_1", "object": "response", "created_at": 0, "model": "scripted", "output": [item]}
    settings: dict[str, Any] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return httpx2.Response(200, json={**response, **settings})


async def main() -> None:
    transport = httpx2.MockTransport(scripted)
    async with (
        Corral([refund], ledger=MemoryLedger()) as corral,  # or "runs.db", so that programs survive the process
        AsyncOpenAI(api_key="none", http_client=httpx2.AsyncClient(transport=transport)) as client,
    ):
        mode = CodeMode(corral)
        input: list[Any] = [{"role": "user", "content": "Refund both orders."}]
        response = await client.responses.create(model="scripted", input=input, **mode.kwargs())
        [output] = await mode.outputs(response)
        print(str(output["output"]).partition(";")[0])
        stored = response.model_dump_json()

        # Days later:
        [waiting] = await corral.executions.waiting()
        decisions = {1: Approved(by="ann"), 2: Denied("it was delivered", by="ann")}
        await mode.resume(waiting.execution_id, decisions, waiting.context)
        response = Response.model_validate_json(stored)
        input += [*response.output, *await mode.outputs(response)]
        response = await client.responses.create(model="scripted", input=input, **mode.kwargs())
        print(response.output_text)


asyncio.run(main())
