import asyncio
import os
import socket
import sys
import tempfile
from pathlib import Path

import uvicorn

from corral import Corral, ExecutionContext, tool
from corral.guest import http_runtime


@tool
async def population(city: str) -> int:
    """Inhabitants of a city."""
    return {"Bergen": 294_000, "Oslo": 717_000}[city]


# What runs elsewhere: any Python from 3.11 on that can reach the URL. It needs no packages.
PROGRAM = """
import asyncio
from corral_tools import InvalidArguments, connect_from_environment

async def main():
    async with connect_from_environment() as connection:
        tools = connection.tools
        counts = await asyncio.gather(*(tools.population(city=city) for city in ("Bergen", "Oslo")))
        print(sum(counts))
        try:
            await tools.population(town="Oslo")
        except InvalidArguments as error:
            print(error.code, "-", error)

asyncio.run(main())
"""


async def run_program(folder: Path, url: str, token: str) -> str:
    (folder / "corral_tools.py").write_text(http_runtime("python"))  # or what GET /corral_tools.py gives
    (folder / "program.py").write_text(PROGRAM)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "program.py"),
        cwd=folder,
        env={**os.environ, "CORRAL_URL": url, "CORRAL_TOKEN": token},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return output.decode().rstrip()


async def main() -> None:
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # who connects before the server has started waits
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"

    corral = Corral(tools=[population])
    server = uvicorn.Server(uvicorn.Config(corral.remote.asgi_app(), log_level="warning"))
    serving = asyncio.create_task(server.serve([listener]))

    with tempfile.TemporaryDirectory() as folder, corral.remote.grant(ExecutionContext(user_id="ada")) as execution:
        print(await run_program(Path(folder), url, execution.token()))

    server.should_exit = True
    await serving
    await corral.aclose()


asyncio.run(main())
