import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, FunctionResponse, GenerateContentResponseUsageMetadata, Part

from corral import Corral, tool
from corral.integrations.google_adk import CodeMode
from corral.ledger import MemoryLedger

PROGRAM = """
const paid = await Promise.allSettled([1, 2].map((order) => tools.refund({ order })));
return paid.map((each) => each.value ?? each.reason.message);
"""


@tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds an order."""
    return f"order {order} is refunded"


class Scripted(BaseLlm):
    """Stands in for a model: writes a program, and then answers with its result."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse]:
        last = (llm_request.contents[-1].parts or [])[-1]
        part = Part.from_function_call(name="execute_code", args={"code": PROGRAM})
        if last.function_response is not None:
            part = Part(text=str((last.function_response.response or {}).get("result")))
        usage = GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=1)
        yield LlmResponse(content=Content(role="model", parts=[part]), usage_metadata=usage)


async def main() -> None:
    async with Corral([refund], ledger=MemoryLedger()) as corral:  # or "runs.db", so that programs survive the process
        agent = LlmAgent(name="shop", model=Scripted(model="scripted"), **CodeMode(corral).kwargs())
        async with InMemoryRunner(agent=agent) as runner:
            session = await runner.session_service.create_session(app_name=runner.app_name, user_id="ann")

            async def run(part: Part) -> list[Part]:
                message = Content(role="user", parts=[part])
                events = runner.run_async(user_id="ann", session_id=session.id, new_message=message)
                return [part async for event in events for part in (event.content and event.content.parts) or []]

            parts = await run(Part(text="Refund both orders."))
            [asked] = [part.function_call for part in parts if part.function_call and "confirmation" in str(part)]
            payload = (asked.args or {})["toolConfirmation"]["payload"]
            for call in payload["calls"]:
                print(call["sequence"], call["tool"], call["input"])

            # Days later:
            payload["decisions"] = {"1": True, "2": "it was delivered"}
            answer = {"confirmed": True, "payload": payload}
            parts = await run(Part(function_response=FunctionResponse(id=asked.id, name=asked.name, response=answer)))
            print(parts[-1].text)


asyncio.run(main())
