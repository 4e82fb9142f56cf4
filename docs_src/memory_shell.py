import asyncio

from corral.shells import MemoryShell

CSV = "city,people\nBergen,294000\nOslo,717000\n"


async def main() -> None:
    async with MemoryShell() as shell:
        await shell.files.write_text("cities.csv", CSV)
        print((await shell.run("awk -F, 'NR > 1 { n += $2 } END { print n }' cities.csv")).stdout)
        print((await shell.run("git --version; cat /etc/passwd")).stderr, end="")


asyncio.run(main())
