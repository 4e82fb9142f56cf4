import asyncio
import logging

from corral import Corral, CorralError, ToolError, tool


@tool
async def lookup(key: str) -> str:
    """Looks a key up."""
    if key == "secret":
        raise PermissionError("/srv/app/keys is not readable")
    raise ToolError(f"there is no key {key!r}")


PROGRAMS = {
    "caught in the program": """
        try { await tools.lookup({ key: "a" }) }
        catch (error) { return [error instanceof Error, error.name, error.code, error.message] }""",
    "not caught": 'const key = "a";\nawait tools.lookup({ key });',
    "a tool's own failure": """
        try { await tools.lookup({ key: "secret" }) }
        catch (error) { return error.message.replace(/id \\w+/, "id …") }""",
    "a program's own error": "null.length",
    "a syntax error": "const a = 1;\nconst b = ;",
}


async def main() -> None:
    async with Corral(tools=[lookup], check=False) as corral:
        for title, program in PROGRAMS.items():
            result = await corral.execute(program)
            try:
                print(f"{title}: {result.raise_for_error().value}")
            except CorralError as error:
                print(f"{title}: {result.status}, {error.code}, {type(error).__name__}({error})")


logging.disable(logging.CRITICAL)  # the log would show the details of the failure
asyncio.run(main())
