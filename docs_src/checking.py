from typing import Literal

from pydantic import BaseModel

from corral import Corral, tool


class Ticket(BaseModel):
    number: int
    title: str
    state: Literal["open", "closed"]


@tool(namespace="tickets")
async def find(state: Literal["open", "closed"] = "open", limit: int = 10) -> list[Ticket]:
    """Finds tickets."""
    return [Ticket(number=7, title="No heat", state=state)]


@tool
async def send_mail(to: str, text: str) -> None:
    """Sends a mail."""


PROGRAM = """
await tools.send_mail({ to: "ann@example.org", text: "I will look." });
const tickets = await tools.tickets.find({ state: "opened" });
return tickets.map((each) => each.titel);
"""

with Corral(tools=[find, send_mail]) as corral:
    found = corral.sync.check(PROGRAM)
    print(found.passed, [each.line for each in found.diagnostics])
    result = corral.sync.execute(PROGRAM, check="required")
    print(result.model_text())
