import asyncio
from collections.abc import Mapping
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import Any

from corral.containment import ContainmentKind
from corral.shells import RemoteProcess, RemoteShell, ShellCapabilities, StreamName

CLEAN = ("env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8")


class OwnShell(RemoteShell):
    service = "my computer"

    def __init__(self, directory: str, *prefix: str) -> None:  # such as "docker", "exec", "-i", "box"
        super().__init__()
        self.directory, self.prefix = directory, prefix

    @property
    def capabilities(self) -> ShellCapabilities:
        return ShellCapabilities(containment=ContainmentKind("own", "none"), ends_every_process=False)

    def process(self, *, stdin: bool) -> RemoteProcess:
        return OwnProcess(self, stdin=stdin)

    async def end(self, seconds: float) -> None: ...


class OwnProcess(RemoteProcess):
    def __init__(self, shell: OwnShell, *, stdin: bool) -> None:
        super().__init__(shell.service, stdin=stdin)
        self.shell, self.stdin = shell, PIPE if stdin else DEVNULL

    async def bash(self, script: str, **streams: Any) -> Any:
        prefix = (*self.shell.prefix, *CLEAN, "bash", "-c", script)
        return await asyncio.create_subprocess_exec(*prefix, cwd=self.shell.directory, **streams)

    async def start(self, command: str, env: Mapping[str, str], seconds: float) -> None:
        script = f"{self.marked(command, env)}; c=$?; {self.sweep}; exit $c"
        self.child = await self.bash(script, stdin=self.stdin, stdout=PIPE, stderr=PIPE)
        self.watching = asyncio.create_task(self.watch())

    async def watch(self) -> None:
        await asyncio.gather(self.read("stdout", self.child.stdout), self.read("stderr", self.child.stderr))
        self.finish(await self.child.wait())

    async def read(self, name: StreamName, stream: Any) -> None:
        while data := await stream.read(65536):
            await self.take(name, data)

    async def run_script(self, script: str, seconds: float) -> None:
        await (await self.bash(script)).wait()

    async def feed(self, data: bytes) -> None:
        with suppress(ConnectionError):
            self.child.stdin.write(data)
            await self.child.stdin.drain()

    async def close_stdin(self) -> None:
        if self.stdin == PIPE:
            self.child.stdin.close()

    async def free(self) -> None: ...


async def main() -> None:
    async with OwnShell(".") as shell:
        done = await shell.run("read name; echo hello $name", input="you\n")
        print(done.stdout, await shell.files.list("no-such-folder"))


if __name__ == "__main__":
    asyncio.run(main())
