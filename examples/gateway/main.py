"""A gateway: several MCP servers behind one, with programs instead of single calls, scopes and approvals."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.server import MCPServer
from mcp.types import ToolAnnotations

from corral import AuditLog, Corral, ExecutionContext
from corral.audit import AuditEvent, CallbackSink
from corral.integrations.mcp import ask_client, mcp_server
from corral.sources.mcp import McpServer

tickets = MCPServer("tickets", log_level="CRITICAL")
people = MCPServer("people", log_level="CRITICAL")
OPEN = {7: "ann", 8: "rob", 9: "ann"}


@tickets.tool(annotations=ToolAnnotations(read_only_hint=True))
def list_open() -> dict[int, str]:
    """The open tickets, each with the person who has it."""
    return OPEN


@tickets.tool(annotations=ToolAnnotations(destructive_hint=True))
def reassign(ticket: int, person: str) -> str:
    """Gives a ticket to somebody else."""
    OPEN[ticket] = person
    return f"{ticket} is {person}'s"


@people.tool(annotations=ToolAnnotations(read_only_hint=True))
def absent() -> list[str]:
    """Who is absent today."""
    return ["ann"]


PROGRAM = """
const [open, absent] = await Promise.all([tools.tickets.list_open(), tools.people.absent()]);
const moved = [];
for (const [ticket, person] of Object.entries(open))
  if (absent.includes(person)) moved.push(await tools.tickets.reassign({ ticket: Number(ticket), person: "rob" }));
return moved;
"""


async def ask(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    """The client's side of an approval: its user decides."""
    print("asked:", params.message.splitlines()[0])
    return types.ElicitResult(action="accept", content={"approve": True})


async def main() -> None:
    # In a service: McpServer("git", command=["mcp-server-git"]), McpServer("tracker", url="https://tracker.example/mcp").
    servers = [McpServer("tickets", server=tickets), McpServer("people", server=people)]
    caller = ExecutionContext(user_id="mona", organization_id="acme")
    events: list[AuditEvent] = []
    audit = AuditLog(CallbackSink(events.extend))  # or a path, or the URL of a database
    async with Corral(servers, approve=ask_client, audit=audit) as corral:
        gateway = mcp_server(corral, name="gateway", context=caller)
        async with Client(gateway, elicitation_callback=ask) as client:
            print([tool.name for tool in (await client.list_tools()).tools])
            result: Any = await client.call_tool("execute_code", {"code": PROGRAM})
            print(result.structured_content["value"])
    for event in sorted(events, key=lambda each: each.sequence or 0):
        if event.kind == "call":
            print("audit:", event.user_id, event.tool, event.outcome)


if __name__ == "__main__":
    asyncio.run(main())
