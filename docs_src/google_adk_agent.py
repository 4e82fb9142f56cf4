import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, GenerateContentResponseUsageMetadata, Part

from corral import Corral, ExecutionContext, tool
from corral.integrations.google_adk import CodeMode

CELSIUS = {"Bergen": 4.5, "Oslo": -2.5}
PROGRAM = """\
const cities = await tools.list_cities();
return await Promise.all(cities.map((city) => tools.get_temperature({ city })));
"""


@tool
def list_cities(*, context: ExecutionContext) -> list[str]:
    """The cities with a weather station."""
    print("called for", context.user_id)
    return sorted(CELSIUS)


@tool
async def get_temperature(city: str) -> float:
    """The temperature in a city, in °C."""
    return CELSIUS[city]


class Scripted(BaseLlm):
    """Stands in for a model: writes a program, and then answers with its result."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse]:
        [last] = llm_request.contents[-1].parts or []
        if last.function_response is None:
            part = Part.from_function_call(name="execute_code", args={"code": PROGRAM})
        else:
            part = Part(text=str(last.function_response.response))
        usage = GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=1)
        yield LlmResponse(content=Content(role="model", parts=[part]), usage_metadata=usage)


async def main() -> None:
    async with Corral(tools=[list_cities, get_temperature]) as corral:
        agent = LlmAgent(
            name="meteorologist",
            model=Scripted(model="scripted"),
            **CodeMode(corral).kwargs(instruction="You are a meteorologist. Answer in {language}."),
        )
        async with InMemoryRunner(agent=agent) as runner:
            session = await runner.session_service.create_session(
                app_name=runner.app_name, user_id="ann", state={"language": "Norwegian"}
            )
            question = Content(role="user", parts=[Part(text="How cold is it?")])
            async for event in runner.run_async(user_id="ann", session_id=session.id, new_message=question):
                for part in (event.content.parts if event.content else None) or []:
                    print(part.text or (part.function_call and part.function_call.name) or "its result")


asyncio.run(main())
