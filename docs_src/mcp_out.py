import asyncio
from typing import Any

import mcp_types as types
from mcp import Client

from corral import Corral, tool
from corral.integrations.mcp import ask_client, mcp_server

BALANCES = {"ada": 120, "bob": 15, "eve": 0}


@tool(read_only=True)
async def get_balance(account: str) -> int:
    """What is in an account, in euros."""
    return BALANCES[account]


@tool(needs_approval=True)
async def transfer(source: str, target: str, euros: int) -> str:
    """Moves money from one account to another."""
    BALANCES[source] -= euros
    BALANCES[target] += euros
    return "done"


PROGRAM = """
const accounts = ["ada", "bob", "eve"];
const balances = [];
for (const account of accounts) balances.push(await tools.get_balance({ account }));
console.log(`${balances.length} accounts`);
const richest = accounts[balances.indexOf(Math.max(...balances))];
await tools.transfer({ source: richest, target: "eve", euros: 20 });
return { richest, eve: await tools.get_balance({ account: "eve" }) };
"""


async def ask(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
    print("asked:", params.message)
    return types.ElicitResult(action="accept", content={"approve": True})


async def log(params: types.LoggingMessageNotificationParams) -> None:
    print("log:", params.level, params.data)


async def show(progress: float, total: float | None, message: str | None) -> None:
    if message is not None and not message.endswith(" ms"):  # calls that begin, and those that fail
        print("progress:", message)


async def main() -> None:
    async with Corral(tools=[get_balance, transfer], approve=ask_client) as corral:
        server = mcp_server(corral, name="bank")
        async with Client(server, elicitation_callback=ask, logging_callback=log, log_level="info") as client:
            print([tool.name for tool in (await client.list_tools()).tools])
            result: Any = await client.call_tool("execute_code", {"code": PROGRAM}, progress_callback=show)
            print(result.content[0].text)
            print(result.structured_content["value"], result.is_error)


asyncio.run(main())
