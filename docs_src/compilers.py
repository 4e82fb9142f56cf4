import asyncio

from corral import Corral
from corral.compilers import CompiledProgram, Compiler


class Shouting(Compiler):
    """Compiles `SHOUT text`."""

    async def compile(self, source: str) -> CompiledProgram:
        return CompiledProgram(f"return {source.removeprefix('SHOUT ').upper()!r}")


async def main() -> None:
    async with Corral(compilers={"shout": Shouting()}) as corral:
        print((await corral.execute("SHOUT hello", compiler="shout")).value)


asyncio.run(main())
