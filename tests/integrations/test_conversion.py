"""What `tools_from` says of things that are no tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anthropic import beta_async_tool

from corral import tools_from
from corral.errors import ToolDefinitionError
from corral.sources.mcp import McpServer
from corral.sources.openapi import OpenApi
from corral.tools import Offer, ToolSource


@beta_async_tool
async def of_anthropic(number: int) -> str:
    """Doubles a number."""
    return str(number * 2)


async def double(number: int) -> int:
    """Doubles a number."""
    return number * 2


class Adder:
    def __call__(self, number: int) -> int:
        return number + 1


class Empty(ToolSource):
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        yield


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        (of_anthropic, "a BetaAsyncFunctionTool cannot be converted to tools; pass a function"),
        (3, "an int cannot be converted to tools;"),
        (Adder, "the class Adder cannot be a tool; pass an instance of it"),
        ("http://127.0.0.1/mcp", f"for an MCP server at a URL, use {McpServer.__name__}(name, url=...)"),
        ("shop.yaml", f"an OpenAPI document is {OpenApi.__name__}(namespace, document)"),
        (Path("shop.yml"), "an OpenAPI document is OpenApi"),
        ("openapi: 3.0.3\n", "an OpenAPI document is OpenApi"),
        ({"openapi": "3.0.3", "servers": []}, "an OpenAPI document is OpenApi"),
    ],
    ids=["anthropic", "number", "class", "url", "yaml", "yml-path", "yaml-text", "mapping"],
)
def test_what_cannot_be_converted_is_refused_with_the_way_out(thing: Any, text: str) -> None:
    with pytest.raises(ToolDefinitionError) as raised:
        tools_from(thing)
    assert text in str(raised.value)


def test_a_call_is_not_taken_for_its_function() -> None:
    with pytest.raises(ToolDefinitionError, match=r"double\(\) is a coroutine: pass the function, not its call"):
        tools_from(double(2))


def test_an_object_that_can_be_called_is_a_tool() -> None:
    [made] = tools_from(Adder(), namespace="numbers")
    assert made.namespace == "numbers"


def test_a_source_keeps_its_own_namespace() -> None:
    source = Empty()
    assert tools_from(source) == [source]
    with pytest.raises(ToolDefinitionError, match="Empty has its own namespace: pass 'all' to its constructor"):
        tools_from(source, namespace="all")
