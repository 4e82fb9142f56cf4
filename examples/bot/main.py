"""A bot in a channel: it answers by programs, and posts buttons for calls that need an approval."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from corral import ApprovalRequest, Approved, Corral, Denied, ExecutionContext, tool
from corral.integrations.pydantic_ai import CodeMode

MANAGERS = {"mona"}


@dataclass
class Channel:
    """Stands in for Slack: `post` is `chat.postMessage` with blocks, `clicked` what its interactivity URL receives."""

    waiting: dict[str, asyncio.Future[Approved | Denied]] = field(
        default_factory=dict[str, "asyncio.Future[Approved | Denied]"]
    )
    posted: asyncio.Queue[str] = field(default_factory=asyncio.Queue[str])

    async def post(self, text: str, *, button: str | None = None) -> None:
        print(f"bot: {text}" + (" [Approve] [Deny]" if button else ""))
        if button:
            await self.posted.put(button)

    def clicked(self, button: str, user: str, *, approve: bool) -> str:
        """Answers a click. Only managers decide, and the first click counts."""
        decision = self.waiting.get(button)
        if user not in MANAGERS:
            return f"{user} is not a manager"
        if decision is None or decision.done():
            return "this was decided"
        decision.set_result(Approved() if approve else Denied(f"{user} denied it"))
        return f"{user} {'approved' if approve else 'denied'} it"

    async def ask(self, request: ApprovalRequest) -> Approved | Denied:
        """`Corral(approve=...)`: posts the whole input with buttons, and waits; the program's clock stands still."""
        button = f"{request.execution_id}:{request.sequence}"
        self.waiting[button] = asyncio.get_running_loop().create_future()
        await self.post(f"{request.context.user_id} wants {request.tool}: {request.shown()}", button=button)
        return await self.waiting[button]


@tool
async def late_orders() -> list[int]:
    """Numbers of the orders that are late."""
    return [1001, 1003]


@tool(needs_approval=True)
async def refund(order: int, euros: float) -> str:
    """Refunds a part of an order."""
    return f"{euros:g} EUR for order {order}"


PROGRAM = """
const done = [];
for (const order of await tools.late_orders())
  done.push(await tools.refund({ order, euros: 10 }).catch((error) => error.message));
return done.join("; ");
"""


def script(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:  # in place of a model
    part = messages[-1].parts[0]
    if isinstance(part, ToolReturnPart):
        return ModelResponse([TextPart(part.model_response_str())])
    return ModelResponse([ToolCallPart("execute_code", {"code": PROGRAM})])


async def click(channel: Channel) -> None:
    """What people do with the first and the second message."""
    first = await channel.posted.get()
    print("click:", channel.clicked(first, "rob", approve=True))
    print("click:", channel.clicked(first, "mona", approve=True))
    second = await channel.posted.get()
    print("click:", channel.clicked(second, "mona", approve=False))
    print("click:", channel.clicked(second, "mona", approve=True))


async def main() -> None:
    channel = Channel()
    async with Corral([late_orders, refund], approve=channel.ask, approval_seconds=3600) as corral:
        agent = Agent(FunctionModel(script), deps_type=ExecutionContext, capabilities=[CodeMode(corral)])
        clicks = asyncio.create_task(click(channel))
        print("rob: refund 10 EUR for each late order")
        answer = await agent.run("refund 10 EUR for each late order", deps=ExecutionContext(user_id="rob"))
        await clicks
        await channel.post(answer.output)


if __name__ == "__main__":
    asyncio.run(main())
