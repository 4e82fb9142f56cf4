from corral import Corral, tool


@tool
def double(n: int) -> int:
    """Twice the number."""
    return 2 * n


with Corral(tools=[double]) as corral:
    for n in (1, 2, 3):
        print(corral.sync.execute(f"return await tools.double({{ n: {n} }})").value)
