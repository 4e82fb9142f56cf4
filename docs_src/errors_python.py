import asyncio

from corral import Corral, CorralError, ToolError, tool


@tool
async def lookup(key: str) -> str:
    """Looks a key up."""
    raise ToolError(f"there is no key {key!r}")


PROGRAMS = {
    "caught by its class": """
try:
    await tools.lookup(key="a")
except ToolError as error:
    found = [type(error).__name__, error.code, str(error)]
found
""",
    "caught as Python's own": """
try:
    await tools.lookup(kee="a")
except ValueError as error:
    found = str(error)
found
""",
    "not caught": 'key = "a"\nawait tools.lookup(key=key)',
    "not awaited": 'found = [tools.lookup(key="a")]\nlen(found[0])',
    "a program's own error": "{}['a']",
    "a syntax error": "a = 1\nb = = 2",
}


async def main() -> None:
    for engine in ("cpython", "monty"):
        print(f"--- {engine}")
        async with Corral(tools=[lookup], sandbox={"python": engine}, check=False) as corral:
            for title, program in PROGRAMS.items():
                result = await corral.execute(program, language="python")
                try:
                    print(f"{title}: {result.raise_for_error().value}")
                except CorralError as error:
                    print(f"{title}: {result.status}, {error.code}, {type(error).__name__}({error})")


asyncio.run(main())
