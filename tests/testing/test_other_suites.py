"""The conformance suites of sandboxes, sinks and sources, run on what there is; and the stand-ins for tests of hosts."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import anyio
import pytest

from corral import Corral, Limits, ToolError, tool
from corral.audit import AuditEvent, AuditFilter, AuditSink, JsonLinesSink, SqliteSink, open_audit
from corral.containment import ContainmentKind
from corral.errors import StartFailed
from corral.sandboxes import CPythonSandbox, DenoSandbox, SandboxProvider
from corral.sandboxes.deno import UnjailedDeno
from corral.sandboxes.monty import MontySandbox
from corral.sandboxes.wasm import WasmSandbox
from corral.testing import (
    BridgeMessageSuite,
    BridgeStreamSuite,
    BridgeSuite,
    CallFailed,
    FakeGuest,
    FakeSandbox,
    SandboxSuite,
    ScriptedModel,
    SinkSuite,
    SourceSuite,
)
from corral.tools import Offer, ToolSource

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "bridges.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "sandbox_provider" / "plain_sandbox.py"


def plain_example() -> Any:
    """The module with the example of a provider, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("plain_sandbox", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documentation_counts_the_tests_of_bridges() -> None:
    def tests(suite: type[BridgeSuite]) -> int:
        return sum(name.startswith("test_") for name in dir(suite))

    calls, streams, messages = (tests(suite) for suite in (BridgeSuite, BridgeStreamSuite, BridgeMessageSuite))
    text = DOCUMENTATION.read_text("utf-8")
    counted = f"{calls}: ", f"{streams - calls}: ", f"{messages - calls}: "
    assert [text.count(f" | {each}") for each in counted] == [1, 1, 1]
    assert f"{streams + messages - calls} tests" in text


class Entered(SandboxSuite):
    """The suite on one provider that stays open."""

    opened: ClassVar[SandboxProvider]

    @classmethod
    def made(cls) -> SandboxProvider:
        raise NotImplementedError

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    async def entered(cls, anyio_backend: object) -> AsyncGenerator[None]:
        async with cls.made() as cls.opened:
            yield

    def provider(self) -> SandboxProvider:
        return self.opened


@pytest.mark.matrix("tests/e2e runs such programs in this engine, in the gate; here the suite of extensions")
@pytest.mark.anyio
class TestDeno(Entered):
    @classmethod
    def made(cls) -> SandboxProvider:
        return DenoSandbox(isolation="fork", pool_size=1)


@pytest.mark.matrix("TestDeno says it of this engine; here each program has a process instead of a fork")
@pytest.mark.anyio
class TestDenoProcesses(Entered):
    @classmethod
    def made(cls) -> SandboxProvider:
        return DenoSandbox(isolation="process", pool_size=0)


@pytest.mark.matrix("TestDeno says it of this engine; here it has no jail")
@pytest.mark.anyio
class TestDenoWithoutJail(SandboxSuite):
    def provider(self) -> SandboxProvider:
        return UnjailedDeno(allow_eval=False, allow_wasm=False)


@pytest.mark.matrix("tests/sandboxes/test_wasm.py runs such programs in the gate; here the suite of extensions")
@pytest.mark.anyio
class TestWasm(Entered):
    @classmethod
    def made(cls) -> SandboxProvider:
        return WasmSandbox(pool_size=0)


@pytest.mark.matrix("tests/e2e runs such programs in this engine, in the gate; here the suite of extensions")
@pytest.mark.anyio
class TestCPython(Entered):
    language = "python"

    @classmethod
    def made(cls) -> SandboxProvider:
        return CPythonSandbox(pool_size=0)


@pytest.mark.anyio
class TestMonty(SandboxSuite):
    language = "python"

    def provider(self) -> SandboxProvider:
        return MontySandbox()


@pytest.mark.matrix(
    "tests/sandboxes/test_channels.py runs programs in this example; here it is held to the whole suite"
)
@pytest.mark.anyio
class TestExample(SandboxSuite):
    def provider(self) -> SandboxProvider:
        return cast("SandboxProvider", plain_example().PlainSandbox())


@pytest.mark.anyio
class TestExampleInPython(TestExample):
    language = "python"


async def all_the_same(_: FakeGuest) -> object:
    return 1


class Careless(SandboxSuite):
    def provider(self) -> SandboxProvider:
        return FakeSandbox(all_the_same)


@pytest.mark.anyio
async def test_a_sandbox_that_runs_no_program_passes_no_case() -> None:
    passed: list[str] = []
    for name in dir(Careless):
        if name.startswith("test_"):
            try:
                await getattr(Careless(), name)()
            except AssertionError:
                continue
            passed.append(name)
    assert passed == []


class FileSink(SinkSuite):
    name: str

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / self.name

    async def stored(self) -> Sequence[AuditEvent]:
        return await stored_in(self.path)


async def stored_in(path: Path) -> list[AuditEvent]:
    reader = open_audit(str(path))
    try:
        return list(await reader.read(AuditFilter(), 100))
    finally:
        await reader.aclose()


@pytest.mark.anyio
class TestJsonLines(FileSink):
    name = "audit.jsonl"

    def sink(self) -> AuditSink:
        return JsonLinesSink(self.path)


@pytest.mark.anyio
class TestSqlite(FileSink):
    name = "audit.sqlite"

    def sink(self) -> AuditSink:
        return SqliteSink(self.path)


class Forgetful(SinkSuite):
    """Of each file of events only the last writing stays."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sink(self) -> AuditSink:
        self.path.unlink(missing_ok=True)
        return JsonLinesSink(self.path)

    async def stored(self) -> Sequence[AuditEvent]:
        return (await stored_in(self.path))[:4]


@pytest.mark.anyio
async def test_a_sink_that_loses_events_fails(tmp_path: Path) -> None:
    for case in (
        Forgetful.test_events_come_back_as_they_were,
        Forgetful.test_a_new_sink_goes_on_where_the_last_one_ended,
    ):
        with pytest.raises(AssertionError):
            await case(Forgetful(tmp_path / "audit.jsonl"))


class Clock(ToolSource):
    namespace = "clock"

    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        @tool(namespace="clock")
        async def hour() -> int:
            """Tells the hour."""
            return 12

        offer([hour])
        yield


@pytest.mark.anyio
class TestSource(SourceSuite):
    program = "return await tools.clock.hour()"
    expected = 12

    def source(self) -> ToolSource:
        return Clock()


class Stopped(Clock):
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        yield


@pytest.mark.anyio
async def test_a_source_that_offers_nothing_fails() -> None:
    class Suite(SourceSuite):
        def source(self) -> ToolSource:
            return Stopped()

    with pytest.raises(AssertionError, match="the source must offer its tools before its block begins"):
        await Suite().test_its_tools_are_there_while_it_is_open()


# --- stand-ins


@tool
async def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool
async def refuse() -> None:
    """Refuses."""
    raise ToolError("not today")


async def program(guest: FakeGuest) -> object:
    guest.log(f"env {guest.env}")
    total = await guest.call("add", {"a": 1, "b": 2})
    try:
        await guest.call("refuse")
    except CallFailed as failed:
        return {"total": total, "code": failed.error.code, "source": guest.source}
    return None


@pytest.mark.anyio
async def test_a_function_stands_for_a_program() -> None:
    async with Corral([add, refuse], sandbox=FakeSandbox(program), check=False) as corral:
        result = await corral.execute("return 1", env={"MODE": "test"})
    assert result.value == {"total": 3, "code": "tool_error", "source": "return 1"}
    assert result.console == "env {'MODE': 'test'}\n"
    assert [(call.name, call.error is None) for call in result.tool_calls] == [("add", True), ("refuse", False)]
    assert result.containment == "fake"


@pytest.mark.anyio
async def test_a_fake_ends_as_a_program_would() -> None:
    async def fails(_: FakeGuest) -> object:
        raise LookupError("no such row")

    async def refused(guest: FakeGuest) -> object:
        return await guest.call("refuse")

    async def endless(_: FakeGuest) -> object:
        await anyio.sleep_forever()

    async def strange(_: FakeGuest) -> object:
        return object()

    ends: list[tuple[str, str | None]] = []
    for each in (fails, refused, endless, strange):
        limits = Limits(wall_seconds=0.05 if each is endless else 60)
        corral = Corral([refuse], sandbox=FakeSandbox(each), check=False, limits=limits)
        result = await corral.execute("return 1")
        ends.append((result.status, result.error and result.error.code))
    assert ends == [
        ("failed", "program_failed"),
        ("failed", "tool_error"),
        ("timed_out", "program_timeout"),
        ("failed", "program_failed"),
    ]


@pytest.mark.anyio
async def test_a_fake_claims_what_a_test_wants() -> None:
    weak = FakeSandbox(program, containment=ContainmentKind("fake", "process"))
    with pytest.raises(StartFailed, match="below the required tier"):
        await Corral([add], sandbox=weak, check=False).execute("return 1")


@pytest.mark.anyio
async def test_a_scripted_model_reads_what_a_model_would(warm_deno: DenoSandbox) -> None:
    def corrected(text: str) -> str:
        assert "not a function" in text or "missing" in text, text
        return "return await tools.add({ a: 20, b: 1 })"

    async with Corral([add], sandbox=warm_deno, check=False) as corral:
        texts = await ScriptedModel("return await tools.missing()", corrected).converse(corral.model.tools()[0])
    assert "missing" in texts[0]
    assert "21" in texts[1]
