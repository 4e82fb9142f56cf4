"""`corral mcp` in front of real servers of other people's, with over 200 tools in all."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.terminal import CORRAL
from tests.integrations.mcp.serving import run
from tests.integrations.mcp.upstreams import NAMES, TASK, prepared
from tests.processes import assert_ending, descendants

pytestmark = pytest.mark.anyio

_PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("upstreams"))


def counted(line: str) -> tuple[int, int]:
    """The tokens of its own list, and of lists with each tool, as they are printed at the start."""
    found = re.search(r"^2\d\d tools .*: as 3 tools of ([\d,]+) tokens, instead of ([\d,]+)$", line, re.MULTILINE)
    assert found, line
    own, each = (int(number.replace(",", "")) for number in found.groups())
    return own, each


async def do_the_task(client: Client, folder: Path) -> None:
    tools = (await client.list_tools()).tools
    assert len(tools) == 3
    description = tools[0].description or ""
    assert re.search(r"2\d\d tools", description)
    for name in NAMES:
        assert f"{name}: " in description
    heard: list[str | None] = []

    async def hear(_: float, __: float | None, message: str | None) -> None:
        heard.append(message)

    result = await run(client, f"const FOLDER = {json.dumps(str(folder))};\n{TASK}", progress_callback=hear)
    assert not result.is_error, result.content
    found = result.structured_content["value"]
    assert found["report"] == "The sum of 2 and 3 is 5."
    assert found["commits"] == 1
    assert "gitlab.approve_merge_request" in found["found"]
    [_, image] = result.content
    assert image.type == "image"
    assert {call["name"].partition(".")[0] for call in result.structured_content["tool_calls"]} >= {*NAMES} - {"gitlab"}
    assert any((message or "").startswith("files.write_file {") for message in heard)


async def test_one_call_does_a_task_of_many_steps(config: Path) -> None:
    before = set(descendants())
    arguments = ["mcp", "--mcp-config", str(config), "--approve", "all"]
    with config.with_name("said.txt").open("w+") as said:
        async with Client(stdio_client(StdioServerParameters(command=CORRAL, args=arguments), said)) as client:
            assert client.protocol_version == "2026-07-28"
            await do_the_task(client, config.parent)
            started = set(descendants()) - before
            assert len(started) > len(NAMES)
        assert_ending(started)
        said.seek(0)
        own, each = counted(said.read())
    assert own < 4_000
    assert each > 60_000


@contextmanager
def serving(config: Path) -> Generator[tuple[str, subprocess.Popen[str]]]:
    command = [CORRAL, "mcp", "--mcp-config", str(config), "--approve", "all", "--http", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"tools at (http://127\.0\.0\.1:\d+/mcp)", line):
                    yield found[1], process
                    return
        finally:
            if process.poll() is None:
                process.kill()


async def refused_elsewhere(url: str) -> None:
    """Requests under another name, or from a page of another site."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx.AsyncClient(headers={"accept": "application/json, text/event-stream"}) as http:
        for headers, status in (({"host": "evil.example"}, 421), ({"origin": "http://evil.example"}, 403)):
            assert (await http.post(url, json=hello, headers=headers)).status_code == status


async def test_it_does_so_over_http_for_a_client_of_the_handshake_era(config: Path) -> None:
    with serving(config) as (url, process):
        async with Client(url, mode="legacy") as client:
            await do_the_task(client, config.parent)
            await refused_elsewhere(url)
            started = set(descendants(process.pid))
            assert len(started) > len(NAMES)
            process.send_signal(signal.SIGTERM)
            assert process.wait(_PATIENCE_SECONDS) == 0
        assert_ending(started)
