"""Servers that do what no server should: bounded, clear, and no harm to others."""

from __future__ import annotations

import logging
import os
import threading
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import mcp.types as types
import pytest
from mcp.server import MCPServer

from corral import Corral, ExecutionContext, Tool
from corral.errors import InvalidArguments, InvalidToolOutput, StartFailed, ToolError
from corral.sandboxes import DenoSandbox
from corral.sources.mcp import McpServer, transports
from corral.sources.mcp import server as connection
from tests.processes import assert_ending, descendants
from tests.sources.mcp.opening import Offered, opened, rogue, unanswered
from tests.until import LIMIT_SECONDS, until

pytestmark = pytest.mark.anyio

DEAD = "the MCP server 'dead' is not connected: it cannot be started: No such file or directory: /nowhere/mcp-server"
LOST = "the MCP server 'rogue' was lost during the call: its process ended with exit code 3"
SECRET = "sk-0123456789abcdef"


@pytest.fixture(scope="module")
async def server(anyio_backend: object):
    os.environ["CORRAL_TEST_SECRET"] = SECRET
    try:
        async with opened(rogue(env={"API_KEY": SECRET, "PLAIN": "1"}, max_message_bytes=100_000)) as offered:
            yield offered
    finally:
        del os.environ["CORRAL_TEST_SECRET"]


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are made again soon."""
    monkeypatch.setattr(connection, "_FIRST_PAUSE_SECONDS", 0.02)


# --- what it sends


async def test_what_is_no_message_is_skipped(server: Offered, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "corral.sources.mcp"):
        assert await server.call("garbage") == "after garbage"
    assert "the MCP server 'rogue': not a message: Listening on port 8080" in caplog.text


async def test_an_answer_that_is_too_large_fails_its_call_only(server: Offered) -> None:
    assert len(await server.call("huge", bytes=90_000)) == 90_000
    with pytest.raises(ToolError, match=r"'rogue' refused the call: its answer is larger than 100000 bytes; ask for"):
        await server.call("huge", bytes=5_000_000)
    assert await server.call("echo", a=1) == {"a": 1}


async def test_an_answer_with_its_id_after_the_result_fails_its_call_and_no_other(server: Offered) -> None:
    async with unanswered(server, "silent"):
        for other in range(200):
            with pytest.raises(ToolError, match="its answer is larger than 100000 bytes"):
                await server.call("result_first", bytes=120_000, other=other)


async def test_a_notification_that_is_too_large_is_no_answer(server: Offered) -> None:
    assert await server.call("huge_notice", bytes=200_000) == "noticed"


async def test_an_answer_that_is_too_deep_fails_its_call_at_once(server: Offered) -> None:
    with pytest.raises(
        ToolError, match=r'its answer is not valid, or too deeply nested; it begins with {"jsonrpc": "2.0", "id"'
    ):
        await server.call("deep")


async def test_answers_with_wrong_ids_are_no_answers(server: Offered) -> None:
    async with unanswered(server, "wrong_ids"):
        assert await server.call("echo", a=1) == {"a": 1}


async def test_a_result_that_the_protocol_does_not_allow_is_delivered_with_a_remark(
    server: Offered, caplog: pytest.LogCaptureFixture
) -> None:
    assert await server.call("misshapen") == "none"
    assert "misshapen returned no list of content, which MCP does not allow; the value was delivered" in caplog.text


async def test_structured_content_must_fit_the_schema_if_that_is_strict(server: Offered) -> None:
    assert await server.call("mismatch") == {"count": "many"}
    async with opened(rogue(validate_output="strict")) as strict:
        with pytest.raises(InvalidToolOutput, match=r'"rogue.mismatch" ran, but .* withheld: count: expected integer'):
            await strict.call("mismatch")


async def test_what_came_is_delivered_where_declared_structured_content_is_missing(server: Offered) -> None:
    assert await server.call("unstructured") == "3"


async def test_a_prompt_of_the_server_is_refused(server: Offered) -> None:
    assert await server.call("prompt") == "Sampling not supported; Elicitation not supported"


async def test_a_failure_of_a_tool_is_its_text_but_not_too_much_of_it(server: Offered) -> None:
    with pytest.raises(ToolError, match=r"^failed: x$"):
        await server.call("fail")
    with pytest.raises(ToolError) as raised:
        await server.call("fail", characters=50_000)
    assert len(str(raised.value)) < 2_100


async def test_errors_do_not_repeat_what_a_server_was_given(server: Offered) -> None:
    with pytest.raises(ToolError, match=r"refused the call: no entry with \[redacted\]$"):
        await server.call("refuse")


@pytest.mark.parametrize("refuse", [True, False], ids=["refused", "failed"])
@pytest.mark.parametrize("characters", [0, 480, 950, 1_990])
async def test_what_a_server_was_given_is_cut_out_before_the_text_is_cut(
    server: Offered, refuse: bool, characters: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "corral.sources.mcp"):
        with pytest.raises(ToolError) as raised:
            await server.call("leak", refuse=refuse, characters=characters)
        await until(lambda: "stderr: " in caplog.text)
    assert SECRET[:5] not in str(raised.value)
    assert SECRET[:5] not in caplog.text


async def test_input_that_is_not_unicode_never_reaches_the_server(server: Offered) -> None:
    with pytest.raises(InvalidArguments, match="not Unicode"):
        await server.call("echo", text="\ud800")
    assert await server.call("echo", a=1) == {"a": 1}


async def test_a_flood_of_messages_does_not_keep_others_waiting() -> None:
    other = MCPServer("other")

    @other.tool()
    def one() -> int:
        return 1

    async with opened(rogue()) as flooding, opened(McpServer("other", server=other)) as calm:
        assert await flooding.call("flood") == "flooding"
        for _ in range(20):
            assert await calm.call("one") == 1


# --- what it writes beside messages, and what it knows


async def test_stderr_goes_to_the_log_and_not_all_of_it(server: Offered, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "corral.sources.mcp"):
        assert await server.call("errors", lines=500) == "written"
    lines = [record.getMessage() for record in caplog.records if "stderr: line" in record.getMessage()]
    assert 1 <= len(lines) <= 40
    assert max(map(len, lines)) < 600


async def test_a_process_gets_nothing_of_the_environment_but_what_is_harmless(server: Offered) -> None:
    environment = await server.call("environment")
    assert SECRET not in [value for name, value in environment.items() if name != "API_KEY"]
    assert environment["PLAIN"] == "1"
    harmless = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "API_KEY", "PLAIN", "LC_CTYPE", "PWD", "SHLVL", "_"}
    assert environment.keys() <= harmless


# --- its end


async def test_a_call_that_is_cancelled_is_cancelled_at_the_server(server: Offered) -> None:
    before = len(await server.call("cancelled"))
    async with unanswered(server, "silent"):
        pass
    cancelled = await server.call("cancelled")
    assert len(cancelled) == before + 1
    assert isinstance(cancelled[-1]["requestId"], int)


@pytest.mark.usefixtures("_hasty")
async def test_a_server_that_dies_fails_its_call_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(rogue()) as offered:
        with pytest.raises(ToolError, match=LOST):
            await offered.call("exit")
        assert "echo" in offered.names
        assert await offered.call("echo", a=1) == {"a": 1}
    assert offered.problems == [
        None,
        "the MCP server 'rogue' is not connected: its process ended with exit code 3",
        None,
    ]
    assert "is not connected: its process ended with exit code 3" in caplog.text


async def test_a_line_that_is_far_too_long_does_not_fill_the_memory(server: Offered) -> None:
    tracemalloc.start()
    try:
        assert await server.call("long_line", bytes=20_000_000) == "after the line"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


async def test_a_server_that_cannot_start_is_a_problem_and_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    missing = McpServer("dead", command=["/nowhere/mcp-server", "--password", SECRET])
    async with opened(missing) as offered:
        assert offered.names == []
        assert offered.problem == DEAD
    assert SECRET not in caplog.text


async def test_a_server_that_ends_at_once_is_a_problem() -> None:
    async with opened(rogue("dies")) as offered:
        assert offered.problem == "the MCP server 'rogue' is not connected: its process ended with exit code 7"


async def test_a_server_that_never_answers_is_waited_for_no_longer_than_said() -> None:
    async with opened(rogue("mute", connect_timeout_seconds=0.3)) as offered:
        assert offered.problem == "the MCP server 'rogue' is not connected: it did not answer within 0.3 s"


async def test_a_required_server_that_is_not_there_stops_the_opening() -> None:
    with pytest.raises(StartFailed, match="'rogue' is not connected: its process ended with exit code 7"):
        async with opened(rogue("dies", required=True)):
            pass


async def test_closing_ends_the_process_and_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "_GRACE_SECONDS", 0.05)
    async with opened(rogue("stubborn")) as offered:
        pids = await offered.call("spawn")
    assert_ending(pids)


@pytest.mark.usefixtures("_hasty")
async def test_closing_does_not_wait_for_a_connection_that_is_being_made(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(LIMIT_SECONDS):
            async with opened(rogue("once", str(first), str(second), connect_timeout_seconds=3_600)) as offered:
                with pytest.raises(ToolError, match=LOST):
                    await offered.call("exit")
                tasks.start_soon(offered.call, "echo")
                await until(second.exists)
                tasks.cancel_scope.cancel()


async def test_an_opening_that_is_cancelled_leaves_no_process() -> None:
    before = descendants().keys()
    started: set[int] = set()

    async def open_mute() -> None:
        async with opened(rogue("mute")):
            raise AssertionError("it never answers")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_mute)
        await until(lambda: descendants().keys() - before)
        started |= descendants().keys() - before
        tasks.cancel_scope.cancel()
    assert_ending(started)


# --- its list of tools


async def test_schemas_that_cannot_be_used_are_loosened(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(rogue("schemas")) as offered:
        assert offered.names == ["dialect", "old", "invalid", "remote", "large", "odd", "twice"]
        for name in ("dialect", "old", "invalid", "remote", "large"):
            assert await offered.call(name, a=1) == {"a": 1}
        assert len(offered.tool("large").description) <= 4_001
        assert offered.tool("odd").output_schema is None
        assert offered.tool("twice").description == "first"
        with pytest.raises(InvalidArguments):
            await offered.tool("invalid").parse_input([])
    for part in (
        "'invalid': input schema is not a JSON Schema",
        "'large': input schema is ignored: it has 200",
        "'???'",
    ):
        assert part in caplog.text


async def test_pages_without_an_end_are_given_up() -> None:
    async with opened(rogue("endless")) as offered:
        assert len(offered.names) == 100


async def test_a_list_is_bounded_over_all_of_its_pages_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def validate(line: bytes, **options: Any) -> Any:
        parsed.append(len(line))
        return whole.validate_json(line, **options)

    whole = transports.jsonrpc_message_adapter
    monkeypatch.setattr(transports, "jsonrpc_message_adapter", SimpleNamespace(validate_json=validate))
    async with opened(rogue("dense")) as offered:
        assert offered.names == []
        assert (
            offered.problem == "the MCP server 'rogue' is not connected: its list of tools is larger than 4000000 bytes"
        )
    assert 1_000_000 < sum(parsed) < 4_100_000


async def test_a_list_that_has_grown_too_large_leaves_the_tools_there_were(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(rogue()) as server:
        before = server.names
        await server.call("change", characters=4_500_000)
        said = "does not list its tools again: its list of tools is larger than 4000000 bytes"
        await until(lambda: said in caplog.text)
        assert server.names == before
        assert await server.call("huge", bytes=10) == "x" * 10


async def test_too_many_tools_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(rogue("many")) as offered:
        assert len(offered.names) == 1_000
    assert "only the first 1000 are offered" in caplog.text


async def test_schemas_that_are_too_large_together_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(rogue("heavy")) as offered:
        whole = [name for name in offered.names if "properties" in (offered.tool(name).input_schema or {})]
        assert (len(offered.names), len(whole)) == (25, 22)
        assert await offered.call("tool_24", a=1) == {"a": 1}
    [said] = [each.getMessage() for each in caplog.records if "schemas" in each.getMessage()]
    assert (
        "the MCP server 'rogue': the schemas of 3 tools are ignored: all schemas together can have at most 2000000 bytes; select fewer with include"
        in said
    )


async def test_a_storm_of_changes_is_followed_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_RELIST_PAUSE_SECONDS", 0.02)
    offered = Offered(rogue("storm"))
    times: list[float] = []

    def offer(tools: Iterable[Tool], *, problem: str | None = None) -> None:
        offered(tools, problem=problem)
        times.append(anyio.current_time())

    async with rogue("storm").open(offer):
        await until(lambda: "tool_6" in offered.names)
    pauses = [later - earlier for earlier, later in pairwise(times[1:6])]
    assert [pause >= 0.02 * 2**number for number, pause in enumerate(pauses)] == [True] * 4


async def test_tools_are_made_while_others_run() -> None:
    loop_thread, made_in = threading.get_ident(), list[int]()

    def take(tool: types.Tool) -> bool:
        made_in.append(threading.get_ident())
        return True

    async with opened(rogue(include=take)):
        assert made_in
        assert loop_thread not in made_in


async def test_a_list_that_breaks_the_protocol_is_read_as_far_as_possible() -> None:
    async with opened(rogue("broken")) as offered:
        assert offered.names == ["untyped", "bare", "listed"]
        assert offered.tool("bare").read_only
        assert await offered.call("untyped", a=1) == {"a": 1}
        with pytest.raises(InvalidArguments):
            await offered.tool("untyped").parse_input({"a": "1"})


async def test_a_change_of_the_list_is_offered(server: Offered) -> None:
    async with opened(rogue()) as offered:
        assert await offered.call("change") == "changed"
        await until(lambda: "added" in offered.names)
        assert await offered.call("added", a=1) == {"a": 1}


# --- in programs


async def test_a_program_meets_a_dead_server_and_goes_on_with_others(warm_deno: DenoSandbox) -> None:
    other = MCPServer("other")

    @other.tool()
    def one() -> int:
        return 1

    program = """
    const found: unknown[] = [];
    const attempt = async (call: () => Promise<unknown>) => {
      try { found.push(await call()); } catch (error) { found.push((error as Error).message); }
    };
    await attempt(() => tools.dead.anything());
    await attempt(() => tools.rogue.silent());
    await attempt(() => tools.rogue.exit());
    await attempt(() => tools.other.one());
    return found;
    """
    servers = [
        McpServer("dead", command=["/nowhere/mcp-server"]),
        rogue(timeout_seconds=0.5),
        McpServer("other", server=other),
    ]
    async with Corral(servers, sandbox=warm_deno, check=False) as corral:
        result = await corral.execute(program, context=ExecutionContext(user_id="ada"))
    assert result.raise_for_error().value == [
        f'no tool "dead.anything": {DEAD}',
        "tools.rogue.silent did not answer within 0.5 s; it may have taken effect",
        f"{LOST}; the call may have taken effect",
        1,
    ]
