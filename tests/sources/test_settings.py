"""Settings of the host for tools that come from elsewhere: the same for whatever they come from."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import mcp.types as types
import pytest
from mcp.server import MCPServer

from corral import Corral, ExecutionContext, Tool, tool, tools_from
from corral.errors import ToolDefinitionError
from corral.sandboxes import DenoSandbox
from corral.sources.mcp import McpServer
from corral.sources.openapi import OpenApi
from corral.tools import Offer, ToolSource
from tests.sources.openapi.service import document, serve

pytestmark = pytest.mark.anyio

Things: TypeAlias = Sequence[Tool | ToolSource]
Told: TypeAlias = Callable[..., Awaitable[str]]


def look() -> None:
    """Looks."""


def drop() -> None:
    """Drops everything."""


class Shop(ToolSource):
    """A source that Corral does not know."""

    namespace = "shop"

    def __init__(self) -> None:
        self.offer: Offer | None = None
        self.made = [tool(each).with_settings(namespace="shop") for each in (look, drop)]

    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        self.offer = offer
        offer(self.made)
        yield


def mcp_server() -> McpServer:
    server = MCPServer("shop", log_level="CRITICAL")
    server.add_tool(look)
    server.add_tool(drop, annotations=types.ToolAnnotations(destructive_hint=True))
    return McpServer("shop", server=server)


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with serve() as service:
        yield service.url


@pytest.fixture(params=["mcp", "openapi", "functions", "other"])
def things(request: pytest.FixtureRequest, url: str) -> Things:
    match request.param:
        case "mcp":
            return [mcp_server()]
        case "openapi":
            said: dict[str, Any] = {
                f"/{name}": {"post": {"operationId": name, "responses": {}}} for name in ("look", "drop")
            }
            return [OpenApi("shop", document(said), base_url=url)]
        case "functions":
            return tools_from(look, drop, namespace="shop")
        case _:
            return [Shop()]


@pytest.fixture
def told(warm_deno: DenoSandbox) -> Told:
    async def told(
        things: Iterable[Any], path: str = "shop.look", *, times: int = 1, scopes: Iterable[str] = ()
    ) -> str:
        """What a program is told by its last call; it computes the path: nothing is known of that before it runs."""
        space, name = path.split(".")
        program = f"""
            let told = "";
            for (let i = 0; i < {times}; i++) {{
                try {{ await tools["{space}" + ""].{name}(); told = "done" }} catch (error) {{ told = error.message }}
            }}
            return told
        """
        async with Corral([*things], sandbox=warm_deno, check=False) as corral:
            result = await corral.execute(program, context=ExecutionContext(user_id="ada", scopes=frozenset(scopes)))
            return str(result.raise_for_error().value)

    return told


@pytest.mark.parametrize("by", ["with_settings", "tools_from"])
async def test_settings_are_those_of_every_tool_whatever_it_comes_from(things: Things, by: str, told: Told) -> None:
    def given(**settings: Any) -> Things:
        return [each.with_settings(**settings) for each in things] if by[0] == "w" else tools_from(things, **settings)

    assert await told(given(scopes=["a"]), scopes=["a"]) == "done"
    assert "scope a" in await told(given(scopes=["a"]))
    assert "requires approval" in await told(given(needs_approval=True))
    assert await told(given(needs_approval=False), "shop.drop") == "done"
    assert "the limit of 1/minute per user is used up" in await told(given(rate_limit="1/minute"), times=2)
    settled = given(timeout_seconds=7.0, sequential=True, validate_output="strict")
    async with Corral(settled).connected() as corral:
        for each in corral.tools.snapshot().values():
            assert (each.timeout_seconds, each.sequential, each.validate_output) == (7.0, True, "strict")


async def test_they_have_another_namespace(things: Things, told: Told) -> None:
    assert await told([each.with_settings(namespace="store") for each in things], "store.look") == "done"


async def test_later_settings_take_the_place_of_earlier_ones_but_scopes_are_added(things: Things, told: Told) -> None:
    twice = [
        each.with_settings(scopes=["a"], needs_approval=True).with_settings(scopes=["b"], needs_approval=False)
        for each in things
    ]
    assert "scope b" in await told(twice, scopes=["a"])
    assert "scope a" in await told(twice, scopes=["b"])
    assert await told(twice, scopes=["a", "b"]) == "done"


@pytest.fixture
def source(things: Things) -> ToolSource:
    [found] = things if len(things) == 1 else [Shop()]
    assert isinstance(found, ToolSource)
    return found


async def test_a_source_is_filtered_and_transformed(source: ToolSource, told: Told) -> None:
    assert await told([source.filtered(lambda tool: tool.name == "look")]) == "done"
    assert "no tool" in await told([source.filtered(lambda tool: tool.name == "look")], "shop.drop")
    asking = source.transformed(lambda tool: replace(tool, needs_approval=tool.name == "drop"))
    assert await told([asking]) == "done"
    assert "requires approval" in await told([asking], "shop.drop")


async def test_what_is_offered_later_is_held_to_the_same() -> None:
    shop = Shop()
    asked: list[str] = []

    def keep(tool: Tool) -> bool:
        asked.append(tool.name)
        return tool.name != "drop"

    async with Corral([shop.filtered(keep).with_settings(scopes=["a"])]).connected() as corral:
        assert shop.offer is not None
        [known] = corral.tools.snapshot().values()
        later = tool(name="later", namespace="shop")(lambda: None)
        shop.offer([*shop.made, later], problem="half of it is closed")
        assert {name.name: tool.scopes for name, tool in corral.tools.snapshot().items()} == {
            "look": {"a"},
            "later": {"a"},
        }
        assert corral.tools.get("shop.look") is known, "what is offered again is made once"
        assert asked == ["look", "drop", "later"]
        assert corral.tools.problems == {"shop": "half of it is closed"}
        assert not corral.tools.visible_to(frozenset()).problems, "who may call none of them learns nothing"


async def test_a_function_that_fails_is_told_to_the_source_as_tools_that_cannot_be() -> None:
    def broken(tool: Tool) -> bool:
        raise KeyError(tool.name)

    with pytest.raises(ToolDefinitionError, match=r"tool 'look' cannot be transformed: KeyError\('look'\)"):
        async with Corral([mcp_server().filtered(broken)]).connected():
            pytest.fail("it is not open")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"rate_limit": "often"}, "rate_limit: "),
        ({"timeout_seconds": 0}, "timeout_seconds must be positive, not 0"),
        ({"validate_output": "maybe"}, "validate_output"),
        ({"namespace": "__a"}, "the namespace '__a' begins with __"),
        ({"scopes": "read"}, "scopes takes a list of str"),
        ({"approval": True}, "approval"),
    ],
)
@pytest.mark.parametrize("give", [Shop().with_settings, tool(look).with_settings, tools_from])
def test_a_wrong_setting_is_refused_where_it_is_given(
    give: Callable[..., Any], settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=problem):
        give(**settings)
