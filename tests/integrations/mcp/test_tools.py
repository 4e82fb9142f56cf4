"""The tools that a client finds, and what they answer."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, MCPError

from corral import Corral, define_tool, tool
from corral.checking import Checker
from corral.checking.servers.specs import SERVERS
from corral.errors import ConfigError
from corral.integrations.mcp import mcp_server
from corral.running.for_models import ForModels
from corral.sandboxes import DenoSandbox
from tests.integrations.mcp.serving import MODES, Elicitation, make_corral, run
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

IMAGE = {"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"}


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    async with make_corral() as corral:
        yield corral


ERAS = [
    pytest.param(MODES[0], marks=pytest.mark.matrix("in today's era in the gate; here in that of the handshake")),
    MODES[1],
]


@pytest.fixture(params=ERAS)
async def client(request: pytest.FixtureRequest, corral: Corral) -> AsyncIterator[Client]:
    async with Client(mcp_server(corral), mode=request.param) as client:
        yield client


def text_of(result: types.CallToolResult) -> str:
    assert isinstance(result.content[0], types.TextContent)
    return result.content[0].text


async def test_three_tools_are_listed_and_the_first_declares_all_others(client: Client) -> None:
    runs, search, describe = (await client.list_tools()).tools
    assert [runs.name, search.name, describe.name] == ["execute_code", "search_tools", "describe_tools"]
    assert "add(input: { a: number; b: number }): Promise<number>;" in (runs.description or "")
    assert runs.input_schema["required"] == ["code"]
    assert runs.annotations == types.ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True
    )
    assert search.annotations == types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    assert len(client.instructions or "") < 300


async def test_programs_that_can_only_read_are_declared_so(warm_deno: DenoSandbox) -> None:
    async def read(input: object) -> None: ...

    server = mcp_server(
        Corral([define_tool(name="read", execute=read, read_only=True)], sandbox=warm_deno, check=False)
    )
    async with Client(server) as client:
        runs = (await client.list_tools()).tools[0]
    assert runs.annotations is not None
    assert runs.annotations.read_only_hint is True


async def test_tools_that_come_later_are_in_the_next_list() -> None:
    @tool
    def late() -> None:
        """Comes late."""

    corral = make_corral()
    server = mcp_server(corral)
    async with Client(server, cache=None) as client:
        assert "late" not in ((await client.list_tools()).tools[0].description or "")
        corral.tools.register(late)
        assert "late" in ((await client.list_tools()).tools[0].description or "")


async def test_lists_asked_for_at_the_same_time_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    def late() -> None:
        """Comes late."""

    corral = make_corral()
    make, made = ForModels.catalog, 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal made
        made += 1
        return make(*arguments, **options)

    monkeypatch.setattr(ForModels, "catalog", counted)
    async with Client(mcp_server(corral), cache=None) as client:
        corral.tools.register(late)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(client.list_tools)
    assert made == 2


async def test_a_budget_bounds_the_description(warm_deno: DenoSandbox) -> None:
    async def nothing(input: object) -> None: ...

    tools = [define_tool(name=f"tool_{n}", description="Does what it does. " * 9, execute=nothing) for n in range(300)]
    async with Client(mcp_server(Corral(tools, sandbox=warm_deno, check=False), budget_tokens=1_000)) as client:
        runs = (await client.list_tools()).tools[0]
    assert "300 tools" in (runs.description or "")
    assert len(runs.description or "") < 4 * 1_000 + 1_500
    server = mcp_server(Corral(tools, sandbox=warm_deno, check=False), budget_tokens=0)
    with pytest.raises(ConfigError, match="budget_tokens"):
        async with server.lifespan(server):
            pass


async def test_a_program_answers_with_text_and_structure(client: Client) -> None:
    result = await run(client, "console.log('one'); return { sum: await tools.add({ a: 1, b: 2 }) }")
    assert not result.is_error
    assert text_of(result) == 'Result: {"sum":3}\n\nConsole:\none'
    [call] = result.structured_content.pop("tool_calls")
    assert call.pop("ms") >= 0
    assert call == {"name": "add"}
    assert result.structured_content == {
        "status": "succeeded",
        "value": {"sum": 3},
        "console": "one\n",
        "checked": False,
    }


async def test_a_program_that_fails_says_where_and_what_was_called(client: Client) -> None:
    result = await run(client, "await tools.add({ a: 1, b: 2 });\nawait tools.fail();")
    assert result.is_error
    assert "failed at line 2" in text_of(result)
    error = result.structured_content["error"]
    assert (error["code"], error["message"], error["line"]) == ("tool_error", "it is closed", 2)
    assert [call.get("error", {}).get("code") for call in result.structured_content["tool_calls"]] == [
        None,
        "tool_error",
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [({"code": "return ("}, "program_rejected"), ({"program": "1"}, "invalid_arguments"), (None, "invalid_arguments")],
)
async def test_what_cannot_run_is_an_error(client: Client, arguments: dict[str, Any] | None, code: str) -> None:
    result = await client.call_tool("execute_code", arguments)
    assert result.is_error
    assert result.structured_content["status"] == "rejected"
    assert result.structured_content["error"]["code"] == code


async def test_a_sandbox_that_there_is_not_is_an_error_and_not_the_end() -> None:
    server = mcp_server(Corral([], check="required", sandbox={"typescript": "deno"}), language="python")
    async with Client(server) as client:
        result = await run(client, "1")
        assert result.is_error
        assert result.structured_content["error"]["code"] == "unknown_provider"


async def test_images_reach_the_client_as_content(client: Client) -> None:
    for code, rest in (
        (f"return {IMAGE}", {"type": "image", "content": 1}),
        (f"return [1, {IMAGE}]", [1, {"type": "image", "content": 1}]),
        (f"return {{ ok: true, content: [{IMAGE}] }}", {"ok": True, "content": [{"type": "image", "content": 1}]}),
    ):
        result = await run(client, code)
        assert result.content[1].model_dump(by_alias=True, exclude_none=True) == IMAGE
        assert result.structured_content["value"] == rest
        assert IMAGE["data"] not in text_of(result)


@pytest.mark.parametrize(
    "value",
    [
        '{ type: "image", data: "?", mimeType: "image/png" }',
        '{ type: "image" }',
        '{ type: "text", text: "x" }',
        '{ type: ["image"] }',
    ],
)
async def test_what_only_looks_like_content_stays_a_value(client: Client, value: str) -> None:
    result = await run(client, f"return {value}")
    assert len(result.content) == 1
    assert result.structured_content["value"]["type"] in ("image", "text", ["image"])


async def test_bytes_within_content_do_not_lose_the_result(client: Client) -> None:
    result = await run(client, f"return {{ ...{IMAGE}, _meta: {{ raw: new Uint8Array([255]) }} }}")
    assert result.content[1].meta == {"raw": "_w=="}


async def test_values_without_json_of_their_own_are_written_as_results_are(client: Client) -> None:
    result = await run(client, "return [NaN, new Uint8Array([1, 2]), undefined]")
    assert result.structured_content["value"] == ["NaN", "AQI=", None]


async def test_tools_are_found_and_described(client: Client) -> None:
    found = await client.call_tool("search_tools", {"query": "sum of two numbers"})
    assert text_of(found).startswith("Result:\ntools.add(")
    described = await client.call_tool("describe_tools", {"name": "pay"})
    assert "pay(input: {" in text_of(described)
    assert not described.is_error
    unknown = await client.call_tool("describe_tools", {"name": "pya"})
    assert unknown.is_error
    assert "did you mean pay" in text_of(unknown)


async def test_another_tool_is_an_error_that_names_those_there_are(client: Client) -> None:
    with pytest.raises(MCPError, match="execute_code, search_tools, describe_tools"):
        await client.call_tool("add", {"a": 1, "b": 2})


async def test_programs_in_python_run_too() -> None:
    async with Client(mcp_server(make_corral(sandbox={"python": "monty"}), language="python")) as client:
        assert "async def add" in ((await client.list_tools()).tools[0].description or "")
        result = await run(client, "await tools.add(a=1, b=2)")
    assert result.structured_content["value"] == 3


@pytest.mark.parametrize("mode", ERAS)
async def test_no_more_programs_run_than_are_allowed(mode: str, warm_deno: DenoSandbox) -> None:
    others_refused = anyio.Event()
    codes: list[str] = []

    @tool
    async def wait() -> None:
        """Waits for the others."""
        await others_refused.wait()

    async def one() -> None:
        result = await run(client, "await tools.wait()")
        if result.is_error:
            codes.append(result.structured_content["error"]["code"])
            if len(codes) == 2:
                others_refused.set()

    nobody = Elicitation(lambda _: types.ElicitResult(action="decline"))
    server = mcp_server(Corral([wait], sandbox=warm_deno, check=False), programs_at_once=1)
    async with Client(server, mode=mode, elicitation_callback=nobody) as client:
        with anyio.fail_after(LIMIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(one)
        assert codes == ["rate_limited", "rate_limited"]
        assert not (await run(client, "await tools.wait()")).is_error


async def test_a_program_that_could_not_be_checked_says_so_even_if_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = [replace(kind, engine=lambda: None) for kind in SERVERS]
    monkeypatch.setattr(Checker.__init__, "__defaults__", (absent,))
    async with make_corral(check=True) as corral, Client(mcp_server(corral)) as client:
        result = await run(client, "return await tools.add({ a: 0, b: 1 })")
    assert text_of(result) == (
        "Result: 1\n\nNotes:\n- the program was not checked: no language server for typescript is installed"
    )
    assert result.structured_content["checked"] is False
