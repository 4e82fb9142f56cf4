"""As process 1, which a host is in a container without an init, it leaves no zombie of what it has started."""

from __future__ import annotations

import os
import sys

import pytest

from tests.surroundings import NO_NAMESPACES, filtered, run_in

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces of processes"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make it without a user namespace"),
]

LEFT = """
import asyncio, os, sys
from contextlib import suppress
from pathlib import Path
from corral import Corral, CorralError, ExecutionContext
from corral.shells import LocalShell
from corral.sources.mcp import McpServer
from tests.until import until
assert os.getpid() == 1
def zombies():
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and parent == "1":
            found.append(stat.parent.name)
    return found
async def main(language, users):
    async with Corral(check=False) as corral:
        for user in range(users):
            result = await corral.execute("1 + 1", language=language, context=ExecutionContext(user_id=str(user)))
            assert result.status == "succeeded", result.error
        await until(lambda: not zombies())
    await until(lambda: not zombies())
    async with LocalShell("/tmp") as shell:
        await shell.run("sleep 100 & setsid sleep 100 & setsid sh -c 'sleep 100 & sleep 100' & exit 0")
    server = McpServer("server", command=["sh", "-c", "sleep 100 & read line"], required=True, connect_timeout_seconds=0.1)
    with suppress(CorralError):
        async with Corral(tools=[server]).connected():
            pass
    print(zombies())
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.parametrize(
    "language",
    [
        "python",
        pytest.param("typescript", marks=pytest.mark.matrix("the gate has Python, whose servers fork from the first")),
    ],
)
def test_twenty_users_and_what_commands_leave_behind_leave_no_zombie(language: str) -> None:
    program = filtered(NO_NAMESPACES) + LEFT  # in namespaces, their own process 1 takes orphans
    done = run_in("process 1", [sys.executable, "-c", program, language, "20"])
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr[-2000:]
