import anyio

from corral import Corral, ExecutionContext, tool
from corral.sandboxes import DenoSandbox


@tool
def double(n: int) -> int:
    """Twice the number."""
    return 2 * n


async def main() -> None:
    async with DenoSandbox(isolation="fork") as sandbox:
        for user in ("ann", "bob"):
            async with Corral(tools=[double], sandbox=sandbox) as corral:
                context = ExecutionContext(user_id=user)
                result = await corral.execute("return await tools.double({ n: 21 })", context=context)
                print(user, result.value)


anyio.run(main)
