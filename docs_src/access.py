import asyncio

from corral import ApprovalRequest, Corral, ExecutionContext, tool
from corral.errors import ApprovalDenied

SENT: list[str] = []


@tool(scopes={"mail:read"}, read_only=True)
async def inbox() -> list[str]:
    """Subjects of new mail."""
    return ["Invoice 7", "Lunch?"]


@tool(any_scope={"mail:send", "mail:admin"}, needs_approval=True, rate_limit="2/minute")
async def send(to: str, text: str) -> str:
    """Sends a mail."""
    SENT.append(text)
    return f"sent to {to}"


async def approve(request: ApprovalRequest) -> bool:
    if request.input["to"].endswith("@example.com"):
        return True
    raise ApprovalDenied("only to example.com")


PROGRAMS = [
    "return (await tools.inbox()).length",
    "return await tools.send({ to: 'ann@example.com', text: 'Yes.' })",
    "return await tools.send({ to: 'eve@example.org', text: 'No.' })",
    """
    try {
      return await tools.send({ to: 'ann@example.com', text: 'And one more.' });
    } catch (error) {
      return [error.code, Math.ceil(error.retryAfterSeconds)];
    }
    """,
]


async def main() -> None:
    reader = ExecutionContext(user_id="rob", organization_id="acme", scopes={"mail:read"})
    writer = ExecutionContext(user_id="ann", organization_id="acme", scopes={"mail"})
    implied = {"mail": {"mail:read", "mail:send"}}
    async with Corral(tools=[inbox, send], approve=approve, implied_scopes=implied) as corral:
        for context, program in [(reader, PROGRAMS[0]), (reader, PROGRAMS[1]), *((writer, each) for each in PROGRAMS)]:
            result = await corral.execute(program, context=context)
            shown = result.value if result.error is None else f"{result.status}: {result.error.message}"
            print(f"{context.user_id}: {shown}")


asyncio.run(main())
print(SENT)
