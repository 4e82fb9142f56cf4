"""`corral mcp` in front of real servers of other people's, with over 200 tools in all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli.terminal import CORRAL
from tests.integrations.mcp.serving import run
from tests.integrations.mcp.upstreams import NAMES, TASK, prepared
from tests.processes import assert_ending, descendants

pytestmark = pytest.mark.anyio


def counted(line: str) -> tuple[int, int]:
    """The tokens of its own list, and of lists with each tool, as they are printed at the start."""
    found = re.search(r"^2\d\d tools .*\nas 3 tools of ([\d,]+) tokens, instead of ([\d,]+)$", line, re.MULTILINE)
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


@pytest.mark.matrix("cli/test_mcp runs the command before servers of ours; here before those of others, with 200 tools")
async def test_one_call_does_a_task_of_many_steps(tmp_path: Path) -> None:
    config = prepared(tmp_path)
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
    assert own < 5_000  # a catalog of 4,000 and what is said besides
    assert each > 60_000
