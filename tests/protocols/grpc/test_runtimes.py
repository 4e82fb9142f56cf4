"""Programs in plain Deno, Node and Python that call tools over gRPC by corral's own runtimes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionContext, Limits, tool
from corral.protocols.grpc.bridge import GrpcBridge
from corral.types import Language
from tests.bridges.http.engines import ENGINES
from tests.bridges.http.test_clients import GOOD_TOKENS, CountedTokens

pytestmark = pytest.mark.anyio

TYPESCRIPT = """
import { connectFromEnvironment } from "./runtime.mjs";
const { tools } = connectFromEnvironment();
while ((await tools.issued()) < ENOUGH) await tools.nap();
for await (const number of tools.numbers()) if (number === 2) break;
await tools.left();
const nobody = await tools.nix().catch((error) => [error.name, error.code]);
console.log(JSON.stringify([nobody, await Promise.all([1, 2, 3].map((n) => tools.double({ n })))]));
""".replace("ENOUGH", str(2 * GOOD_TOKENS))
PYTHON = """
import asyncio, json
from runtime import CorralError, connect_from_environment

async def main():
    async with connect_from_environment() as connection:
        tools = connection.tools
        while await tools.issued() < ENOUGH:
            await tools.nap()
        async for number in tools.numbers():
            if number == 2:
                break
        await tools.left()
        try:
            await tools.nix()
        except CorralError as error:
            nobody = [type(error).__name__, error.code]
        print(json.dumps([nobody, await asyncio.gather(*(tools.double(n=n) for n in [1, 2, 3]))]))

asyncio.run(main())
""".replace("ENOUGH", str(2 * GOOD_TOKENS))
COMMANDS: Mapping[str, tuple[Language, list[str]]] = {
    "deno": ("typescript", [each.replace("CORRAL_TEST", "CORRAL_URL,CORRAL_TOKEN") for each in ENGINES["deno"]]),
    "node": ("typescript", ENGINES["node"]),
    "python": ("python", [sys.executable, "-W", "error"]),
    "bare": ("python", [sys.executable, "-I", "-S"]),
}


async def test_programs_outlive_their_tokens_leave_streams_and_end_by_themselves(tmp_path: Path) -> None:
    counted = CountedTokens()
    left = {name: anyio.Event() for name in COMMANDS}
    bridge = GrpcBridge()

    @tool
    async def issued(*, context: ExecutionContext) -> int:
        """Tokens so far."""
        return len(counted.issued[context.user_id])

    @tool
    async def nap() -> None:
        """Takes a while."""
        await anyio.sleep(0.02)

    @tool
    async def double(n: int) -> int:
        """Doubles."""
        return 2 * n

    @tool(name="left")
    async def was_left(*, context: ExecutionContext) -> None:
        """Returns once the caller's stream is closed."""
        await left[context.user_id].wait()

    @tool(stream=True)
    async def numbers(*, context: ExecutionContext) -> AsyncIterator[int]:
        """Numbers without an end."""
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            left[context.user_id].set()

    found: dict[str, subprocess.CompletedProcess[bytes]] = {}
    limits = Limits(calls=100_000)
    tools: list[Any] = [issued, nap, double, was_left, numbers]
    async with Corral(tools, bridge=["pipe", bridge], tokens=counted, limits=limits, check=False) as corral:

        async def run(name: str) -> None:
            language, command = COMMANDS[name]
            folder, suffix = tmp_path / name, "mjs" if language == "typescript" else "py"
            folder.mkdir()
            (folder / f"runtime.{suffix}").write_text(bridge.guest_runtime(language), encoding="utf-8")
            (folder / f"program.{suffix}").write_text(TYPESCRIPT if suffix == "mjs" else PYTHON, encoding="utf-8")
            with corral.remote.grant(ExecutionContext(user_id=name)) as execution:
                env = {"CORRAL_URL": f"http://{bridge.address}", "CORRAL_TOKEN": execution.token()}
                env |= {"DENO_DIR": str(folder), "PATH": os.defpath}
                program = [*command, f"program.{suffix}"]
                if name == "bare":  # without the folder of the program, nor that of installed packages
                    program = [*command, "-c", f"import sys; sys.path.append('.')\n{PYTHON}"]
                found[name] = await anyio.run_process(program, cwd=folder, env=env, check=False)

        async with anyio.create_task_group() as tasks:
            for name in COMMANDS:
                tasks.start_soon(run, name)
    bare = found.pop("bare")
    assert bare.stderr.decode().splitlines()[-1] == (
        "ImportError: calls over gRPC need grpcio where the program runs: pip install grpcio there, or use ConnectBridge"
    )
    for name, done in found.items():
        assert (done.returncode, done.stderr) == (0, b""), (name, done.stderr.decode())
        assert json.loads(done.stdout) == [["ToolNotFound", "tool_not_found"], [2, 4, 6]]
        assert len(counted.issued[name]) >= 2 * GOOD_TOKENS
