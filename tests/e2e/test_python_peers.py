"""What programs in Python meet in other frameworks: each case in tests/cases/py-peers.json has a test, or is not due."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.conftest import cases
from tests.wrong import Wrong

HERE = Path(__file__).parent
AREAS = (
    "result",
    "tools",
    "discovery",
    "typecheck",
    "errors",
    "concurrency",
    "limits",
    "state",
    "pause",
    "security",
    "mcp",
    "observability",
)

# By the beginning of a case's input: the test of its behaviour, in a file beside this one or under tests/.
TESTED = {
    "Program calls add(x='a'": "../checking/test_gate.py::test_a_rejected_program_calls_nothing_and_prints_nothing",
    "Host disables checking": "../checking/test_gate.py::test_a_corral_and_a_run_may_go_without_a_check",
    "Catalog of 500 tools": "../model/catalog/test_catalog.py::test_the_first_turn_does_not_grow_with_the_tools",
    "search with a query that matches": "../model/catalog/test_discovery.py::test_where_nothing_matches_a_hint_says_how_to_go_on",
    "limit=-1 or limit=0": "../model/catalog/test_discovery.py::test_a_wrong_question_is_answered_with_what_is_wrong",
    "A new tool is revealed": "../model/catalog/test_catalog.py::test_the_text_stays_as_it_was_and_the_news_say_what_changed",
    "Program whose last line is a bare": "test_python_programs.py::test_the_value_is_what_the_model_meant",
    "Program prints 'hi' and also": "test_python_console.py::test_value_and_console_reach_the_model_apart",
    "print() inside a program run": "test_python_console.py::test_nothing_that_is_printed_reaches_the_hosts_own_output",
    # All of the value is in the result; what a model is shown of it has head and tail. There is no handle to load it by.
    "Result text is 1 MB": "test_python_limits.py::test_a_large_value_is_shown_to_the_model_by_its_head_and_tail",
    "Host tool named `get-weather`": "test_python_programs.py::test_a_tool_whose_name_is_no_identifier_can_be_called_as_it_is_declared",
    "Tool called `class` or `2fa`": "test_python_programs.py::test_a_tool_whose_name_is_no_identifier_can_be_called_as_it_is_declared",
    "Tool without return schema": "test_python_programs.py::test_a_tool_that_does_not_say_what_it_returns_is_declared_as_any",
    "Two tools whose schemas both": "test_python_programs.py::test_two_types_of_the_same_name_are_told_apart",
    "Positional call `add(1, 2)`": "test_python_errors.py::test_positional_arguments_are_refused_and_nothing_is_guessed",
    # The message is the tool's secret unless it says ToolError: test_an_unexpected_exception_... is the other half.
    "Tool raises ValueError('nope')": "test_python_errors.py::test_a_tools_error_can_be_caught_by_anyone",
    "Program misspells a tool name": "test_python_errors.py::test_a_misspelt_tool_is_answered_with_near_names",
    "Program forgets await on an async": "test_python_errors.py::test_a_call_that_was_not_awaited_is_named_where_it_is_used",
    "Host masks internal error details": "test_python_errors.py::test_an_unexpected_exception_of_a_tool_shows_only_a_correlation_id",
    "gather over 20 tools": "test_python_concurrency.py::test_calls_of_a_gather_are_under_way_together",
    "Program starts a call, never awaits": "test_python_concurrency.py::test_a_call_that_nobody_awaits_is_finished_and_listed",
    "Two runs of one agent in parallel": "test_python_concurrency.py::test_an_execution_may_be_awaited_by_many_at_once",
    "Sync (def) host tool that blocks": "test_python_concurrency.py::test_a_sync_tool_that_blocks_does_not_block_the_event_loop",
    "while True loop with a 0.5 s": "test_python_limits.py::test_an_endless_loop_ends_at_its_processor_limit",
    "Program waits 5 s for a host tool": "test_python_limits.py::test_waiting_for_a_tool_takes_no_processor_time",
    "gather of 10,000 calls": "test_python_concurrency.py::test_over_the_budget_no_call_reaches_the_host",
    "Deeply nested literal": "test_python_errors.py::test_a_hundred_thousand_brackets_are_refused",
    # There is no allowance for sleeping: the wall clock bounds it, and says so.
    "sleep(3600) in the program": "test_python_limits.py::test_a_sleep_is_bounded_by_the_wall_clock",
    "Unknown key in the limits config": "test_python_limits.py::test_a_limit_that_is_none_is_refused_and_the_known_ones_are_listed",
    "A tool's visibility is turned off": "test_python_programs.py::test_a_tool_added_or_removed_while_a_program_runs_is_seen_at_once",
    "Approval denied": "test_python_programs.py::test_a_denied_approval_is_an_error_that_can_be_caught",
    "Program reads /etc/passwd": "test_python_programs.py::test_nothing_of_the_system_is_reached",
    "API key held by a host tool": "test_python_programs.py::test_what_tools_get_of_the_context_no_program_sees",
    "Program makes 3 tool calls": "test_python_programs.py::test_events_tell_what_happens_in_order",
}
NOT_DUE = {
    "Selector: only tools tagged": "which tools are inside is the list that a Corral is given; the rest is the agent's own",
    "Second program of a session": "state: an execution starts afresh",
    "Tool failure result from MCP": "mcp: a tool from there will raise ToolError as others do",
    "Run 1 sets x=40": "state: an execution starts afresh",
    "Run that timed out had already": "state",
    "Session saved to bytes": "state",
    "Program suspended at a tool call": "pause: an execution lives in one process",
    "Restored snapshot bytes": "pause",
    "Mounted dir with a symlink": "nothing is mounted into a sandbox",
    "MCP server with outputSchema": "mcp",
    "on_tool_call hooks/guardrails": "every call passes the guards of the pipeline, whatever made it: tests/bridges",
}


def found(case: dict[str, Any], table: dict[str, str]) -> list[str]:
    return [answer for beginning, answer in table.items() if case["input"].startswith(beginning)]


def test_a_case_has_a_test_or_a_reason() -> None:
    wrong = Wrong()
    for case in cases("py-peers.json", *AREAS):
        with wrong.case(case["input"]):
            tested, not_due = found(case, TESTED), found(case, NOT_DUE)
            assert len(tested) + len(not_due) == 1
            for place in tested:
                file, _, name = place.partition("::")
                text = (HERE / file).read_text(encoding="utf-8")
                assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)
    assert wrong == []


def test_every_row_is_of_a_case() -> None:
    inputs = [case["input"] for case in cases("py-peers.json", *AREAS)]
    for beginning in (*TESTED, *NOT_DUE):
        assert sum(text.startswith(beginning) for text in inputs) == 1
