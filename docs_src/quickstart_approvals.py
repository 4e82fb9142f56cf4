from corral import ApprovalRequest, Corral, tool

SENT: list[str] = []


@tool(needs_approval=True)
async def send(to: str, text: str) -> None:
    """Sends a message."""
    SENT.append(to)


def approve(request: ApprovalRequest) -> bool:
    print(f"{request.tool} {request.arguments}")
    return request.arguments["to"].endswith("@example.org")


PROGRAM = """
await tools.send({ to: "ann@example.org", text: "Yes." });
await tools.send({ to: "eve@example.com", text: "Yes." });
"""

with Corral(tools=[send], approve=approve) as corral:
    result = corral.sync.execute(PROGRAM)
    print(result.status, result.error and result.error.code, SENT)
