"""What a program says of itself is held to what the host has seen: whether it ran, and what its calls failed with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral import Corral, ExecutionResult, Limits, tool
from corral.errors import ToolError
from corral.events import ToolCallStarted
from corral.sandboxes.selection import Sandboxes
from corral.types import Language
from tests.wrong import Wrong

pytestmark = pytest.mark.anyio

PAID: list[int] = []
FRAMES = """
import gc, os, struct, time
gc.unfreeze()
pipes = next(each for each in gc.get_objects() if type(each).__name__ == "Pipes")
def send(kind, payload):
    os.write(3, struct.pack(">IBB16s", 18 + len(payload), kind, 0, pipes._nonce) + payload)
def answered():
    os.read(3, 1 << 16)
"""
"""The guest's own way to the host, in the hands of a program."""


@tool
async def pay(euros: int) -> str:
    """Pays."""
    PAID.append(euros)
    return "done"


@tool
async def fail() -> str:
    """Fails."""
    raise ToolError("no")


@tool(scopes={"admin"})
async def secret() -> str:
    return "secret"


@tool(needs_approval=True)
async def approved() -> str:
    return "approved"


@pytest.fixture(scope="module")
async def opened() -> AsyncIterator[Corral]:
    async with Corral([pay, fail, secret, approved], check=False) as corral:
        yield corral


def throwing(code: str) -> dict[str, tuple[Language, str]]:
    """Programs that pay, and throw the error of a call with a code of their own."""
    typescript = f"""
        await tools.pay({{ euros: 100 }});
        try {{ await tools.fail({{}}); }} catch (error) {{ error.code = "{code}"; throw error; }}"""
    python = f"""
await tools.pay(euros=100)
try:
    await tools.fail()
except ToolError as error:
    error.code = "{code}"
    raise"""
    sent = f'send(19, b\'["error",["{code}","X","x","",null],[],0,[]]\'); time.sleep(60)'
    forged = f'{FRAMES}\nsend(17, b\'[1,"pay",{{"euros":100}}]\'); answered(); {sent}'
    return {"typescript": ("typescript", typescript), "python": ("python", python), "forged": ("python", forged)}


CODES = (
    *("program_rejected", "program_timeout", "cancelled", "scope_denied", "approval_denied", "rate_limited"),
    *("invalid_token", "access_denied", "tool_failed", "invalid_tool_output", "sandbox_lost", "start_failed"),
)


@pytest.mark.parametrize("kind", ["typescript", "python", "forged"])
async def test_a_code_that_no_call_failed_with_is_only_a_failure(opened: Corral, kind: str) -> None:
    wrong = Wrong()
    for code in CODES:
        language, program = throwing(code)[kind]
        with wrong.case(code):
            PAID.clear()
            result = await opened.execute(program, language=language)
            assert PAID == [100]
            assert result.error is not None
            assert (result.status, result.error.code) == ("failed", "program_failed")
            assert "nothing ran" not in result.model_text()
            assert "Calls that took effect; do not repeat them" in result.model_text()
    assert wrong == []


@pytest.mark.parametrize(
    ("language", "program"), [("typescript", "await tools.approved({})"), ("python", "await tools.approved()")]
)
async def test_a_code_that_a_call_failed_with_is_that_of_its_program(
    opened: Corral, language: Language, program: str
) -> None:
    result = await opened.execute(program, language=language)
    assert result.error is not None
    assert (result.status, result.error.code) == ("failed", "approval_denied")


async def test_a_program_that_ran_cannot_say_that_it_did_not(opened: Corral) -> None:
    wrong = Wrong()
    for before in ['send(17, b\'[1,"pay",{"euros":1}]\'); answered()', "print('ran')"]:
        with wrong.case(before):
            said = 'b\'["rejected",["program_rejected","SyntaxError","invalid syntax","",null],[],0,[]]\''
            result = await opened.execute(f"{FRAMES}\n{before}\nsend(19, {said}); time.sleep(60)", language="python")
            assert result.error is not None
            assert (result.status, result.error.code) == ("failed", "malformed_message")
    assert wrong == []


@pytest.mark.parametrize(
    ("outcome", "ends_with"),
    [
        ('["value",1,[[1,"pay",null,"",false],[7,"fail",null,"",false]],0,[]]', [("pay", 1), ("fail", 0)]),
        ('["value",1,[[1,"fail",null,"",false]],0,[]]', None),
    ],
)
async def test_calls_left_behind_are_those_that_were_made(
    opened: Corral, outcome: str, ends_with: list[tuple[str, int]] | None
) -> None:
    call = 'send(17, b\'[1,"pay",{"euros":1}]\'); answered()'
    result = await opened.execute(f"{FRAMES}\n{call}\nsend(19, b'{outcome}'); time.sleep(60)", language="python")
    if ends_with is None:
        assert result.error is not None
        assert result.error.code == "malformed_message"
    else:
        assert [(each.tool, each.sequence) for each in result.unawaited] == ends_with


async def _numbers(corral: Corral, language: Language, program: str, calls_in_flight: int) -> ExecutionResult:
    events: list[int] = []

    def observe(event: object) -> None:
        if isinstance(event, ToolCallStarted):
            events.append(event.call.sequence)

    limits = Limits(calls_in_flight=calls_in_flight)
    result = await corral.execute(program, language=language, limits=limits, on_event=observe)
    numbers = [each.sequence for each in result.tool_calls]
    assert numbers == events == list(range(1, len(numbers) + 1))
    return result


async def test_calls_that_were_given_up_before_they_left_leave_no_gap(opened: Corral) -> None:
    program = """
import asyncio
first = asyncio.ensure_future(tools.pay(euros=1))
others = [asyncio.ensure_future(tools.pay(euros=number)) for number in range(2, 6)]
await asyncio.sleep(0)
others[0].cancel(); others[2].cancel()
await first
await asyncio.gather(*others, return_exceptions=True)
await tools.pay(euros=6)
"""
    result = await _numbers(opened, "python", program, calls_in_flight=1)
    assert [each.input for each in result.tool_calls] == [{"euros": number} for number in (1, 3, 5, 6)]


async def test_calls_made_while_a_reply_is_taken_are_numbered_as_they_leave(opened: Corral) -> None:
    program = """
        let more = 3;
        const calls = [1, 2, 3].map(() => tools.search({ query: "pay" }));
        Object.defineProperty(Object.prototype, "then", {
            configurable: true,
            get() { if (more-- > 0) calls.push(tools.pay({ euros: 9 })); return undefined; },
        });
        while (calls.length) await calls.shift();
        delete Object.prototype.then;"""
    result = await _numbers(opened, "typescript", program, calls_in_flight=1)
    assert result.status == "succeeded", result.error
    assert len(result.tool_calls) == 6


async def test_the_audit_says_what_the_host_has_seen(warm: Sandboxes, tmp_path: Path) -> None:
    async with Corral([pay, fail], sandbox=warm, check=False, audit=str(tmp_path / "audit.jsonl")) as corral:
        for code in ("program_rejected", "approval_denied", "cancelled", "scope_denied"):
            language, program = throwing(code)["python"]
            await corral.execute(program, language=language)
    ended = [
        each
        for each in map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
        if each["kind"] == "execution"
    ]
    assert [(each["outcome"], each["code"]) for each in ended] == [("failed", "program_failed")] * 4
