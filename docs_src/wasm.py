from corral import Corral, tool


@tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


corral = Corral([add], sandbox="wasm")
result = corral.sync.execute("return await tools.add({ a: 1, b: 2 })")
print(result.value)
