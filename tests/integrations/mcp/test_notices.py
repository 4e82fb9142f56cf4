"""What a client hears of its program while it runs."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPDeprecationWarning
from typing_extensions import override

from corral import Corral
from corral.events import Event, ExecutionFinished
from corral.integrations.mcp import mcp_server
from corral.integrations.mcp import server as notifications
from tests.integrations.mcp.serving import MODES, listening, make_corral, run

pytestmark = pytest.mark.anyio


class Ears:
    """What a client hears, in order."""

    def __init__(self) -> None:
        self.progress: list[tuple[float, str | None]] = []
        self.printed: list[tuple[str, Any]] = []

    async def hear_progress(self, progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        self.progress.append((progress, message))

    async def hear_log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Takes a message, which has as many lines of one level as came together."""
        assert params.logger == "program"
        self.printed += [(params.level, line) for line in params.data.split("\n")]


@pytest.fixture(scope="module")
async def corral() -> AsyncIterator[Corral]:
    async with make_corral() as corral:
        yield corral


@pytest.mark.parametrize("mode", MODES)
async def test_each_call_is_told_as_it_begins_and_ends(corral: Corral, mode: str) -> None:
    ears = Ears()
    async with Client(mcp_server(corral), mode=mode) as client:
        await run(client, "await tools.add({ a: 1, b: 2 });\nawait tools.fail();", progress_callback=ears.hear_progress)
    assert [progress for progress, _ in ears.progress] == [1, 2, 3, 4]
    begun, ended, second, failed = (message or "" for _, message in ears.progress)
    assert begun == 'add {"a":1,"b":2}'
    assert ended.startswith("add: ")
    assert ended.endswith(" ms")
    assert (second, failed) == ("fail {}", "fail: it is closed")


@pytest.mark.parametrize("mode", MODES)
async def test_the_latest_progress_that_a_tool_reports_is_told_between_them(corral: Corral, mode: str) -> None:
    ears = Ears()
    async with Client(mcp_server(corral), mode=mode) as client:
        await run(client, "await tools.book();", progress_callback=ears.hear_progress)
        await run(client, "await tools.book();")
    begun, *reported, ended = (message or "" for _, message in ears.progress)
    assert begun == "book {}"
    assert set(reported) <= {"book: 1/2 reserving", "book: 2/2 booking"}
    assert reported[-1] == "book: 2/2 booking"
    assert ended.startswith("book: ")
    assert [number for number, _ in ears.progress] == list(range(1, len(ears.progress) + 1))


PRINTS = (
    "console.debug('a'); console.log('b'); console.info('c'); console.warn('d'); console.error('e'); console.log('f')"
)


async def test_what_is_printed_is_told_line_by_line_with_its_level(corral: Corral) -> None:
    ears = Ears()
    async with Client(mcp_server(corral), mode="legacy", logging_callback=ears.hear_log) as client:
        await run(client, PRINTS)
    assert ears.printed == [*zip(("debug", "info", "info", "warning", "error", "info"), "abcdef", strict=True)]


async def test_a_client_of_the_handshake_era_sets_a_level(corral: Corral) -> None:
    ears, others = Ears(), Ears()
    async with (
        listening(mcp_server(corral)) as url,
        Client(url, mode="legacy", logging_callback=ears.hear_log) as client,
        Client(url, mode="legacy", logging_callback=others.hear_log) as other,
    ):
        with pytest.warns(MCPDeprecationWarning, match="logging"):
            await client.session.set_logging_level("warning")  # pyright: ignore[reportDeprecated]
        await run(client, PRINTS)
        await run(other, PRINTS)
    assert ears.printed == [("warning", "d"), ("error", "e")]
    assert len(others.printed) == 6


@pytest.mark.parametrize(("level", "heard"), [(None, []), ("error", [("error", "e")])])
async def test_a_client_of_today_opts_in(corral: Corral, level: Any, heard: list[Any]) -> None:
    ears = Ears()
    async with Client(mcp_server(corral), logging_callback=ears.hear_log, log_level=level) as client:
        await run(client, PRINTS)
    assert ears.printed == heard


class Deaf(Ears):
    """Hears nothing until a program has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = anyio.Event()

    def watch(self, event: Event) -> None:
        if isinstance(event, ExecutionFinished):
            self.ended.set()

    @override
    async def hear_progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self.ended.wait()
        await super().hear_progress(progress, total, message)


async def test_a_flood_is_cut_and_does_not_hold_up_the_program(corral: Corral, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "_PAUSE_SECONDS", math.inf)  # one burst while it runs, and one at its end
    ears = Deaf()
    flood = "for (let n = 0; n < 10_000; n++) { console.log(n); console.warn(n) } return 'done'"
    calls = "await Promise.all(Array.from({ length: 200 }, (_, n) => tools.add({ a: n, b: 1 })));"
    with corral.observe(ears.watch):
        async with Client(mcp_server(corral), mode="legacy", logging_callback=ears.hear_log) as client:
            result = await run(client, calls + flood, progress_callback=ears.hear_progress)
    assert result.structured_content["value"] == "done"
    assert 0 < len(ears.printed) + len(ears.progress) <= 202  # with a line each on what is not shown
    assert any("not shown" in (message or "") for _, message in ears.progress)
