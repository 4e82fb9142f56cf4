import asyncio
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from corral import Corral, ExecutionContext, ToolError, tool


class Ticket(BaseModel):
    number: int
    title: str
    state: Literal["open", "closed"]


TICKETS = [
    Ticket(number=1, title="Door sticks", state="open"),
    Ticket(number=2, title="Lamp is out", state="closed"),
]


@tool(namespace="tickets", read_only=True, timeout_seconds=20)
async def find(
    state: Literal["open", "closed"] = "open",
    limit: Annotated[int, Field(ge=1, le=100)] = 30,
) -> list[Ticket]:
    """Tickets, oldest first.

    Args:
        state: Which tickets to list.
        limit: Maximum number of tickets.
    """
    return [ticket for ticket in TICKETS if ticket.state == state][:limit]


@tool(namespace="tickets")
def close(number: int, *, context: ExecutionContext) -> str:
    """Closes a ticket."""
    if number not in {ticket.number for ticket in TICKETS}:
        raise ToolError(f"there is no ticket {number}")
    return f"closed by {context.user_id}"


PROGRAMS = [
    "return await tools.tickets.find()",
    "return await tools.tickets.close({ number: 1 })",
    "return await tools.tickets.close({ number: 9 })",
    "return await tools.tickets.find({ limit: 0, status: 'open' })",
    "return await tools.tickets.fnd()",
]


async def main() -> None:
    context = ExecutionContext(user_id="ada")
    async with Corral(tools=[find, close], check=False) as corral:
        for program in PROGRAMS:
            result = await corral.execute(program, context=context)
            print(result.value if result.error is None else f"{result.error.name}: {result.error.message}")


asyncio.run(main())
