"""No tenant can have the programs of others go unchecked, and no tool those that do not use it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import anyio
import anyio.to_thread
import pytest

from corral import Corral, ExecutionContext, ExecutionResult, define_tool
from corral.checking import Case, Checker, case
from corral.checking import checker as checkers
from corral.checking.servers.language_server import LanguageServer
from corral.concurrency.fairness import FairQueue
from corral.programs import read_program
from corral.tools import ToolRegistry
from corral.types import Language
from tests.checking.test_servers import EITHER, ENDLESS, REGISTRY, RIGHT, server_of
from tests.checking.tools import TOOLS
from tests.until import until

pytestmark = pytest.mark.anyio
BOTH = pytest.mark.parametrize("language", ["typescript", "python"])
EVE, BOB = ExecutionContext(user_id="eve"), ExecutionContext(user_id="bob")
NUMBERS = itertools.count()


@pytest.fixture
async def corral() -> AsyncIterator[Corral]:
    async with Corral(TOOLS, check="required") as corral:
        yield corral


def new(program: str, language: Language) -> str:
    """One of which no verdict is known."""
    return f"{program}{' #' if language == 'python' else ' //'} {next(NUMBERS)}"


@EITHER
async def test_a_program_that_is_slow_to_check_is_refused_and_keeps_nobody_unchecked(
    corral: Corral, language: Language, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(program: str, context: ExecutionContext, **options: Any) -> ExecutionResult:
        return await corral.execute(program, language=language, context=context, **options)

    assert (await run(new(RIGHT[language], language), BOB)).value == 3
    first = server_of(corral._runtime.checker, language)  # pyright: ignore[reportPrivateUsage]
    slow, pids = "", list[int | None]()
    for _ in range(2):
        slow = new(ENDLESS[language], language)
        with pytest.MonkeyPatch.context() as patch:
            for bound in ("_FIRST_CHECK_SECONDS", "_CHECK_SECONDS"):
                patch.setattr(checkers, bound, 0.2)
            refused = await run(slow, EVE)
        assert (refused.status, refused.checked) == ("rejected", False)
        assert "takes too long to check" in refused.model_text()
        result = await run(new(RIGHT[language], language), BOB)
        assert (result.value, result.checked) == (3, True)
        pids.append(first.pid)
    assert pids[0] == pids[1], "after the first, those of its tenant are in nobody's way"
    result = await run(new(RIGHT[language], language), EVE)
    assert (result.value, result.checked) == (3, True), "and those of the same tenant are checked too"
    monkeypatch.setattr(LanguageServer, "submit", Mock(side_effect=AssertionError("it is tried again")))
    assert (await run(slow, EVE)).status == "rejected"
    assert not (await run(slow, EVE, check=True)).checked


def test_tenants_take_turns() -> None:
    turns: FairQueue[str] = FairQueue()
    for name in ("eve 1", "eve 2", "eve 3", "bob 1", "ann 1", "bob 2"):
        turns.add(name[:3], name)
    taken = [turns.take() for _ in range(6)]
    assert taken == ["eve 1", "bob 1", "ann 1", "eve 2", "bob 2", "eve 3"]
    assert not turns


async def test_what_waits_for_a_server_holds_no_thread_and_is_withdrawn_if_nobody_waits() -> None:
    checker = Checker()
    checker.start("typescript", REGISTRY)
    server = server_of(checker, "typescript")
    try:
        assert await anyio.to_thread.run_sync(server.wait, 20)
        assert server.seize() is not None
        before = threading.active_count()
        async with anyio.create_task_group() as checks:
            for _ in range(50):
                checks.start_soon(
                    checker.verdict, Case(read_program(new(RIGHT["typescript"], "typescript"), "typescript"), REGISTRY)
                )
            await anyio.wait_all_tasks_blocked()
            assert threading.active_count() <= before
            checks.cancel_scope.cancel()
        done: list[str] = []
        server.submit("eve", lambda _: done.append("eve")).cancel()
        last = server.submit("bob", lambda _: done.append("bob"))
        server.hand_back()
        await anyio.to_thread.run_sync(last.result, 20)
        assert done == ["bob"]
    finally:
        await anyio.to_thread.run_sync(checker.close)


async def test_a_tenant_whose_check_holds_others_up_does_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkers, "_HOLDS_UP_SECONDS", 0.0)
    checker = Checker()
    checker.start("python", REGISTRY)
    server = server_of(checker, "python")

    async def check(program: str, context: ExecutionContext) -> None:
        source = read_program(new(program, "python"), "python")
        await checker.verdict(Case(source, REGISTRY, context=context))

    try:
        await check(RIGHT["python"], BOB)
        spent: list[float] = []
        for _ in range(2):  # the first is held up, and so is who waits behind it
            await until(server._idle.is_set)  # pyright: ignore[reportPrivateUsage]
            workspace = server.seize()
            assert workspace is not None
            before = workspace.cpu_time()
            async with anyio.create_task_group() as checks:
                checks.start_soon(check, "a;" * 1_200, EVE)
                await anyio.wait_all_tasks_blocked()
                checks.start_soon(check, RIGHT["python"], BOB)
                await anyio.wait_all_tasks_blocked()
                server.hand_back()
            spent.append(workspace.cpu_time() - before)
        assert 0 < spent[1] < spent[0] / 2, "the second time it is Bob's only"
        assert {*checker._suspects} == {EVE.owner}  # pyright: ignore[reportPrivateUsage]
    finally:
        await anyio.to_thread.run_sync(checker.close)


async def test_a_program_of_very_many_parts_is_put_before_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "_MOST_NODES", 1_000)
    async with Corral(TOOLS, check="required") as corral:
        refused = await corral.execute(new("a;" * 1_000, "python"), language="python", context=EVE)
        assert "takes too long to check" in refused.model_text()
        server = server_of(corral._runtime.checker, "python")  # pyright: ignore[reportPrivateUsage]
        pid = server.pid
        assert (await corral.execute(RIGHT["python"], language="python", context=EVE)).checked
        assert server.pid == pid


def dear(members: int) -> dict[str, Any]:
    """A schema of a union that a type checker takes minutes for."""
    union = [
        {"type": "object", "properties": {f"k{n}": {"const": n}, "kind": {"const": n}}, "required": ["kind", f"k{n}"]}
        for n in range(members)
    ]
    return {"type": "object", "properties": {"given": {"anyOf": union}}}


@pytest.mark.parametrize(
    "language",
    ["typescript", pytest.param("python", marks=pytest.mark.matrix("the same bound in TypeScript in the gate"))],
)
async def test_a_tool_with_a_schema_that_is_dear_to_check_takes_and_gives_anything(
    language: Language, caplog: pytest.LogCaptureFixture
) -> None:
    async def up(input: dict[str, Any], _: object) -> dict[str, Any]:
        return input

    schema = dear(5000)
    bad = define_tool(
        name="up", namespace="evil", description="", input_schema=schema, output_schema=schema, execute=up
    )
    uses: dict[Language, str] = {
        "typescript": "const up = await tools.evil.up({}); return up.members ?? 3",
        "python": "up = await tools.evil.up(given={'kind': 1, 'k1': 1})\n3",
    }
    wrong: dict[Language, str] = {
        "typescript": "return await tools.add({ a: 1, b: [] })",
        "python": "await tools.add(a=1, b=[])",
    }
    async with Corral(ToolRegistry(*TOOLS, bad), check="required") as corral:
        assert (await corral.check(RIGHT[language], language)).passed
        assert not (await corral.check(wrong[language], language)).passed
        used = await corral.check(uses[language], language)
        assert (used.checked, used.passed) == (True, True), used.model_text()
    assert "'evil.up', which are too large" in caplog.text
