"""What becomes of a call's result: what is delivered, what is withheld, and what a model is told that has run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from langchain_core.tools import StructuredTool
from mcp.server import MCPServer
from pydantic import BaseModel, SecretStr

from corral import Corral, ExecutionContext, ExecutionResult, Limits, Tool, ToolError, define_tool, tool, tools_from
from corral.audit import AuditEvent, AuditLog
from corral.errors import ConfigError, ToolDefinitionError
from corral.sandboxes import DenoSandbox
from corral.sandboxes.selection import Sandboxes
from corral.sources.mcp import McpServer
from corral.types import Language
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio

SENT: list[dict[str, Any]] = []
RECEIPT = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


class Receipt(BaseModel):
    id: int


def returning(name: str, value: object, output_schema: object = None, **settings: Any) -> Tool:
    def execute(input: dict[str, Any]) -> object:
        SENT.append(input)
        return value

    return define_tool(name=name, output_schema=output_schema, execute=execute, **settings)


@tool
def typed() -> Receipt:
    """Returns what it does not say."""
    return {"id": "seven"}  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


@tool
def text() -> str:
    """Returns JSON, as a text."""
    return '{"items": [1, 2]}'


def unannotated():
    """Returns JSON."""
    return '{"items": [1, 2]}'


@tool(timeout_seconds=0.2)
async def slow(to: str) -> None:
    """Takes for ever."""
    await anyio.sleep_forever()


@tool
def log_in(user: str, pin: SecretStr) -> str:
    """Logs in."""
    return user


@tool
def fail(to: str) -> None:
    """Fails by itself."""
    raise ToolError("no such address")


@tool
def unsure(to: str) -> None:
    """Asked somebody who did not answer."""
    raise ToolError("the gateway did not answer", outcome_known=False)


@tool
def odd() -> Any:
    """Returns what is not data."""
    return object()


server = MCPServer("s")


@server.tool(structured_output=False)
def mcp_text(value: str) -> str:
    """A text."""
    return value


TOOLS: list[Any] = [
    typed,
    text,
    unannotated,
    slow,
    log_in,
    fail,
    unsure,
    odd,
    McpServer("mcp", server=server),
    returning("send", {"id": "seven"}, RECEIPT),
    returning("send_strictly", {"id": "seven"}, RECEIPT, validate_output="strict"),
    returning("send_unlooked", {"id": "seven"}, RECEIPT, validate_output="off"),
    returning("send_as_text", '{"id": 7}', RECEIPT),
    returning("large", "x" * 2_000),
]


@pytest.fixture(scope="module")
async def corral(warm: Sandboxes) -> AsyncIterator[Corral]:
    async with Corral(TOOLS, sandbox=warm, check=False, limits=Limits(tool_output_bytes=1_000)) as opened:
        yield opened


def codes(result: ExecutionResult) -> list[str | None]:
    return [each.code for each in result.diagnostics]


# --- results that are not as declared


async def test_a_result_that_is_not_as_declared_is_delivered_with_one_remark_for_each_tool(corral: Corral) -> None:
    result = await corral.execute("return [await tools.send(), await tools.send(), await tools.typed()]")
    assert result.value == [{"id": "seven"}] * 3
    assert [each.error for each in result.tool_calls] == [None] * 3
    assert codes(result) == ["output_not_as_declared"] * 2
    assert result.model_text().partition("\n\n")[2] == (
        "Notes:\n"
        "- send returned a value that does not match its output schema: id: expected integer; the value was delivered (and 1 more "
        "time)\n"
        "- typed returned a value that does not match its output schema: id: expected integer; the value was delivered"
    )


async def test_a_strict_result_is_withheld_and_told_as_a_call_that_ran(corral: Corral) -> None:
    result = await corral.execute("await tools.send_strictly({ to: 'ann' })")
    assert result.error is not None
    assert (result.error.code, result.error.message) == (
        "invalid_tool_output",
        'tool "send_strictly" ran, but its result was withheld: id: expected integer',
    )
    told = result.model_text().partition("\n\n")[2]
    assert told == ('Calls that ran, but whose results were withheld; do not repeat them: send_strictly {"to":"ann"}')


async def test_nobody_looks_at_a_result_if_that_is_off_and_a_text_may_say_what_is_declared(corral: Corral) -> None:
    result = await corral.execute("return [await tools.send_unlooked(), await tools.send_as_text()]")
    assert result.value == [{"id": "seven"}, {"id": 7}]
    assert codes(result) == []


async def test_a_failure_says_what_has_run(corral: Corral) -> None:
    wrong = Wrong()
    for program, code, told in [
        ("await tools.large({ to: 'ann' })", "message_too_large", "were withheld; do not repeat them: large {"),
        ("await tools.odd()", "invalid_tool_output", "were withheld; do not repeat them: odd {"),
        ("await tools.slow({ to: 'ann' })", "tool_failed", "may have taken effect before they were cut short"),
        ("await tools.unsure({ to: 'ann' })", "tool_error", "may have taken effect before they were cut short"),
        ("await tools.fail({ to: 'ann' })", "tool_error", 'Calls that failed: fail {"to":"ann"}'),
        ("await tools.fail({ too: 'ann' })", "invalid_arguments", 'Calls that did not run: fail {"too":"ann"}'),
        ("await tools.send({ to: 'ann' }); null.x", "program_failed", 'took effect; do not repeat them: send {"to":'),
        ("await tools.log_in({ user: 'u', pin: '1234' }); null.x", "program_failed", '"pin":"[redacted]"'),
    ]:
        with wrong.case(program):
            result = await corral.execute(program)
            assert result.error is not None
            assert result.error.code == code
            assert told in result.model_text()
            assert "1234" not in result.model_text()
    assert wrong == []


async def test_a_call_that_the_end_cut_short_may_have_run(corral: Corral) -> None:
    result = await corral.execute(
        "const s = tools.slow({ to: 'ann' }); while (true) {}", limits=Limits(cpu_seconds=0.3, tool_output_bytes=1_000)
    )
    assert result.status == "timed_out"
    assert 'Calls that may have taken effect before they were cut short: slow {"to":"ann"}' in (result.model_text())


async def test_the_audit_tells_the_same(warm_deno: DenoSandbox) -> None:
    events: list[AuditEvent] = []
    programs = (
        "await tools.send_strictly()",
        "await tools.large()",
        "await tools.slow({ to: 'a' })",
        "await tools.unsure({ to: 'a' })",
        "await tools.fail({ to: 'a' })",
        "await tools.fail()",
        "await tools.send()",
    )
    limits = Limits(tool_output_bytes=1_000)
    async with Corral(
        TOOLS[:8] + TOOLS[9:], sandbox=warm_deno, check=False, limits=limits, audit=AuditLog(events.extend)
    ) as corral:
        for program in programs:
            await corral.execute(program)
    outcomes = [(each.tool, each.outcome) for each in events if each.kind == "call"]
    assert outcomes == [
        ("send_strictly", "withheld"),
        ("large", "withheld"),
        ("slow", "unknown"),
        ("unsure", "unknown"),
        ("fail", "failed"),
        ("fail", "failed"),
        ("send", "succeeded"),
    ]


def test_other_kinds_of_validation_are_refused_where_they_are_asked_for() -> None:
    with pytest.raises(
        ToolDefinitionError, match="validate_output takes 'warn', 'strict', 'off', True or False, not 'loud'"
    ):
        tool(validate_output="loud")(text.function)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"McpServer\('x'\): validate_output takes 'warn'"):
        McpServer("x", url="http://x", validate_output="loud")  # pyright: ignore[reportArgumentType]


async def test_tools_of_other_libraries_can_be_strict_too(warm_deno: DenoSandbox) -> None:
    def shout(text: str) -> int:
        """Shouts."""
        return text.upper()  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    shouting = StructuredTool.from_function(shout)
    wrong = MCPServer("wrong")

    @wrong.tool()
    def shout_too(text: str) -> dict[str, int]:
        """Shouts."""
        return {"text": len(text)}

    for validation, told in (("warn", None), ("strict", "invalid_tool_output")):
        tools = tools_from(shouting, wrong, validate_output=validation)  # pyright: ignore[reportArgumentType]
        async with Corral(tools, sandbox=warm_deno, check=False) as corral:
            result = await corral.execute(
                "return [await tools.wrong.shout_too({ text: 'a' }), await tools.shout({ text: 'a' })]"
            )
        assert (result.error and result.error.code) == told


# --- texts that are JSON


@pytest.mark.parametrize("written", ['{"a": [1]}', "[1, 2]", "12", "007", "true", '"quoted"', "plain", "{'a': 1}", ""])
async def test_a_text_of_which_nothing_is_declared_is_read_alike_wherever_it_comes_from(
    warm_deno: DenoSandbox, written: str
) -> None:
    def function(input: dict[str, Any]):
        return written

    def anything() -> Any:
        return written

    sources: list[Any] = [
        define_tool(name="defined", execute=function),
        tool(anything),
        tool(name="plain", input_schema={"type": "object"})(function),
        StructuredTool.from_function(name="chained", description="d", func=lambda: written),
    ]
    tools = [*tools_from(*sources), McpServer("mcp", server=server)]
    program = f"""
    return [await tools.defined(), await tools.anything(), await tools.plain(), await tools.chained(),
            await tools.mcp.mcp_text({{ value: {json.dumps(written)} }})]
    """
    async with Corral(tools, sandbox=warm_deno, check=False) as corral:
        value = (await corral.execute(program)).raise_for_error().value
    assert [repr(each) for each in value] == [repr(value[-1])] * 5


@pytest.mark.parametrize(
    ("language", "program", "told"),
    [
        ("typescript", "const r = await tools.text();\nreturn r.items.map((n) => n + 1)", "use JSON.parse(...)"),
        ("python", "r = await tools.text()\nr['items']", "use json.loads(...)"),
        ("python", "r = await tools.text()\nr.get('items')", "use json.loads(...)"),
    ],
)
async def test_a_program_that_trips_over_a_text_is_told_that_it_is_json(
    corral: Corral, language: Language, program: str, told: str
) -> None:
    result = await corral.execute(program, language=language)
    assert result.status == "failed"
    assert f"tools.text returned a JSON string, not an object: {told}" in result.model_text()
    fine = await corral.execute("return (await tools.unannotated()).items.length + (await tools.text()).length")
    assert fine.value == 19
    assert codes(fine) == []


# --- results without an own value


async def test_a_program_that_only_prints_is_not_told_that_it_has_no_result(corral: Corral) -> None:
    result = await corral.execute("const n = 41;\nconsole.log(n + 1);", context=ExecutionContext(user_id="ann"))
    assert codes(result) == ["no_result"]
    assert result.model_text() == "Console:\n42"
    silent = (await corral.execute("const n = 41, m = n;")).model_text()
    assert silent.startswith("Result: null\n\nNotes:\n- The program has no result")


async def test_of_the_console_of_a_program_that_failed_the_model_reads_the_end(corral: Corral) -> None:
    result = await corral.execute(
        "for (let i = 0; i < 2000; i++) console.log(`line ${i}`); throw new Error('stopped');"
    )
    text = result.model_text()
    assert "Console:\nline 0\n" in text
    assert "line 1999" in text
    assert "line 1000" not in text
    assert len(text) < 3_000
