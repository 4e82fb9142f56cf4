"""`corral mcp` as a client of MCP meets it: a process whose standard output has nothing but the protocol."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.terminal import CORRAL, Project
from tests.processes import assert_ending, descendants

TOOLS = """
import subprocess
import sys
from pathlib import Path

import anyio

from corral import tool

print("an import prints")


@tool
def chatter() -> str:
    \"\"\"Prints, and reads what is not its own.\"\"\"
    print("a tool prints")
    subprocess.run(["sh", "-c", "echo a process prints; cat"], check=True)
    return sys.stdin.read()


@tool(needs_approval=True)
async def pay(euros: int) -> int:
    return euros


@tool
async def hold() -> None:
    Path("started").write_text("hold")
    await anyio.sleep_forever()
"""
PATIENCE_SECONDS = 20


@pytest.fixture
def project(project: Project) -> Project:
    project.write("app/more.py", TOOLS)
    return project


@pytest.mark.anyio
async def test_only_the_protocol_is_on_standard_output_and_a_dead_server_harms_nobody(project: Project) -> None:
    config = project.write("servers.json", json.dumps({"mcpServers": {"gone": {"command": "/nowhere/server"}}}))
    arguments = ["mcp", "--tools", "app.more", "--mcp-config", config, "--user", "ada", "--tools", "app.tools:who"]

    async def yes(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"approve": "euros" in params.message})

    parameters = StdioServerParameters(command=CORRAL, args=arguments, cwd=project.directory)
    with Path(project.directory, "said.txt").open("w+") as said:
        async with Client(stdio_client(parameters, said), mode="legacy", elicitation_callback=yes) as client:
            code = "return [await tools.chatter(), await tools.pay({ euros: 3 }), (await tools.who())[0]]"
            result = await client.call_tool("execute_code", {"code": code})
            assert result.structured_content["value"] == ["", 3, "ada"]
            missing = await client.call_tool("execute_code", {"code": "return await tools.gone.anything()"})
            assert "gone" in missing.structured_content["error"]["message"]
        said.seek(0)
        lines = said.read().splitlines()
    assert {"an import prints", "a tool prints", "a process prints"} <= set(lines)
    assert any("gone" in line for line in lines)
    assert any(line.startswith("4 tools for a client at standard input: as 3 tools of") for line in lines)


class Wire:
    """A running `corral mcp`, by lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@pytest.mark.parametrize("how", ["SIGINT", "end of input"])
def test_it_ends_soon_while_a_program_runs_and_leaves_nothing(project: Project, how: str) -> None:
    started = project.directory / "started"
    os.mkfifo(started)
    with subprocess.Popen(
        [CORRAL, "mcp", "--tools", "app.more"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=project.directory,
    ) as process:
        try:
            wire = Wire(process)
            hello = {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }
            wire.send(id=1, method="initialize", params=hello)
            assert wire.receive()["result"]["protocolVersion"] == "2025-06-18"
            wire.send(method="notifications/initialized")
            call = {"name": "execute_code", "arguments": {"code": "await tools.hold()"}}
            wire.send(id=2, method="tools/call", params=call)
            assert started.read_text() == "hold"
            children = list(descendants(process.pid))
            assert children
            since = time.monotonic()
            if how == "SIGINT":
                process.send_signal(signal.SIGINT)
            else:
                assert process.stdin is not None
                process.stdin.close()
                process.stdin = None
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
    assert process.returncode == 0, err
    assert time.monotonic() - since < 10
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
    assert "Traceback" not in err
    assert_ending(children)


def test_lists_are_counted(project: Project) -> None:
    done = project.corral("mcp", "--tools", "app.tools", "--list")
    assert (done.returncode, done.stderr) == (0, "")
    own, each, here = (line.split() for line in done.stdout.splitlines())
    assert (own[:3], own[-1]) == (["this", "server", "3"], "tokens")
    assert each[-4:] == here[-4:]
    assert here[:2] == ["--tools", "8"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "there are no tools: --tools PLACE or --mcp-config FILE says where they are"),
        (["--mcp-config", "missing.json"], "missing.json cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(project: Project, arguments: list[str], error: str) -> None:
    done = project.corral("mcp", *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {error}\n")


def test_without_the_extra_it_says_which(project: Project) -> None:
    script = "import sys; sys.modules['mcp'] = None; sys.argv[:] = ['corral', 'mcp', '--tools', 'app.tools']\n"
    script += "from corral.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=project.directory, capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: corral.integrations.mcp needs the module mcp: pip install 'corral[mcp]'\n"
