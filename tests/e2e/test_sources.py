"""What tools come from: opened with a Corral, closed with it, and nobody else's trouble when it fails."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from corral import Corral, ExecutionContext, Tool, define_tool, tool, tools_from
from corral.errors import ConfigError, StartFailed, ToolDefinitionError
from corral.running import Runtime
from corral.tools import Offer, ToolRegistry, ToolSource
from tests.conftest import LOOPS

pytestmark = pytest.mark.anyio


@pytest.fixture(params=LOOPS)
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def numbered(name: str, number: int) -> Tool:
    async def execute(_: object) -> int:
        return number

    return define_tool(name=name, description="Gives a number.", execute=execute)


@dataclass(eq=False)
class Numbers(ToolSource):
    """A source of tools that give a number; `then` is what happens as it is opened."""

    namespace: str | None = "numbers"
    then: Callable[[], Any] = lambda: None
    opened: list[str] = field(default_factory=list[str])
    offer: Offer | None = None

    @property
    def tools(self) -> list[Tool]:
        return self.made("early")

    def made(self, *names: str) -> list[Tool]:
        space = self.namespace
        made = ToolRegistry()
        made.register(*(numbered(name, len(name)) for name in names), namespace=space)
        return list(made.snapshot().values())

    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        self.offer = offer
        async with anyio.create_task_group():  # which only the task that entered it may leave
            await anyio.lowlevel.checkpoint()
            self.then()
            self.opened.append("opened")
            offer(self.made("one", "three"))
            try:
                yield
            finally:
                self.opened.append("closed")


async def test_its_tools_are_there_while_the_corral_is_open() -> None:
    source = Numbers()
    corral = Corral([source, numbered("own", 7)], check=False)
    assert list(map(str, corral.tools)) == ["own", "numbers.early"]
    async with corral:
        assert list(map(str, corral.tools)) == ["own", "numbers.one", "numbers.three"]
        result = await corral.execute("return await tools.numbers.three() + await tools.own()")
    assert result.value == 12
    assert source.opened == ["opened", "closed"]


async def test_what_it_offers_later_replaces_what_it_offered_before() -> None:
    source = Numbers()
    async with Corral([source], check=False) as corral:
        assert source.offer is not None
        source.offer(source.made("three", "seven"))
        assert list(map(str, corral.tools)) == ["numbers.seven", "numbers.three"]
        with pytest.raises(ToolDefinitionError, match="already a tool 'one'"):
            source.offer([*source.made("one"), *source.made("one")])
        assert list(map(str, corral.tools)) == ["numbers.seven", "numbers.three"], "all or none"


async def test_a_program_learns_why_tools_are_missing() -> None:
    source = Numbers()
    async with Corral([source, numbered("own", 7)], check=False) as corral:
        assert source.offer is not None
        source.offer((), problem="the numbers have gone home")
        result = await corral.execute("try { return await tools.numbers.one() } catch (error) { return error.message }")
        assert result.value == 'no tool "numbers.one": the numbers have gone home'
        assert (await corral.execute("return await tools.own()")).value == 7
        source.offer(source.made("one"))
        assert (await corral.execute("return await tools.numbers.one()")).value == 3


async def test_who_could_not_call_them_does_not_learn_why_they_are_missing() -> None:
    source = Numbers()
    source.scopes = {"numbers"}
    program = "try { return await tools['num' + 'bers'].one() } catch (error) { return error.message }"
    async with Corral([source, numbered("own", 7)], hide_denied=True, check=False) as corral:
        assert source.offer is not None
        source.offer((), problem="the numbers have gone home")
        told = 'no tool "numbers.one"; there are: own'
        assert (await corral.execute(program)).value == told
        held = ExecutionContext(scopes={"numbers"})
        assert (
            await corral.execute(program, context=held)
        ).value == 'no tool "numbers.one": the numbers have gone home'


async def test_any_task_may_close_it() -> None:
    source = Numbers()
    corral = await Corral([source], check=False).__aenter__()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(corral.aclose)
    assert source.opened == ["opened", "closed"]


async def test_one_that_must_open_and_cannot_closes_the_others() -> None:
    def fail() -> None:
        raise StartFailed("no numbers today")

    there = Numbers(namespace="there")
    with pytest.raises(StartFailed, match="no numbers today"):
        async with Corral([there, Numbers(then=fail)], check=False):
            pytest.fail("it is not open")
    assert there.opened in ([], ["opened", "closed"])


async def test_one_that_ends_by_itself_is_reported_to_the_host_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Breaking(Numbers):
        @asynccontextmanager
        async def open(self, offer: Offer) -> AsyncGenerator[None]:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.break_down)
                yield

        async def break_down(self) -> None:
            raise ValueError("the numbers are broken")

    async with Corral([Breaking(), numbered("own", 7)], check=False) as corral:
        assert (await corral.execute("return await tools.own()")).value == 7
    assert any("a tool source ended" in record.message for record in caplog.records)
    assert all(record.levelno < logging.ERROR for record in caplog.records)


async def test_opening_that_is_cancelled_closes_what_is_open() -> None:
    class Slow(Numbers):
        @asynccontextmanager
        async def open(self, offer: Offer) -> AsyncGenerator[None]:
            scope.cancel()
            await anyio.sleep_forever()
            yield

    there = Numbers(namespace="there")
    with anyio.CancelScope() as scope:
        async with Corral([there, Slow()], check=False):
            pytest.fail("it is not open")
    assert there.opened in ([], ["opened", "closed"])


async def test_without_being_open_nothing_runs() -> None:
    corral = Corral([Numbers()], check=False)
    with pytest.raises(ConfigError, match=r"tool sources are not open; open it with `async with corral`"):
        await corral.execute("return 1")
    assert "early" in corral.model.declarations()
    async with corral.connected():
        assert "three" in corral.model.declarations()


async def test_tools_of_which_nothing_is_known_are_not_declared() -> None:
    class Unknown(Numbers):
        @property
        def tools(self) -> list[Tool]:
            return []

    corral = Corral([Unknown(), numbered("own", 7)], check=False)
    with pytest.raises(ConfigError, match="tool sources are not open"):
        corral.model.prompt()
    async with corral.connected():
        assert "three" in corral.model.prompt()


async def test_one_execution_cannot_bring_its_own() -> None:
    async with Corral(check=False) as corral:
        with pytest.raises(ConfigError, match=r"Numbers is a tool source"):
            await corral.execute("return 1", tools=[Numbers()])


async def test_two_need_two_namespaces() -> None:
    with pytest.raises(ConfigError, match="share the namespace 'numbers'"):
        Corral([Numbers(), Numbers()])


async def test_tools_are_made_of_what_there_is() -> None:
    @tool
    async def own() -> int:
        return 1

    async def plain() -> int:
        return 2

    source = Numbers()
    registry = ToolRegistry(numbered("third", 3))
    made = [*tools_from(own, plain, [registry], namespace="all"), *tools_from(source)]
    assert [each.label for each in made if isinstance(each, Tool)] == ["all.own", "all.plain", "all.third"]
    assert made[-1] is source
    with pytest.raises(ToolDefinitionError, match="an int cannot be converted to tools"):
        tools_from(7)


async def test_one_that_is_open_is_not_opened_again() -> None:
    source = Numbers()
    async with Corral([source], check=False) as corral:
        async with corral.connected():
            assert (await corral.execute("return await tools.numbers.one()")).value == 3
        with pytest.raises(ConfigError, match="already open"):
            await corral.__aenter__()
        assert (await corral.execute("return await tools.numbers.one()")).value == 3
    assert source.opened == ["opened", "closed"]


async def test_one_that_could_not_be_opened_can_be_opened_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise StartFailed("no sandbox today")

    source = Numbers()
    corral = Corral([source], check=False)
    with monkeypatch.context() as patch:
        patch.setattr(Runtime, "warm_up", fail)
        with pytest.raises(StartFailed):
            await corral.__aenter__()
    assert not corral.is_open
    async with corral:
        assert (await corral.execute("return await tools.numbers.one()")).value == 3
    assert source.opened == ["opened", "closed"] * 2


async def test_closing_while_it_opens_leaves_nothing_open() -> None:
    class Closing(Numbers):
        @asynccontextmanager
        async def open(self, offer: Offer) -> AsyncGenerator[None]:
            tasks.start_soon(corral.aclose)
            await anyio.wait_all_tasks_blocked()
            self.opened.append("opened")
            yield
            self.opened.append("closed")

    source = Closing()
    corral = Corral([source], check=False)
    async with anyio.create_task_group() as tasks:
        with pytest.raises(ConfigError, match="closed while it was being opened"):
            await corral.__aenter__()
    assert not corral.is_open
    assert source.opened in ([], ["opened", "closed"])


@pytest.mark.parametrize("wrong", [7, {"a": 1}, [[print]], [object]])
async def test_what_is_no_tool_is_not_shown_whole(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"tools_from|tools=\[") as raised:
        Corral(wrong)
    assert len(str(raised.value)) < 250
