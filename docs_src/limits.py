import asyncio

from corral import Corral, Limits, tool


@tool
async def nap(seconds: float) -> float:
    """Waits."""
    await asyncio.sleep(seconds)
    return seconds


SMALL = Limits(wall_seconds=1, cpu_seconds=0.5, calls=2, value_bytes=1000, log_bytes=20)

PROGRAMS = [
    "while (true) {}",
    "console.log('started'); await tools.nap({ seconds: 60 })",
    "const all = []; while (true) all.push(new Array(1e6).fill(0.5))",
    "for (let i = 0; i < 3; i++) await tools.nap({ seconds: 0 })",
    "return 'x'.repeat(2000)",
    "console.log('a'.repeat(30)); return 1",
]


async def main() -> None:
    async with Corral(tools=[nap], limits=Limits(memory_mb=32)) as corral:
        for program in PROGRAMS:
            limits = None if "push" in program else SMALL
            result = await corral.execute(program, limits=limits)
            print(result.status, result.error and result.error.code, repr(result.console))
            for what in result.truncated:
                print(what)


asyncio.run(main())
