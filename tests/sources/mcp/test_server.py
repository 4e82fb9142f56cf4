"""`McpServer`: what it is made of, what of a server it offers, and servers in this process."""

from __future__ import annotations

from typing import Any

import anyio
import mcp.types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.server import MCPServer, Server
from mcp.server.mcpserver import Context
from pydantic import BaseModel

from corral import ExecutionContext, tools_from
from corral.errors import ConfigError, ToolDefinitionError, ToolError
from corral.policy import Policy
from corral.policy.flow import DataFlow
from corral.sources.mcp import McpServer, tools_of
from corral.sources.mcp import server as connection
from tests.sources.mcp.opening import opened
from tests.until import until

pytestmark = pytest.mark.anyio


def files() -> MCPServer:
    server = MCPServer("files")
    read, write = (
        types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        types.ToolAnnotations(destructive_hint=True),
    )

    @server.tool(annotations=read)
    def read_file(path: str) -> str:
        """Reads a file."""
        return path

    @server.tool(annotations=write)
    def delete_file(path: str) -> None:
        """Deletes a file."""

    @server.tool(annotations=types.ToolAnnotations(idempotent_hint=True))
    def touch(path: str) -> list[str]:
        return [path]

    return server


def only_touch(tool: types.Tool) -> bool:
    return tool.name == "touch"


async def test_hints_of_a_server_loosen_labels_only_if_it_is_trusted() -> None:
    flow = DataFlow(Policy(texts=['[[label]]\ntools = ["other"]\nuntrusted = true\n[end]']))
    for trusted, reading in ((False, (True, (), True, ())), (True, (False, (), False, ()))):
        async with opened(McpServer("files", server=files(), trusted=trusted)) as offered:
            labels = {name: flow.label(f"files.{name}", offered.tool(name)) for name in offered.names}
        assert labels["read_file"] == reading
        assert labels["delete_file"] == (True, (), True, ())
        assert labels["touch"] == (True, (), True, ())


async def test_annotations_become_what_a_tool_is_held_to() -> None:
    async with opened(McpServer("files", server=files())) as offered:
        found = {
            tool.name: (tool.namespace, tool.read_only, tool.idempotent, tool.needs_approval)
            for tool in map(offered.tool, offered.names)
        }
        assert found == {
            "read_file": ("files", True, False, False),
            "delete_file": ("files", False, False, True),
            "touch": ("files", False, True, False),
        }
        assert offered.tool("read_file").description == "Reads a file."
        assert offered.tool("touch").output_schema == {"type": "array", "items": {"type": "string"}}
        assert await offered.call("touch", path="a") == ["a"]
        assert await offered.call("delete_file", path="a") is None


@pytest.mark.parametrize(
    ("rule", "held"),
    [
        (True, [True, True, True]),
        (False, [False, False, False]),
        (only_touch, [False, False, True]),
    ],
)
async def test_the_host_decides_over_the_annotations(rule: Any, held: list[bool]) -> None:
    async with opened(McpServer("files", server=files(), needs_approval=rule)) as offered:
        assert [offered.tool(name).needs_approval for name in offered.names] == held


async def test_the_host_chooses_among_the_tools(caplog: pytest.LogCaptureFixture) -> None:
    chosen = McpServer(
        "files", server=files(), include=["read_file", "touch", "raed"], exclude=lambda t: t.name == "touch"
    )
    async with opened(chosen) as offered:
        assert offered.names == ["read_file"]
    assert "the MCP server 'files': has no tool raed" in caplog.text


async def test_scopes_rates_and_the_namespace_are_those_of_every_tool() -> None:
    server = McpServer("files", server=files(), namespace="disk", scopes={"disk"}, rate_limit="3/minute")
    async with opened(server) as offered:
        for tool in map(offered.tool, offered.names):
            assert (tool.namespace, tool.scopes) == ("disk", {"disk"})
            assert tool.rates


async def test_a_call_says_for_whom_it_is() -> None:
    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="who", input_schema={"type": "object"})])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        meta: Any = params.meta
        return types.CallToolResult(content=[types.TextContent(text=meta["example.com/user"])])

    server = Server("who", on_list_tools=list_tools, on_call_tool=call_tool)
    source = McpServer("who", server=server, meta=lambda context: {"example.com/user": context.user_id})
    async with opened(source) as offered:
        assert await offered.call("who", ExecutionContext(user_id="ada")) == "ada"


async def test_a_tool_that_asks_for_input_of_a_user_gets_none() -> None:
    server = MCPServer("asking")

    class Answer(BaseModel):
        yes: bool

    @server.tool()
    async def ask(ctx: Context) -> str:
        await ctx.elicit("Really?", Answer)
        return "asked"

    @server.tool()
    async def wait_for_input(ctx: Context) -> types.InputRequiredResult | str:
        form = types.ElicitRequestFormParams(message="Really?", requested_schema={"type": "object", "properties": {}})
        return types.InputRequiredResult(input_requests={"really": types.ElicitRequest(params=form)})

    async with opened(McpServer("asking", server=server)) as offered:
        for name in offered.names:
            with pytest.raises(ToolError):
                await offered.call(name)
        with pytest.raises(ToolError, match="'asking' asks for user input before it does wait_for_input"):
            await offered.call("wait_for_input")


async def test_a_change_of_the_tools_in_this_process_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_RELIST_PAUSE_SECONDS", 0.02)
    server = files()

    @server.tool()
    async def grow(name: str, ctx: Context) -> None:
        server.add_tool(lambda: 1, name=name)
        await ctx.notify_tools_changed()

    async with opened(McpServer("files", server=server)) as offered:
        for name in ("first", "second"):
            await offered.call("grow", name=name)
            await until(lambda name=name: offered.names[-1] == name)


async def test_it_is_opened_twice_with_a_connection_for_each() -> None:
    source = McpServer("files", server=files())
    async with opened(source) as one:
        async with opened(source) as other:
            assert await other.call("touch", path="a") == ["a"]
        assert await one.call("touch", path="a") == ["a"]
        with pytest.raises(ToolError, match="the MCP server 'files' is closed"):
            await other.call("touch", path="a")


async def test_a_call_that_is_cancelled_is_cancelled_in_this_process_too() -> None:
    server = MCPServer("slow")
    began, ended = anyio.Event(), anyio.Event()

    @server.tool()
    async def wait() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with opened(McpServer("slow", server=server)) as offered:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(offered.call, "wait")
            await began.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()


async def test_what_the_body_raises_comes_out_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with opened(McpServer("files", server=files())):
            raise KeyError("mine")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "needs exactly one of command, url and server; it has none"),
        ({"command": ["a"], "url": "http://localhost"}, "it has command and url"),
        ({"command": "mcp-server-git"}, "command takes a list of str or None, not a str"),
        ({"url": "localhost:80"}, "url must begin with http:// or https://"),
        ({"url": "http://[x"}, "url has an invalid host or port"),
        ({"url": "http://localhost:port"}, "url has an invalid host or port"),
        ({"command": ["a"], "timeout_seconds": 0}, "timeout_seconds must be positive, not 0"),
        ({"command": ["a"], "scopes": "read"}, "scopes takes a list of str"),
        ({"command": ["a"], "include": "read"}, "include takes a list of str, a function or None"),
        ({"command": ["a"], "rate_limit": "often"}, "rate_limit: "),
        ({"command": ["a"], "namespace": "__a"}, "the namespace '__a' begins with __"),
    ],
)
def test_a_wrong_setting_is_refused_when_it_is_made(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        McpServer("s", **options)


def test_it_can_be_a_key() -> None:
    server = McpServer("s", command=["a"], env={"A": "1"})
    assert {server, McpServer("s", command=["a"], env={"A": "1"})} > {server}


def test_what_may_be_secret_is_not_shown() -> None:
    shown = repr(McpServer("s", command=["a", "--key", "sk-1"], env={"KEY": "sk-2"}))
    assert "sk-" not in shown
    assert "sk-" not in repr(McpServer("s", url="http://u:sk-1@localhost/?k=sk-2", headers={"Authorization": "sk-3"}))


# --- what mcp calls a server


def test_servers_and_clients_of_mcp_are_sources() -> None:
    server = files()
    parameters = StdioServerParameters(command="/usr/bin/mcp-server-git", args=["-v"], env={"A": "1"}, cwd="/")
    found = tools_from(server, Server("low"), parameters, Client("https://example.com/mcp"), Client(server))
    assert [each.name for each in found if isinstance(each, McpServer)] == [
        "files",
        "low",
        "mcp-server-git",
        "example.com",
        "files",
    ]
    [named] = tools_of(parameters, "git")
    assert (named.namespace, named.command, named.env) == ("git", ["/usr/bin/mcp-server-git", "-v"], {"A": "1"})


def test_a_client_that_answers_servers_is_refused() -> None:
    async def answer(context: Any, params: Any) -> Any: ...

    with pytest.raises(ToolDefinitionError, match="a Client with elicitation_callback cannot be used"):
        tools_of(Client(files(), elicitation_callback=answer), None)
    with pytest.raises(ToolDefinitionError, match=r"object cannot be converted to tools; pass McpServer\(name"):
        tools_of(object(), None)
    with pytest.raises(ToolDefinitionError, match="the URL of a Client cannot be parsed"):
        tools_of(Client("http://[x"), None)
