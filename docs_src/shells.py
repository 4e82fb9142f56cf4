import asyncio

from corral import Corral
from corral.sessions import Mount, Scratch
from corral.shells import JailedShell, ShellLimits

TOTAL = 'sum(int(line) for line in open("numbers.txt"))'


async def main() -> None:
    files = [Mount("/workspace", Scratch(bytes=10_000_000, files=500))]
    async with JailedShell(files, limits=ShellLimits(memory_mb=512)) as shell:
        await shell.files.write_text("hello.sh", "echo hello from $PWD; exit 3")
        print(await shell.run("bash hello.sh"))
        done = await shell.run("echo first; sleep 60; echo second", timeout_seconds=0.5)
        print(done.timed_out, repr(done.stdout))
        print((await shell.run("cat /etc/shadow; echo > /dev/tcp/1.1.1.1/80")).stderr)

    async with Corral() as corral, corral.session(files=files, shell=ShellLimits()) as session:
        await session.shell.run("seq 1 100 > numbers.txt", check=True)
        print((await session.execute(TOTAL, language="python")).value)


asyncio.run(main())
