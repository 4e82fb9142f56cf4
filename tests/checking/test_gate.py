"""A program is held back until it has been checked: what comes of one that is wrong, and of one that is not."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import anyio
import anyio.to_thread
import pytest
from sniffio import current_async_library

from corral import Corral, ExecutionContext, ExecutionResult, Limits, define_tool, tool
from corral.audit import AuditEvent
from corral.checking import Case, Checker, Verdict
from corral.checking import checker as checkers
from corral.checking.servers import language_server as servers
from corral.checking.servers.lsp import LspClient
from corral.checking.servers.specs import SERVERS
from corral.checking.servers.workspace import Document
from corral.concurrency import deadline
from corral.concurrency.deadline import PausableDeadline
from corral.errors import ConfigError, StartFailed
from corral.events import Event, ProgramChecked
from corral.jail import Engine
from corral.running import Execution
from corral.tools import ToolRegistry
from corral.types import Language, LogEntry
from tests.checking.corpora import wait_for
from tests.checking.test_servers import slow_to_start
from tests.conftest import TOOLS, both_loops

pytestmark = pytest.mark.anyio

LANGUAGES: tuple[Language, ...] = ("typescript", "python")
BOTH_LANGUAGES = pytest.mark.parametrize("language", LANGUAGES)
SECONDS = 60
LIMITS = Limits(wall_seconds=SECONDS)

# Runs well, and is wrong all the same: whether it succeeds says whether it was checked.
HARMLESS: Mapping[Language, str] = {
    "typescript": "return [1].map(() => 1) || nowhere",
    "python": "[1] or nowhere",
}


@tool
async def record(n: int) -> int:
    """Notes that it was called."""
    recorded.append(n)
    return n


recorded: list[int] = []


async def _undeclared(_: object) -> dict[str, str]:
    return {"name": "a", "total": "b"}


undeclared = define_tool(
    name="undeclared",
    description="Has a member that its schema rules out.",
    execute=_undeclared,
    output_schema={"properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False},
)
ALL = [*TOOLS, record, undeclared]


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[Corral]:
    """Both its servers are ready."""
    async with Corral(ALL, limits=LIMITS, check=True) as corral:
        for language in LANGUAGES:
            assert (await corral.check("tools", language)).checked
        yield corral


@pytest.fixture
def corral(shared: Corral) -> Corral:
    recorded.clear()
    return shared


def told(result: ExecutionResult) -> str:
    return "" if result.error is None else result.error.message


def count_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of all requests that are sent from now on."""
    sent: list[str] = []
    post = LspClient.post

    def spy(self: LspClient, method: str, params: Mapping[str, Any]) -> int:
        sent.append(method)
        return post(self, method, params)

    monkeypatch.setattr(LspClient, "post", spy)
    return sent


# --- what is rejected


REJECTED: Mapping[Language, str] = {
    "typescript": "console.log('before');\nawait tools.record({ n: 1 });\nreturn await tools.record({ n: 'two' });",
    "python": "print('before')\nawait tools.record(n=1)\nawait tools.record(n='two')",
}


# Before all that use the Corral of this file: anyio runs tests on the loop of the fixtures that are open.


@both_loops
async def test_a_run_that_is_cancelled_while_it_is_checked_leaves_the_server_as_it_was(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert current_async_library() == anyio_backend
    recorded.clear()
    begin, begun = Document.begin, anyio.Event()

    def spy(self: Document, text: str) -> None:
        begin(self, text)
        begun.set()

    monkeypatch.setattr(Document, "begin", spy)
    async with Corral(ALL, limits=LIMITS, check=True) as corral:
        assert (await corral.check("tools")).checked
        server = corral._runtime.checker.server("typescript")  # pyright: ignore[reportPrivateUsage]
        assert server is not None
        pid = server.pid
        for program in (HEAVY, "return await tools.record({ n: 'two' })"):
            begun = anyio.Event()
            assert await anyio.to_thread.run_sync(server.wait, SECONDS), "it answers the one before first"
            async with corral.start(program) as run:
                with anyio.fail_after(SECONDS):
                    await begun.wait()
                run.cancel()
                result = await run.result()
            assert (result.status, result.checked, result.tool_calls) == ("cancelled", False, ())
        result = await corral.execute("return await tools.record({ n: 8 })", check="required")
        assert (result.value, result.checked, server.pid) == (8, True, pid)
    assert recorded == [8]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_program_is_checked_on_each_event_loop(anyio_backend: str) -> None:
    assert current_async_library() == anyio_backend
    recorded.clear()
    async with Corral(ALL, limits=LIMITS, check="required") as corral:
        wrong = await corral.execute(REJECTED["typescript"])
        heavy = await corral.execute("const given = { n: 'a' as any }; return await tools.record({ ...given, n: 4 })")
    assert (wrong.status, wrong.logs) == ("rejected", ())
    assert (heavy.value, heavy.checked) == (4, True)
    assert recorded == [4]


@BOTH_LANGUAGES
async def test_a_rejected_program_calls_nothing_and_prints_nothing(corral: Corral, language: Language) -> None:
    events: list[Event] = []
    result = await corral.execute(REJECTED[language], language=language, on_event=events.append)
    assert (result.status, result.checked) == ("rejected", True)
    assert (recorded, result.tool_calls, result.logs) == ([], (), ())
    assert [each.type for each in events] == ["execution_started", "program_checked", "execution_finished"]
    checked = events[1]
    assert isinstance(checked, ProgramChecked)
    assert (checked.verdict, checked.reason, checked.diagnostics) == ("rejected", None, result.diagnostics)
    assert checked.duration_ms > 0


@BOTH_LANGUAGES
async def test_a_check_that_passed_is_an_event_before_the_first_call(corral: Corral, language: Language) -> None:
    events: list[Event] = []
    program = "await tools.record({ n: 1 })" if language == "typescript" else "await tools.record(n=1)"
    await corral.execute(program, language=language, on_event=events.append)
    assert [each.type for each in events] == [
        "execution_started",
        "program_checked",
        "tool_call_started",
        "tool_call_finished",
        "execution_finished",
    ]
    assert isinstance(events[1], ProgramChecked)
    assert events[1].verdict == "passed"


@BOTH_LANGUAGES
async def test_a_rejection_says_what_and_where(corral: Corral, language: Language) -> None:
    result = await corral.execute(REJECTED[language], language=language)
    assert result.error is not None
    [error] = [each for each in result.diagnostics if each.severity == "error"]
    assert (result.error.code, result.error.line) == ("program_rejected", 3)
    assert (error.line, error.column) == (result.error.line, result.error.column)
    assert error.column is not None
    assert REJECTED[language].splitlines()[2][error.column - 1 :].startswith("n"), "the argument's name"
    assert "tools.record" in told(result), "the declaration is shown"
    assert "nothing ran" in result.model_text()


@pytest.mark.parametrize(
    ("language", "program", "workaround", "mended"),
    [
        ("typescript", "const r = await tools.undeclared({}); return r.total", "as any`.", "return ((await tools.undeclared({})) as any).total"),
        ("python", "r = await tools.undeclared()\nreturn r['total']", "`r: Any = await", "r: Any = await tools.undeclared()\nreturn r['total']"),
    ],
)  # fmt: skip
async def test_a_program_that_knows_results_better_runs_as_any_or_when_it_is_sent_again(
    corral: Corral, language: Language, program: str, workaround: str, mended: str
) -> None:
    async def run(source: str, session: str) -> ExecutionResult:
        context = ExecutionContext(session_id=session)
        return await corral.execute(source, language=language, context=context, check="required")

    assert (await run(mended, "a")).value == "b"
    first = await run(program, "a")
    assert (first.status, workaround in told(first)) == ("rejected", True)
    assert (await run(program, "b")).status == "rejected"
    again = await run(program, "a")
    assert (again.value, {each.severity for each in again.diagnostics}) == ("b", {"warning"})
    wrong = f"{REJECTED[language].replace('return ', '')}\n{program}"
    both = [await run(wrong, "a"), await run(wrong, "a"), await run(program, "a")]
    assert [each.status for each in both] == ["rejected"] * 3
    assert workaround not in told(both[0])


@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("typescript", "if (Date.now() > 0) throw new Error('early');\nreturn await tools.record({ n: 'two' })"),
        ("python", "import time\nif time.time() > 0:\n    raise ValueError('early')\nawait tools.record(n='two')"),
    ],
)
async def test_a_wrong_program_that_fails_before_its_first_call_is_rejected(
    corral: Corral, language: Language, program: str
) -> None:
    result = await corral.execute(program, language=language)
    assert result.status == "rejected"
    assert "early" not in told(result)


@BOTH_LANGUAGES
async def test_a_program_without_calls_waits_for_its_verdict(corral: Corral, language: Language) -> None:
    result = await corral.execute(HARMLESS[language], language=language)
    assert (result.status, result.checked) == ("rejected", True)
    assert "nowhere" in told(result)


async def test_a_rejection_is_on_record() -> None:
    written: list[AuditEvent] = []

    def keep(events: Sequence[AuditEvent]) -> None:
        written.extend(events)

    async with Corral(ALL, limits=LIMITS, check="required", audit=keep) as corral:
        result = await corral.execute(REJECTED["typescript"])
    [event] = written
    assert (event.kind, event.code, event.calls) == ("execution", "program_rejected", 0)
    assert event.execution_id == result.execution_id
    assert event.outcome == "failed"


# --- what is not


@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("typescript", "const found = 'a'.match(/a/);\nreturn found.index + await tools.record({ n: 1 })"),
        ("python", "count = 0\ncount: int = 'a'\nawait tools.record(n=1)"),
    ],
)
async def test_a_program_that_succeeds_has_its_warnings(corral: Corral, language: Language, program: str) -> None:
    result = await corral.execute(program, language=language)
    assert (result.status, result.value, result.checked) == ("succeeded", 1, True)
    assert {(each.severity, each.line) for each in result.diagnostics} == {("warning", 2)}


@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("typescript", "const { items } = await tools.search({ query: 'number' }); return items[0].name.length"),
        ("typescript", "return (await tools.describe({ name: 'add' })).declaration.length"),
        ("python", "found = await tools.search(query='number')\nlen(found['items'])"),
        ("python", "described = await tools.describe(name='add')\nlen(described['declaration'])"),
    ],
)
async def test_searching_and_describing_tools_passes(corral: Corral, language: Language, program: str) -> None:
    result = await corral.execute(program, language=language)
    assert (result.status, result.checked, result.diagnostics) == ("succeeded", True, ()), told(result)
    assert result.value > 0


async def test_what_is_printed_while_the_check_goes_on_is_told_in_order_afterwards(
    corral: Corral, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_printed, events = anyio.Event(), list[str]()
    verdict, log = Checker.verdict, Execution._log  # pyright: ignore[reportPrivateUsage]

    def not_at_once(*_: object) -> None: ...

    async def held(self: Checker, case: Case) -> Verdict:
        with anyio.fail_after(SECONDS):
            await both_printed.wait()
        return await verdict(self, case)

    def spy(self: Execution, entry: LogEntry) -> None:
        log(self, entry)
        if entry.text == "b":
            events.append("held")
            both_printed.set()

    def note(event: Event) -> None:
        events.append(event.entry.text if event.type == "console_output" else event.type)

    monkeypatch.setattr(Checker, "begin", not_at_once)
    monkeypatch.setattr(Checker, "verdict", held)
    monkeypatch.setattr(Execution, "_log", spy)
    program = "console.log('a'); console.log('b'); await tools.record({ n: 5 }); console.log('c')"
    result = await corral.execute(program, on_event=note)
    assert events == [
        "execution_started",
        "held",
        "program_checked",
        "a",
        "b",
        "tool_call_started",
        "tool_call_finished",
        "c",
        "execution_finished",
    ]
    assert result.console == "a\nb\nc\n"


# --- what it takes to be checked


async def test_a_corral_and_a_run_may_go_without_a_check(corral: Corral) -> None:
    unchecked = await corral.execute(HARMLESS["typescript"], check=False)
    assert (unchecked.status, unchecked.checked) == ("succeeded", False)
    async with Corral(ALL, check=False) as without:
        assert (await without.execute(HARMLESS["typescript"])).success
        assert (await without.execute(HARMLESS["typescript"], check="required")).status == "rejected"


@BOTH_LANGUAGES
async def test_a_program_that_must_be_checked_waits_for_the_server(language: Language) -> None:
    async with Corral(ALL, limits=LIMITS, check="required") as corral:
        result = await corral.execute(HARMLESS[language], language=language)
    assert (result.status, result.checked) == ("rejected", True)


async def test_without_a_server_a_program_runs_unchecked_and_is_told_so_unless_it_must_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = [replace(kind, engine=lambda: None) for kind in SERVERS]
    monkeypatch.setattr(Checker.__init__, "__defaults__", (absent,))
    async with Corral(ALL, check=True) as corral:
        result = await corral.execute(HARMLESS["typescript"])
        assert (result.status, result.checked) == ("succeeded", False)
        [remark] = result.diagnostics
        assert (remark.code, remark.severity) == ("unchecked", "info")
        assert "no language server for typescript is installed" in remark.message
        assert "language server" not in result.model_text(), "it is nothing to a model whose program has succeeded"
        with pytest.raises(StartFailed, match=r"no language server for typescript .* `corral doctor`"):
            await corral.execute(HARMLESS["typescript"], check="required")
        assert not (await corral.check(HARMLESS["typescript"])).checked


@BOTH_LANGUAGES
async def test_the_first_program_of_a_corral_is_checked(language: Language) -> None:
    recorded.clear()
    async with Corral(ALL, limits=LIMITS, check=True) as corral:
        result = await corral.execute(REJECTED[language], language=language)
    assert (result.status, result.checked, recorded) == ("rejected", True, [])


@BOTH_LANGUAGES
async def test_the_only_program_of_a_corral_that_is_not_opened_is_checked(language: Language) -> None:
    recorded.clear()
    corral = Corral(ALL, limits=LIMITS, check=True)
    result = await corral.execute(REJECTED[language], language=language)
    assert (result.status, result.checked, recorded) == ("rejected", True, [])
    await corral.aclose()


async def test_a_call_waits_for_a_server_that_starts_while_the_clock_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, start_it = slow_to_start(tmp_path)
    monkeypatch.setattr(Checker.__init__, "__defaults__", ([kind],))
    recorded.clear()
    clocks, stands, paused = list[PausableDeadline](), anyio.Event(), PausableDeadline.paused

    def spy(self: PausableDeadline) -> AbstractContextManager[None]:
        clocks.append(self)
        stands.set()
        return paused(self)

    monkeypatch.setattr(PausableDeadline, "paused", spy)
    async with Corral(ALL, limits=Limits(wall_seconds=SECONDS), check=True) as corral:
        async with corral.start("return await tools.record({ n: 9 })") as run:
            with anyio.fail_after(SECONDS):
                await stands.wait()
            # As if more time passed than the program has.
            monkeypatch.setattr(deadline, "time", Mock(monotonic=lambda: time.monotonic() + SECONDS + 1))
            clocks[0]._scope.deadline -= SECONDS + 1  # pyright: ignore[reportPrivateUsage]
            await anyio.wait_all_tasks_blocked()
            assert recorded == []
            await anyio.to_thread.run_sync(start_it)
            result = await run.result()
        assert (result.value, result.checked, recorded) == (9, True, [9])


async def test_a_program_goes_unchecked_if_the_server_does_not_start_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, start_it = slow_to_start(tmp_path)
    monkeypatch.setattr(Checker.__init__, "__defaults__", ([kind],))
    monkeypatch.setattr(checkers, "_WAIT_SECONDS", 0.1)
    async with Corral(ALL, limits=LIMITS, check=True) as corral:
        nothing = await corral.execute("return 1")
        assert (nothing.checked, nothing.diagnostics) == (True, ()), "it has no name that could be wrong"
        result = await corral.execute(HARMLESS["typescript"])
        assert (result.status, result.checked) == ("succeeded", False)
        assert "did not start in time" in result.diagnostics[-1].message
        await anyio.to_thread.run_sync(start_it)
        assert (await corral.check("return JSON")).checked, "and it starts meanwhile"
        assert (await corral.execute("return typeof JSON")).checked


async def test_a_program_does_not_wait_for_a_server_that_will_not_start_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = replace(SERVERS[0], engine=lambda: Engine(Path("/bin/false")))
    monkeypatch.setattr(servers, "_PAUSES_SECONDS", (0.0, 3600.0))
    checker = Checker([broken])
    try:
        checker.start("typescript", ToolRegistry())
        for _ in range(2):
            assert not wait_for(checker, "typescript", 20)
            server = checker.server("typescript")
            assert server is not None
            server.start()
        with anyio.fail_after(20):
            assert not await anyio.to_thread.run_sync(wait_for, checker, "typescript", SECONDS)
    finally:
        checker.close()


# --- what is known of tools and programs


async def test_the_verdict_on_a_program_is_kept(corral: Corral, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = count_requests(monkeypatch)
    programs = ["return (await tools.record({ n: 7 })) + 1", "return await tools.record({ m: 7 })"]
    first = [await corral.execute(program) for program in programs]
    assert sent.count("textDocument/diagnostic") >= 2
    sent.clear()
    second = [await corral.execute(program) for program in programs]
    assert sent == []
    assert [each.status for each in first] == [each.status for each in second] == ["succeeded", "rejected"]
    assert [each.diagnostics for each in first] == [each.diagnostics for each in second]
    assert [each.checked for each in second] == [True, True]
    assert recorded == [7, 7]


@BOTH_LANGUAGES
async def test_a_tool_that_is_registered_later_is_known(corral: Corral, language: Language) -> None:
    @tool
    async def later(n: int) -> int:
        return n

    program = "return await tools.later({ n: 3 })" if language == "typescript" else "await tools.later(n=3)"
    wrong = program.replace("3", "'three'")
    registry = ToolRegistry(*ALL)

    async def status(program: str) -> str:
        return (await corral.execute(program, language=language, tools=registry, check="required")).status

    assert await status(program) == "rejected"
    registry.register(later)
    assert [await status(program), await status(wrong)] == ["succeeded", "rejected"]
    registry.remove("later")
    assert await status(program) == "rejected"


async def test_a_program_is_checked_against_the_tools_of_its_run(corral: Corral) -> None:
    @tool
    async def only_here() -> int:
        return 3

    program = "return await tools.only_here()"
    assert (await corral.execute(program)).status == "rejected"
    result = await corral.execute(program, tools=[only_here])
    assert (result.value, result.checked) == (3, True)
    assert (await corral.execute("return await tools.record({ n: 1 })", tools=[only_here])).status == "rejected"


async def test_a_program_knows_of_an_environment_if_it_has_one(corral: Corral) -> None:
    program = "return process.env.CITY"
    assert (await corral.execute(program, env={"CITY": "Oslo"})).value == "Oslo"
    without = await corral.execute(program)
    assert without.status == "rejected"
    assert "No environment was passed" in told(without)


# --- many, and ends


async def test_thirty_at_once_have_a_verdict_each(corral: Corral) -> None:
    results: dict[int, ExecutionResult] = {}

    async def run(number: int) -> None:
        language: Language = "python" if number % 3 == 0 else "typescript"
        given = number if number % 2 else f"'n{number}'"
        call = f"tools.record(n={given})" if language == "python" else f"tools.record({{ n: {given} }})"
        program = f"await {call}" if language == "python" else f"return await {call}"
        results[number] = await corral.execute(program, language=language, check="required")

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(run, number)
    assert {number: result.status for number, result in results.items()} == {
        number: "succeeded" if number % 2 else "rejected" for number in range(30)
    }
    assert all(result.checked for result in results.values())
    assert sorted(recorded) == [number for number in range(30) if number % 2]


# Keeps the compiler busy for tenths of a second.
HEAVY = (
    "type Grow<N, L extends unknown[] = []> = L['length'] extends N ? L : Grow<N, [...L, 1]>;\n"
    "const many = null as unknown as [Grow<500>, Grow<501>, Grow<502>]; return typeof many"
)


# --- by itself


@BOTH_LANGUAGES
async def test_a_check_by_itself_runs_nothing(corral: Corral, language: Language) -> None:
    wrong = await corral.check(REJECTED[language], language)
    assert (wrong.passed, wrong.checked, wrong.language) == (False, True, language)
    assert [each.line for each in wrong.diagnostics] == [3]
    assert "would not run" in wrong.model_text()
    assert "line 3" in wrong.model_text()
    right = await corral.check(REJECTED[language].replace("'two'", "2"), language)
    assert (right.passed, right.model_text().splitlines()[0]) == (True, "The program fits the declarations.")
    assert recorded == []


@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("typescript", "return 1; })(); (async () => { return 42"),
        ("python", "class A:\n    def f(self):\n        return tools.record(n=1)['n']\nA().f()"),
        ("typescript", "//" + "x" * 300_000),
        ("python", "#" + "x" * 300_000),
    ],
    ids=["brackets", "not awaited", "long typescript", "long python"],
)
async def test_a_check_by_itself_refuses_what_is_no_program(corral: Corral, language: Language, program: str) -> None:
    result = await corral.check(program, language)
    assert (result.passed, result.checked) == (False, False)
    assert [each.code for each in result.diagnostics] == ["program_rejected"]


async def test_a_check_by_itself_takes_tools_and_an_environment(corral: Corral) -> None:
    @tool
    async def only_here() -> int:
        return 3

    assert (await corral.check("return await tools.only_here()", tools=[only_here])).passed
    assert not (await corral.check("return await tools.only_here()")).passed
    assert (await corral.check("return process.env.A", env=True)).passed
    assert not (await corral.check("return process.env.A")).passed


@BOTH_LANGUAGES
async def test_a_check_by_itself_needs_no_open_corral(language: Language) -> None:
    corral = Corral(ALL)
    result = await corral.check(HARMLESS[language], language)
    assert (result.passed, result.checked) == (False, True)
    await corral.aclose()
    with pytest.raises(ConfigError, match="closed"):
        await corral.check(HARMLESS[language], language)


def test_a_check_by_itself_needs_no_event_loop() -> None:
    with Corral(ALL) as corral:
        assert not corral.sync.check(HARMLESS["typescript"]).passed
        assert corral.sync.check("return await tools.record({ n: 1 })").passed
