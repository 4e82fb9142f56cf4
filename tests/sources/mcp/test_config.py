"""`mcp_servers`: the JSON by which other programs are told of MCP servers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.errors import ConfigError, StartFailed
from corral.sources.mcp import mcp_servers
from tests.sources.mcp.opening import opened

pytestmark = pytest.mark.anyio


def test_servers_of_every_kind_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOSITORY", "/srv/repository")
    monkeypatch.setenv("TOKEN", "t0ken")
    monkeypatch.delenv("LEVEL", raising=False)
    file = tmp_path / "mcp.json"
    servers = {
        "git": {
            "command": "mcp-server-git",
            "args": ["-r", "${REPOSITORY}"],
            "env": {"LEVEL": "${LEVEL:-info}", "SECRET": "x-${env:TOKEN}-x"},
            "cwd": "/tmp",
        },
        "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "plain": {"url": "http://localhost/mcp"},
        "off": {"command": "nothing", "args": ["${UNSET}"], "disabled": True},
    }
    file.write_text(json.dumps({"mcpServers": servers}))
    git, web, plain = mcp_servers(file)
    assert (git.name, git.command, git.cwd) == ("git", ["mcp-server-git", "-r", "/srv/repository"], "/tmp")
    assert git.env == {"LEVEL": "info", "SECRET": "x-t0ken-x"}
    assert (web.url, web.headers) == ("https://example.com/mcp", {"Authorization": "Bearer t0ken"})
    assert (plain.url, plain.headers) == ("http://localhost/mcp", {})


@pytest.mark.parametrize(("text", "value"), [("-${EMPTY}-", "--"), ("${env:EMPTY}", ""), ("${EMPTY:-other}", "other")])
def test_a_variable_may_be_empty(text: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY", "")
    [server] = mcp_servers({"mcpServers": {"git": {"command": "git", "args": [text]}}})
    assert server.command == ["git", value]


def test_a_mapping_and_the_key_of_vs_code_do_too() -> None:
    [server] = mcp_servers({"servers": {"git": {"type": "stdio", "command": "mcp-server-git"}}, "inputs": []})
    assert server.command == ["mcp-server-git"]


def test_what_is_not_used_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    mcp_servers({"mcpServers": {"git": {"command": "a", "autoApprove": [], "headers": {}}}})
    assert "the configuration of MCP servers: mcpServers.git: ignored: autoApprove, headers" in caplog.text


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ([], "must be an object, not a list"),
        ({}, "has neither mcpServers nor servers"),
        ({"mcpServers": []}, ": mcpServers must be an object, not a list"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(config: Any, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=problem) as raised:
        mcp_servers(str(file))
    assert str(raised.value).startswith(str(file))


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"mcpServers": {"a": "b"}}, ": mcpServers.a must be an object, not a string"),
        ({"mcpServers": {"a": {}}}, ": mcpServers.a has no url"),
        ({"mcpServers": {"a": {"type": "stdio"}}}, ": mcpServers.a has no command"),
        ({"mcpServers": {"a": {"command": 1}}}, ": mcpServers.a.command must be a string, not a number"),
        ({"mcpServers": {"a": {"command": "b", "args": "c"}}}, ": mcpServers.a.args must be a list, not a string"),
        (
            {"mcpServers": {"a": {"command": "b", "args": ["c", None]}}},
            r": mcpServers.a.args\[1\] must be a string, not null",
        ),
        (
            {"mcpServers": {"a": {"command": "b", "env": {"C": True}}}},
            ": mcpServers.a.env.C must be a string, not true or",
        ),
        ({"mcpServers": {"a": {"command": "b", "disabled": "no"}}}, ": mcpServers.a.disabled must be true or false"),
        (
            {"mcpServers": {"a": {"type": "sse", "url": "http://a"}}},
            ": mcpServers.a.type is sse, which Corral does not",
        ),
        ({"mcpServers": {"a": {"type": "ws", "url": "ws://a"}}}, ": mcpServers.a.type must be stdio or http"),
        (
            {"mcpServers": {"a": {"url": "http://[x"}}},
            ": mcpServers.a is wrong: .*url has an invalid host or port",
        ),
        ({"mcpServers": {"a": {"url": "localhost"}}}, ": mcpServers.a is wrong: .*url must begin with http"),
        ({"mcpServers": {"__a": {"command": "b"}}}, ": mcpServers.__a is wrong: the namespace '__a' begins with __"),
        ({"mcpServers": {"a": {"command": "${UNSET}"}}}, ": mcpServers.a.command needs the environment variable UNSET"),
        ({"mcpServers": {"a": {"command": "${input:key}"}}}, r": mcpServers.a.command has \$\{input:key\}; only"),
    ],
)
async def test_a_server_that_is_wrong_costs_itself_only(
    config: Any, problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {**config["mcpServers"], "good": {"command": "good"}}}))
    wrong, good = mcp_servers(str(file))
    assert good.command == ["good"]
    assert re.search(f"{re.escape(str(file))}{problem}", caplog.text)
    async with opened(wrong) as offered:
        assert re.fullmatch(f"the MCP server {wrong.name!r} is not connected{problem}.*", offered.problem or "")
    with pytest.raises(StartFailed, match="is not connected: mcpServers"):
        async with opened(replace(wrong, required=True)):
            pass


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing.json cannot be read: No such file"):
        mcp_servers(tmp_path / "missing.json")
    (tmp_path / "half.json").write_text('{"mcpServers": ')
    with pytest.raises(ConfigError, match=r"half.json is not JSON: "):
        mcp_servers(tmp_path / "half.json")
    (tmp_path / "large.json").write_text(" " * 1_000_001)
    with pytest.raises(ConfigError, match=r"large.json is larger than 1000000 bytes"):
        mcp_servers(tmp_path / "large.json")
