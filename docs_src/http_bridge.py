import asyncio
import os
import socket
import tempfile
from pathlib import Path

import deno
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from corral import Corral, ExecutionContext, tool
from corral.bridges.http import HttpBridge
from corral.guest import http_runtime


@tool
async def population(city: str) -> int:
    """Inhabitants of a city."""
    return {"Bergen": 294_000, "Oslo": 717_000}[city]


# What runs elsewhere: any process that can reach the URL. Here it is plain Deno, as `node program.mjs` could be.
PROGRAM = """
import { connectFromEnvironment } from "./corral.mjs";
const { tools } = connectFromEnvironment();

try {
  const cities = ["Bergen", "Oslo"];
  const counts = await Promise.all(cities.map((city) => tools.population({ city })));
  console.log(counts.reduce((sum, count) => sum + count));
  await tools.population({ town: "Oslo" });
} catch (error) {
  console.log(error.code, "-", error.message);
}
"""


async def run_program(folder: Path, url: str, token: str) -> str:
    (folder / "corral.mjs").write_text(http_runtime())  # or what GET /corral.mjs gives
    (folder / "program.mjs").write_text(PROGRAM)
    process = await asyncio.create_subprocess_exec(
        *(deno.find_deno_bin(), "run", "--quiet", "--no-config", "--allow-net=127.0.0.1"),
        *("--allow-env=CORRAL_URL,CORRAL_TOKEN", "program.mjs"),
        cwd=folder,
        env={**os.environ, "CORRAL_URL": url, "CORRAL_TOKEN": token, "DENO_DIR": str(folder)},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return output.decode().rstrip()


async def main() -> None:
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()  # who connects before the server has started waits
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/corral"

    corral = Corral(tools=[population])
    app = Starlette(routes=[Mount("/corral", corral.remote.asgi_app(HttpBridge(url)))])
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    serving = asyncio.create_task(server.serve([listener]))

    with tempfile.TemporaryDirectory() as folder:
        with corral.remote.grant(ExecutionContext(user_id="ada")) as execution:
            token = execution.token()
            print(await run_program(Path(folder), url, token))
        print(await run_program(Path(folder), url, token))

    server.should_exit = True
    await serving
    await corral.aclose()


asyncio.run(main())
