"""`corral mcp` as a client of MCP meets it: a process whose standard output has nothing but the protocol."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.terminal import Here, Project, corral_after, without
from tests.forks import CORRAL, ForkedProcess
from tests.processes import assert_ending, descendants
from tests.sources.mcp.opening import ROGUE
from tests.until import LIMIT_SECONDS, until

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


@pytest.fixture
def project(project: Project) -> Project:
    project.write("app/more.py", TOOLS)
    return project


@pytest.mark.anyio
async def test_only_the_protocol_is_on_standard_output_and_a_dead_server_harms_nobody(project: Project) -> None:
    config = project.write("servers.json", json.dumps({"mcpServers": {"gone": {"command": "/nowhere/server"}}}))
    arguments = ["mcp", "--tools", "app.more", "--mcp-config", config, "--user", "ada", "--tools", "app.tools:who"]
    arguments += ["--calls", "4", "--env", "REGION=north", "--no-check"]

    async def yes(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"approve": "euros" in params.message})

    parameters = StdioServerParameters(command=CORRAL, args=arguments, cwd=project.directory)
    with Path(project.directory, "said.txt").open("w+") as said:
        async with Client(stdio_client(parameters, said), mode="legacy", elicitation_callback=yes) as client:
            code = "return [await tools.chatter(), await tools.pay({ euros: 3 }), (await tools.who())[0]]"
            result = await client.call_tool("execute_code", {"code": code})
            assert result.structured_content["value"] == ["", 3, "ada"]
            assert result.structured_content["checked"] is False
            assert "`process.env` has REGION." in ((await client.list_tools()).tools[0].description or "")
            more = "for (let n = 0; n < 5; n++) await tools.who()"
            exceeded = await client.call_tool("execute_code", {"code": f"console.log(process.env.REGION); {more}"})
            assert exceeded.structured_content["console"] == "north\n"
            assert (
                exceeded.structured_content["error"]["message"]
                == "the budget of 4 tool calls is used up, so tools.who was not called"
            )
            missing = await client.call_tool("execute_code", {"code": "return await tools.gone.anything()"})
            assert "gone" in missing.structured_content["error"]["message"]
        said.seek(0)
        lines = said.read().splitlines()
    assert {"an import prints", "a tool prints", "a process prints"} <= set(lines)
    assert any("gone" in line for line in lines)
    assert "4 tools for a client at standard input" in lines
    assert any(line.startswith("as 3 tools of ") for line in lines)


@pytest.mark.anyio
@pytest.mark.matrix("integrations/mcp/test_pauses.py restarts servers in one process; this kills `corral mcp`")
@pytest.mark.parametrize("ledger", ["file", "memory"])
async def test_a_program_that_asks_needs_no_process_and_outlives_a_killed_server(
    project: Project, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["mcp", "--tools", "app.more", "--no-check"]
    if ledger == "file":
        arguments += ["--ledger", str(project.directory / "runs.db")]
        monkeypatch.setenv("CORRAL_LEDGER_KEYS", "a=" + "YQ" * 21 + "Y=")
    code = "console.log('once'); return await tools.pay({ euros: 3 })"

    async def refuse(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        raise AssertionError("the questions are in results")

    @asynccontextmanager
    async def server() -> AsyncGenerator[tuple[Any, int]]:
        before = descendants(os.getpid()).keys()
        parameters = StdioServerParameters(command=CORRAL, args=arguments, cwd=project.directory, env={**os.environ})
        with Path(os.devnull).open("w") as nothing:
            transport = stdio_client(parameters, nothing)
            async with Client(transport, mode="2026-07-28", elicitation_callback=refuse) as client:
                yield client, min(descendants(os.getpid()).keys() - before)

    def answer(asked: Any) -> dict[str, Any]:
        yes = {key: types.ElicitResult(action="accept", content={"approve": True}) for key in asked.input_requests}
        return {"input_responses": yes, "request_state": asked.request_state}

    async def call(client: Any, code: str, **options: Any) -> Any:
        return await client.session.call_tool("execute_code", {"code": code}, allow_input_required=True, **options)

    async with AsyncExitStack() as stack:
        client, pid = await stack.enter_async_context(server())
        await call(client, "return 1")
        idle = len(descendants(pid))
        asked = await call(client, code)
        assert list(asked.input_requests) == ["approval-1"]
        await until(lambda: len(descendants(pid)) == idle)
        if ledger == "memory":
            result = await call(client, code, **answer(asked))
        else:
            os.kill(pid, signal.SIGKILL)
            other, _ = await stack.enter_async_context(server())
            result = await call(other, code, **answer(asked))
        assert (result.structured_content["value"], result.structured_content["console"]) == (3, "once\n")


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

    def receive_some(self) -> None:
        """The beginning of a line."""
        assert self.process.stdout is not None
        assert self.process.stdout.read(1)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()


@contextmanager
def running(project: Project, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """`corral mcp` with tools and a server."""
    upstream = {"command": sys.executable, "args": [str(ROGUE)]}
    config = project.write("servers.json", json.dumps({"mcpServers": {"rogue": upstream}}))
    command = [CORRAL, "mcp", "--tools", "app.more", "--mcp-config", config, *arguments]
    pipe = subprocess.PIPE
    with ForkedProcess(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=project.directory) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize(
    "how",
    [pytest.param("SIGTERM", marks=pytest.mark.matrix("it ends by the same code at the end of input")), "end of input"],
)
def test_it_ends_soon_while_a_program_runs_and_nobody_reads_and_leaves_nothing(project: Project, how: str) -> None:
    started = project.directory / "started"
    os.mkfifo(started)
    with running(project) as process:
        wire = Wire(process)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        wire.send(id=1, method="initialize", params=hello)
        assert wire.receive()["result"]["protocolVersion"] == "2025-06-18"
        wire.send(method="notifications/initialized")
        for code in ("await tools.hold()", "return 'more than a pipe takes'.repeat(10_000)"):
            wire.send(id=code, method="tools/call", params={"name": "execute_code", "arguments": {"code": code}})
        assert started.read_text() == "hold"
        wire.receive_some()
        children = descendants(process.pid)
        assert len(children) > 2
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            wire.close()
        assert process.wait(LIMIT_SECONDS) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert_ending(children)


def resident_mb(process: subprocess.Popen[str], field: str = "VmRSS") -> int:
    [found] = re.findall(rf"{field}:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(found) // 1_000


def test_a_line_that_is_too_long_is_refused_and_does_not_fill_the_memory(project: Project) -> None:
    def call(**arguments: str) -> str:
        return json.dumps({"name": "execute_code", "arguments": arguments})

    with running(project) as process:
        wire = Wire(process)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        wire.send(id=1, method="initialize", params=hello)
        wire.receive()
        wire.send(method="notifications/initialized")
        assert process.stdin is not None
        large = call(code="x" * 2_000_000, id="7")
        for line, number in (
            (f'{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{large}}}', 2),
            (f'{{"method":"tools/call","params":{large},"jsonrpc":"2.0","id":"b"}}', "b"),
            (f'{{"params":{large},"id":3,"method":"tools/call","jsonrpc":"2.0"}}', None),
            ("x" * 3_000_000, None),
        ):
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            answer = wire.receive()
            assert (answer["id"], answer["error"]["code"]) == (number, -32600)
            assert answer["error"]["message"] == "the message is longer than 2000000 characters"
        before = resident_mb(process)
        for _ in range(100):
            process.stdin.write("a" * 1_000_000)
        process.stdin.write("\n")
        process.stdin.flush()
        assert wire.receive()["id"] is None
        assert resident_mb(process, "VmHWM") - before < 50
        code = {"name": "execute_code", "arguments": {"code": "return 'x'.repeat(10)"}}
        wire.send(id=4, method="tools/call", params=code)
        assert wire.receive()["result"]["structuredContent"]["value"] == "x" * 10


async def refused_elsewhere(url: str) -> None:
    """Requests under another name, or from a page of another site."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx.AsyncClient(
        headers={"accept": "application/json, text/event-stream"}, timeout=LIMIT_SECONDS
    ) as http:
        for headers, status in (({"host": "evil.example"}, 421), ({"origin": "http://evil.example"}, 403)):
            assert (await http.post(url, json=hello, headers=headers)).status_code == status
        large = json.dumps({**hello, "params": {"x": "x" * 2_000_000}})
        answer = await http.post(url, content=large, headers={"content-type": "application/json"})
        assert answer.status_code == 413


@pytest.mark.matrix("serving is in the gate for `corral serve`, MCP over pipes; another pair")
@pytest.mark.anyio
async def test_over_http_it_serves_this_machine_until_it_is_ended(project: Project) -> None:
    with running(project, "--http", "--port", "0") as process:
        assert process.stderr is not None
        found = next(
            filter(None, (re.search(r"tools at (http://127\.0\.0\.1:\d+/mcp)", each) for each in process.stderr))
        )
        async with Client(found[1], mode="legacy") as client:
            result = await client.call_tool("execute_code", {"code": "return await tools.rogue.lists({})"})
            assert not result.is_error, result.content
            await refused_elsewhere(found[1])
            async with httpx.AsyncClient(base_url=found[1].removesuffix("/mcp")) as http:
                assert (await http.get("/readyz", headers={"host": "10.0.0.7"})).json() == {"status": "ok"}
            children = descendants(process.pid)
            assert children
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_SECONDS) == 0
    assert_ending(children)


def test_lists_are_counted(here: Here) -> None:
    done = here.main("mcp", "--tools", "app.tools", "--list")
    assert (done.returncode, done.stderr) == (0, "")
    own, each, place = (line.split() for line in done.stdout.splitlines())
    assert (own[:3], own[-1]) == (["this", "server", "3"], "tokens")
    assert each[-4:] == place[-4:]
    assert place[:2] == ["--tools", "9"]


def test_what_is_wrong_is_said_in_one_line(here: Here) -> None:
    for arguments, error in (
        ([], "there are no tools; pass --tools PLACE or --mcp-config FILE"),
        (["--tools", "app.tools", "--port", "9000"], "--port, --allow-host and --allow-origin require --http"),
        (["--tools", "app.tools", "--python-package", "numpy"], "--python-package applies only to Python programs"),
        (["--mcp-config", "missing.json"], "missing.json cannot be read: No such file or directory"),
        (
            ["--tools", "app.tools", "--oauth-issuer", "https://a.example"],
            "--oauth-issuer, --oauth-resource and --oauth-scope require --http",
        ),
        (
            ["--tools", "app.tools", "--http", "--oauth-scope", "a"],
            "--oauth-resource and --oauth-scope require --oauth-issuer",
        ),
    ):
        assert here.main("mcp", *arguments) == (2, "", f"error: {error}\n"), arguments


def test_without_the_extra_it_says_which(project: Project) -> None:
    done = project.python(
        corral_after(without("mcp", "corral.integrations.mcp"), "mcp", "--tools", "app.tools"), env={}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: corral.integrations.mcp needs the module mcp: pip install 'corral[mcp]'\n"
