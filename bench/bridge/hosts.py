"""The cost of a call that arrives at another host than its execution's: `python -m bench.bridge.hosts [ROUNDS]`.

Two hosts run as processes of this machine. Each round makes an execution at one of them, and the same calls at both in
turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections import defaultdict
from statistics import median

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from corral import Corral, ExecutionContext, tool
from corral.bridges.peers import Peers

_BATCH = 64
_START_SECONDS = 120.0


@tool(read_only=True)
async def add(one: int, other: int) -> int:
    """Adds two numbers."""
    return one + other


async def serve(name: str, ports: dict[str, int]) -> None:
    """Runs one host."""
    corral = Corral([add], peers=Peers(name, {each: f"http://127.0.0.1:{port}" for each, port in ports.items()}))

    async def make(_: Request) -> JSONResponse:
        return JSONResponse(corral.remote.token(ExecutionContext(user_id="ada")))

    app = Starlette(routes=[Route("/make", make), Mount("/", corral.remote.asgi_app())])
    config = uvicorn.Config(app, host="127.0.0.1", port=ports[name], log_level="warning", access_log=False)
    await uvicorn.Server(config).serve()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


async def measure(urls: dict[str, str], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Returns the times in milliseconds, by number of calls and place."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        end = time.monotonic() + _START_SECONDS
        for url in urls.values():
            while True:
                try:
                    await http.get(f"{url}/health")
                    break
                except httpx.TransportError:
                    assert time.monotonic() < end, "a host did not start"
                    await asyncio.sleep(0.05)
        for number in range(rounds):
            headers = {"authorization": f"Bearer {(await http.get(urls['a'] + '/make')).json()}"}
            for calls in (1, _BATCH):
                places = [("own host", "a"), ("other host", "b")]
                for turn, (place, name) in enumerate(places if number % 2 else places[::-1]):
                    first = 1 + turn * calls + (calls > 1) * 2
                    batch = [
                        {"sequence": sequence, "tool": "add", "input": {"one": 1, "other": sequence}}
                        for sequence in range(first, first + calls)
                    ]
                    began = time.perf_counter()
                    answer = await http.post(urls[name] + "/calls", json={"calls": batch}, headers=headers)
                    times[f"{calls} calls", place].append((time.perf_counter() - began) * 1000)
                    assert answer.text.count("value") == calls, answer.text
    return times


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(sys.argv[2], json.loads(sys.argv[3])))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    ports = {name: free_port() for name in "ab"}
    environment = {**os.environ, "TOOL_BRIDGE_SECRET": secrets.token_hex(32)}
    command = [sys.executable, "-m", "bench.bridge.hosts", "--serve"]
    hosts = [subprocess.Popen([*command, name, json.dumps(ports)], env=environment) for name in ports]
    try:
        times = asyncio.run(measure({name: f"http://127.0.0.1:{port}" for name, port in ports.items()}, rounds))
    finally:
        for host in hosts:
            host.kill()
            host.wait()
    print(f"{rounds} rounds, load {os.getloadavg()[0]:.1f}; milliseconds")
    for (calls, place), values in times.items():
        own = times[calls, "own host"]
        more = f"{min(values) - min(own):+.2f} by the minimum, {median(values) - median(own):+.2f} by the median"
        print(f"{calls:>9}, {place:10}: minimum {min(values):.2f}, median {median(values):.2f} ({more})")


if __name__ == "__main__":
    main()
