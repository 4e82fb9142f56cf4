"""What a model reads of a result: where it failed, why, what to do, and what was done already."""

from __future__ import annotations

import json
from typing import Any

import pytest

from corral import Corral, ExecutionResult, Limits
from corral.results import CallRecord, Diagnostic, ExecutionError
from corral.types import CallError, CallState

pytestmark = pytest.mark.anyio


def result(*, status: Any = "succeeded", **fields: Any) -> ExecutionResult:
    return ExecutionResult(execution_id="x", status=status, language="typescript", **fields)


NULL = ExecutionError(code="program_failed", name="TypeError", message="x is null", line=3, column=5)


def failed(*, error: ExecutionError = NULL, **fields: Any) -> ExecutionResult:
    return result(status="failed", error=error, **fields)


def call(name: str, input: object, code: str | None = None, state: CallState = "raised", **fields: Any) -> CallRecord:
    error = None if code is None else CallError(code=code, name="E", message="no")
    return CallRecord(name=name, sequence=1, input=input, started=0.0, error=error, state=state, **fields)


# --- values


def test_a_text_of_several_lines_is_shown_as_it_is() -> None:
    assert result(value='# Report\n\nIt is "cold".\n').model_text() == 'Result:\n# Report\n\nIt is "cold".'
    assert result(value='It is "cold".').model_text() == 'Result: "It is \\"cold\\"."'


@pytest.mark.parametrize("value", ['{"a":["b",1]}', "[]", '[{"a":"\\u00e9"}]'])
def test_a_text_that_is_json_is_shown_as_it_is(value: str) -> None:
    assert result(value=value).model_text() == f"Result: {value}"


@pytest.mark.parametrize("value", ["{a}", "[x", "5", "null", "[" * 500 + "]" * 500, '{"\ud800"}'])
def test_any_other_text_is_told_from_a_value_by_its_quotes(value: str) -> None:
    assert result(value=value).model_text().startswith('Result: "')


def test_a_long_text_that_is_json_is_shortened_as_the_value_that_it_spells() -> None:
    text = result(value=json.dumps(list(range(1000)))).model_text(100)
    assert text.startswith("Result, shortened from 4890 characters: [0,1,2")
    assert text.endswith("]")


@pytest.mark.parametrize(
    ("value", "size"), [([10] * 1000, 3001), ("x" * 1000, 1002), ("x\n" * 500, 1000)], ids=["list", "line", "lines"]
)
def test_a_value_that_is_shortened_says_so_with_its_size(value: object, size: int) -> None:
    text = result(value=value).model_text(200)
    assert text.startswith(f"Result, shortened from {size} characters:")
    assert len(text) < 260


def test_the_text_can_be_encoded_whatever_the_value_holds() -> None:
    assert result(value="\ud800\n").model_text().encode() == b"Result:\n?"


# --- errors


def test_the_place_is_named_once_and_a_stack_is_shown_if_it_says_more() -> None:
    error = ExecutionError(
        code="program_failed", name="E", message="m", line=1, column=2, stack="    at program.ts:1:2"
    )
    assert failed(error=error).model_text() == "The program failed at line 1, column 2.\nE: m"
    stack = "    at f (program.ts:1:2)\n    at program.ts:9:1"
    error = ExecutionError(code="program_failed", name="E", message="m", line=1, column=2, stack=stack, cause="E2: n")
    assert (
        failed(error=error).model_text() == f"The program failed at line 1, column 2.\nE: m\n{stack}\nCaused by: E2: n"
    )


@pytest.mark.parametrize(
    ("program", "limits", "told"),
    [
        (
            "await tools.nope({})",
            {},
            (
                "The program failed at line 1, column 13.\n"
                'ToolNotFound: no tool "nope"; there are: add, ask, forbid, look_up, who\n'
                'Use names as they are declared; await tools.search("words") finds them.\n\n'
                "Calls that did not run: nope {}"
            ),
        ),
        (
            "await tools.forbid()",
            {},
            (
                "The program was rejected at line 1, column 13; nothing ran.\n"
                "ScopeDenied: tools.forbid needs the scope admin\n"
                "This caller may not use it in any way: do without it."
            ),
        ),
        (
            "await tools.ask()",
            {},
            (
                "The program failed at line 1, column 13.\n"
                "ApprovalDenied: tools.ask requires approval, but no one is available to approve it\n"
                "Do not call it again unless you are asked to.\n\n"
                "Calls that did not run: ask {}"
            ),
        ),
        (
            "for (let a = 0; ; a++) await tools.add({ a, b: 1 })",
            {"calls": 3},
            (
                "The program failed at line 1, column 36.\n"
                "CallBudgetExceeded: the budget of 3 tool calls is used up, so tools.add was not called\n"
                "Make fewer calls in one program; do the rest in another.\n\n"
                "Calls that took effect; do not repeat them: "
                'add ×3: {"a":0,"b":1}, {"a":1,"b":1}, {"a":2,"b":1}'
            ),
        ),
        (
            "return 'x'.repeat(2000)",
            {"value_bytes": 100},
            "Return less: only the parts or totals you need.",
        ),
        (
            "while (true) {}",
            {"wall_seconds": 0.3},
            (
                "The program timed out.\n"
                "ProgramTimeout: the program exceeded its time limit of 0.3 s\n"
                "Do less in one program, and make independent calls concurrently."
            ),
        ),
        (
            "await new Promise(() => {})",
            {},
            (
                "The program failed.\n"
                "Deadlock: the program waits for a promise that nothing will settle: no tool call or timer is pending\n"
                "Await only tool calls, timers, and promises that the program itself settles."
            ),
        ),
        (
            "const a = ;",
            {},
            "The program was rejected at line 1, column 11; nothing ran.\nSyntaxError: Unexpected token ';'",
        ),
    ],
    ids=["not found", "scope", "approval", "calls", "value", "time", "deadlock", "syntax"],
)
async def test_an_error_comes_with_what_to_do(corral: Corral, program: str, limits: dict[str, Any], told: str) -> None:
    text = (await corral.execute(program, limits=Limits(**{"wall_seconds": 20} | limits))).model_text()
    assert text.endswith(told)
    assert text == told or text.startswith("The program failed.\nOutputExceeded: ")


def test_an_error_of_the_programs_own_gets_no_advice() -> None:
    assert failed().model_text() == "The program failed at line 3, column 5.\nTypeError: x is null"


# --- calls


def test_calls_are_listed_by_what_became_of_them() -> None:
    calls = (
        call("send", {"to": "a"}),
        call("look", {}, read_only=True),
        call("look", {"at": 1}, read_only=True),
        call("send", {"to": "b"}, "invalid_tool_output", "returned"),
        call("send", {"to": "c"}, "tool_error"),
        call("send", {}, "invalid_arguments", "waiting"),
        call("wait", {"seconds": 60}, "cancelled", "started"),
        call("wait", {"seconds": 61}, "cancelled", "waiting"),
    )
    assert failed(tool_calls=calls).model_text().split("\n\n")[1].splitlines() == [
        'Calls that took effect; do not repeat them: send {"to":"a"}',
        "Calls that only read: look ×2",
        'Calls that ran, but whose results were withheld; do not repeat them: send {"to":"b"}',
        'Calls that may have taken effect before they were cut short: wait {"seconds":60}',
        'Calls that failed: send {"to":"c"}',
        'Calls that did not run: send {}; wait {"seconds":61}',
    ]
    assert result(value=1, tool_calls=calls).model_text() == "Result: 1"


def test_of_many_calls_the_last_are_shown_and_of_long_inputs_the_beginning() -> None:
    calls = tuple(call("send", {"to": f"{number:03}" + "x" * 500}) for number in range(99))
    [_, told] = failed(tool_calls=calls).model_text().split("\n\n")
    assert "do not repeat them: send ×99: …, {" in told
    assert '"098xxx' in told
    assert "of 503 characters left out" in told
    assert len(told) < 3500


def test_secrets_in_inputs_are_not_shown() -> None:
    input = {"password": "hunter2", "pin": "hunter2", "to": "ann"}
    text = failed(tool_calls=(call("log_in", input, masked=frozenset({"pin"})),)).model_text()
    assert 'log_in {"password":"[redacted]","pin":"[redacted]","to":"ann"}' in text


# --- notes

OF_TYPES = tuple(
    Diagnostic(severity="warning", message=f"problem {line}", code=code, line=line, column=1, show="on_failure")
    for line, code in enumerate(["TS2532", "ty:x", "TS2345", "TS1", "TS2", "TS3", "TS4"], 1)
)
OTHER = Diagnostic(severity="warning", message="a remark", code="guest")


def test_the_warnings_of_a_type_check_are_shown_if_the_program_failed_those_of_its_line_first() -> None:
    notes = failed(diagnostics=(*OF_TYPES, OTHER)).model_text().partition("Notes:\n")[2].splitlines()
    assert notes == ["- a remark", *(f"- line {line}: problem {line}" for line in (3, 1, 2, 4, 5))]


@pytest.mark.parametrize("status", ["succeeded", "rejected", "timed_out", "cancelled"])
def test_else_they_are_not_shown(status: str) -> None:
    error = None if status == "succeeded" else NULL
    text = result(status=status, error=error, diagnostics=(*OF_TYPES, OTHER)).model_text()
    assert "problem" not in text
    assert text.endswith("Notes:\n- a remark")


def test_what_was_left_out_is_noted() -> None:
    text = result(truncated=("12 bytes of console output over the limit were dropped",)).model_text()
    assert text == "Result: null\n\nNotes:\n- 12 bytes of console output over the limit were dropped"
