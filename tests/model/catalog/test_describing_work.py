"""Looking through tools takes nothing from others: no thread that tools share, and no work twice or for nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from anyio import to_thread

from corral import ExecutionContext, Tool, ToolCall, define_tool
from corral.model import discovery as making
from corral.model import discovery_tools
from corral.tools import ToolRegistry
from corral.types import ToolName
from tests.conftest import both_loops
from tests.model.catalog.making import anything
from tests.until import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, both_loops]

ADA, BOB = ExecutionContext(user_id="ada"), ExecutionContext(user_id="bob")


def described(number: int, properties: int = 3) -> Tool:
    schema: dict[str, Any] = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(properties)}}
    return define_tool(name=f"tool_{number}", input_schema=schema, execute=anything)


class Asked:
    """The two tools over some others."""

    def __init__(self, *tools: Tool) -> None:
        self._tools = discovery_tools(ToolRegistry(*tools), "typescript")

    async def __call__(self, which: str, input: Any, context: ExecutionContext = ADA) -> Any:
        tool = self._tools[ToolName(None, which)]
        return await tool.dump_output(await tool.execute(await tool.parse_input(input), ToolCall(context)))


@contextmanager
def made(monkeypatch: pytest.MonkeyPatch, wait: Callable[[], object] = lambda: None) -> Generator[list[str]]:
    """The names of the tools that texts are made of in this process, each when its making begins."""
    names: list[str] = []
    make_text = making.make_text

    def noted(form: making.Form, name: ToolName, *more: Any) -> str:
        names.append(str(name))
        wait()
        return make_text(form, name, *more)

    with monkeypatch.context() as patch:
        patch.setattr(making, "make_text", noted)
        yield names


async def test_it_does_not_wait_for_a_thread_that_tools_keep() -> None:
    shared = to_thread.current_default_thread_limiter()
    taken = [object() for _ in range(int(shared.available_tokens))]
    ask = Asked(described(1))
    for each in taken:
        shared.acquire_on_behalf_of_nowait(each)
    try:
        with anyio.fail_after(LIMIT_SECONDS):
            assert (await ask("search", "tool"))["total"] == 1
            assert "p2" in (await ask("describe", "tool_1"))["declaration"]
    finally:
        for each in taken:
            shared.release_on_behalf_of(each)


async def test_a_text_is_made_once_however_many_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Asked(described(1))
    with made(monkeypatch) as names:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask, "describe", ["tool_1"] * 20)
        await ask("describe", "tool_1", BOB)
    assert names == ["tool_1"]


async def test_what_nobody_waits_for_any_more_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Asked(*(described(number) for number in range(20)))
    begun, over = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        over.wait(60)

    with made(monkeypatch, wait) as names:
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(ask, "describe", [f"tool_{number}" for number in range(20)])
                await to_thread.run_sync(begun.wait, 60)
                tasks.cancel_scope.cancel()
        finally:
            over.set()
        assert "p2" in (await ask("describe", "tool_5"))["declaration"]
        assert names == ["tool_0", "tool_5"]


async def test_a_user_waits_for_no_text_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Asked(described(1), described(2))
    begun, over = threading.Event(), threading.Event()

    def wait() -> None:
        if not begun.is_set():
            begun.set()
            over.wait(60)

    with made(monkeypatch, wait):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "describe", "tool_1", ADA)
            try:
                await to_thread.run_sync(begun.wait, 60)
                with anyio.fail_after(LIMIT_SECONDS):
                    assert (await ask("describe", "tool_2", BOB))["name"] == "tool_2"
            finally:
                over.set()


async def test_a_large_schema_is_read_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: object) -> None:
        pytest.fail("it was read in a thread")

    monkeypatch.setattr(making, "run_in_own_thread", never)
    shown = (await Asked(described(1, properties=3_000))("describe", "tool_1"))["declaration"]
    assert shown.startswith("// Shortened: the whole declaration has ")


async def test_a_schema_that_takes_too_long_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "_SECONDS", 0.001)
    ask = Asked(described(1, properties=5_000), described(2))
    large, small = await ask("describe", ["tool_1", "tool_2"])
    assert large["declaration"] == "// Its schema is too large to declare.\n"
    assert "p2" in small["declaration"]
    found = (await ask("search", ""))["items"]
    assert found[0]["signature"] == "tools.tool_1"
    assert found[1]["signature"].startswith("tools.tool_2(")


async def test_the_texts_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "_MOST_KEPT_CHARACTERS", 1_000)
    ask = Asked(*(described(number) for number in range(40)))
    with made(monkeypatch) as names:
        for number in [*range(40), 39, 0]:
            await ask("describe", f"tool_{number}")
    assert names[40:] == ["tool_0"]
