"""Documents that describe tools are made while the event loop goes on."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from corral import ExecutionContext, Limits, tool
from corral.calls import Grant
from corral.plugins import load_by_name
from corral.tools import ToolRegistry
from tests.until import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

WORK = {
    "http": "corral.bridges.http:openapi",
    "graphql": "corral.protocols.graphql.bridge:make_schema",
    "trpc": "corral.protocols.trpc:declare_tools",
    "connect": "corral.protocols.connect:ToolSchema",
    "grpc": "corral.protocols.grpc.bridge:ToolSchema",
    "grpc as text": "corral.protocols.grpc.tool_schema:proto_text",
}
"""Functions that take long for many tools."""


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@pytest.mark.parametrize("name", WORK)
async def test_the_event_loop_goes_on_while_a_document_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _, function = WORK[name].partition(":")
    work: Any = getattr(import_module(module), function)
    started, released = anyio.Event(), threading.Event()

    def slowly(*arguments: Any, **options: Any) -> Any:
        anyio.from_thread.run_sync(started.set, token=loop)
        assert released.wait(LIMIT_SECONDS), "the event loop stands still"
        return work(*arguments, **options)

    loop = anyio.lowlevel.current_token()
    monkeypatch.setattr(f"{module}.{function}", slowly)
    bridge = load_by_name("corral.bridges", name.partition(" ")[0])
    grant = Grant(context=ExecutionContext(), limits=Limits(), tools=ToolRegistry(add))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bridge.document, grant)
        await started.wait()
        released.set()
    assert b"add" in (await bridge.document(grant)).content
