"""Runs programs on two local nodes of Ray, in a process of its own: `python -m tests.cluster.ray_nodes EXAMPLE`.

Prints what happened, as JSON, with the output of the example.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from threading import Event
from typing import Any

import anyio
import anyio.to_thread

from corral import Corral, Limits, tool
from corral.cluster import RaySandbox
from corral.cluster.wire import split_address
from corral.errors import StartFailed
from corral.types import SandboxConfig
from tests.processes import descendants
from tests.until import until

ray: Any = import_module("ray")
cluster_utils: Any = import_module("ray.cluster_utils")


class Slow:
    """Ray whose list of nodes comes once it is `released`."""

    def __init__(self) -> None:
        self.asked, self.released = Event(), Event()

    def nodes(self) -> object:
        self.asked.set()
        self.released.wait()
        return ray.nodes()

    def __getattr__(self, name: str) -> object:
        return getattr(ray, name)


async def has_ended(address: str) -> bool:
    """True if no worker listens there any more."""
    host, port = split_address(address)
    try:
        async with await anyio.connect_tcp(host, port):
            return False
    except OSError:
        return True


async def close_while_it_looks() -> int:
    """Closes a sandbox that is about to start workers. Returns how many it has then."""
    sandbox, slow = RaySandbox(capacity=1), Slow()
    sandbox._ray = slow  # pyright: ignore[reportPrivateUsage]
    warming = asyncio.create_task(sandbox.warm(SandboxConfig(language="python")))
    await anyio.to_thread.run_sync(slow.asked.wait)
    await sandbox.aclose()
    slow.released.set()
    with suppress(StartFailed):
        await warming
    return len(sandbox._actors)  # pyright: ignore[reportPrivateUsage]


async def main() -> None:
    callers, opened = 0, asyncio.Event()

    @tool(read_only=True)
    async def hold() -> int:
        """Waits."""
        nonlocal callers
        callers += 1
        await opened.wait()
        return 7

    node = {"object_store_memory": 80_000_000, "num_cpus": 1}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(wait=False, **node)
    ray.init(address=cluster.address, log_to_driver=False)
    report: dict[str, object] = {}
    try:
        sandbox = RaySandbox(capacity=4, containment="landlock", wait_seconds=60)
        limits = Limits(wall_seconds=100, memory_mb=32)
        async with Corral([hold], sandbox=sandbox, check=False, limits=limits) as corral:

            async def execute() -> tuple[object, str]:
                result = await corral.execute("await tools.hold()", language="python")
                return result.value, result.error.code if result.error else ""

            (fleet,) = sandbox._fleets.values()  # pyright: ignore[reportPrivateUsage]
            while len(sandbox.nodes()) < 2:
                await fleet.refresh()
            before = {node.address for node in sandbox.nodes()}
            waiting = [asyncio.create_task(execute()) for _ in range(6)]
            await until(lambda: callers == 6)
            report["load"] = [node.mine for node in sandbox.nodes()]
            actor = next(iter(sandbox._actors.values()))  # pyright: ignore[reportPrivateUsage]
            ray.kill(actor, no_restart=True)
            await until(lambda: any(each.done() for each in waiting))
            opened.set()
            report["ends"] = sorted({str(await each) for each in waiting})
            while not {node.address for node in sandbox.nodes()} - before:
                await fleet.refresh()
            environment = {**os.environ, "RAY_ADDRESS": cluster.address}
            example = await anyio.run_process([sys.executable, sys.argv[1]], env=environment, stderr=None)
            report["example"] = example.stdout.decode()
            report["after"] = (await corral.execute("40 + 2", language="python")).value
            addresses = [node.address for node in sandbox.nodes()]
        for address in addresses:
            while not await has_ended(address):
                await anyio.sleep(0.01)
        report["left"] = await close_while_it_looks()
        last = RaySandbox(capacity=1)
        await last.warm(SandboxConfig(language="python"))
        ray.shutdown()
        await last.aclose()
        report["initialized"] = ray.is_initialized()
    finally:
        ray.shutdown()
        cluster.shutdown()
    await until(lambda: not descendants())
    print(json.dumps(report))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
