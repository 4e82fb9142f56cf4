"""Which cases of the suites of bridges a protocol can decide, and classes that keep to them.

The gate has all cases over HTTP from Python, and over the pipe. The guards behind a protocol, and the calls of a guest
before it, are the same code over each of the others.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Generator, Set
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from corral.bridges import BridgeHost
from corral.calls import Grant
from corral.testing import BridgeMessageSuite, BridgeStreamSuite, BridgeSuite


class Both(BridgeStreamSuite, BridgeMessageSuite):
    """All cases."""


@contextmanager
def renewals() -> Generator[list[str]]:
    """The tokens that came with requests within the block, and that were got by a renewal."""
    fresh: set[str] = set()
    used: list[str] = []
    renew, find = BridgeHost.renew, BridgeHost.find

    def noted_renew(self: BridgeHost, grant: Grant) -> tuple[str, float]:
        token, expires = renew(self, grant)
        fresh.add(token)
        return token, expires

    def noted_find(self: BridgeHost, token: str | None) -> Grant:
        used.extend({token or ""} & fresh)
        return find(self, token)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BridgeHost, "renew", noted_renew)
        patch.setattr(BridgeHost, "find", noted_find)
        yield used


S = TypeVar("S", bound=BridgeSuite)
REASON = "over the pipe, and over HTTP from Python, the gate has this case; here it meets the same guards"
WIRE = {
    f"test_{name}"
    for name in """
        values_of_all_kinds_come_back_as_they_went
        an_error_has_its_name_its_code_and_its_message
        a_rate_limit_says_when_to_retry
        large_values_come_back_as_they_went
        a_message_of_any_characters_arrives_as_it_is
        more_calls_at_once_than_a_batch_holds_have_their_own_answers
        foreign_and_broken_tokens_open_nothing
        the_end_of_an_execution_cancels_its_calls
        a_guest_that_gives_up_cancels_its_call
        an_item_arrives_before_the_tool_has_the_next_one
        items_of_all_kinds_arrive_as_they_are
        a_tool_that_fails_after_some_items_ends_its_stream_with_the_error
        a_stream_that_is_left_is_closed
        a_stream_that_is_not_read_keeps_its_tool_waiting_and_nobody_else
        the_end_of_an_execution_ends_its_streams
    """.split()
}
"""Cases that a guest's transport decides: how calls, items and errors are written and read."""
SERVED = {name for name in vars(BridgeMessageSuite) if name.startswith("test_")} | {
    f"test_{name}"
    for name in """
        names_of_any_length_and_with_any_character_are_refused
        tools_of_a_namespace_have_it_in_their_names
        what_python_has_and_json_lacks_arrives_as_documented
        a_call_that_fails_leaves_those_beside_it
        parallel_calls_run_at_the_same_time
        calls_are_numbered_in_order_and_carry_the_name_of_the_protocol
        a_slow_call_keeps_no_other_waiting
        more_calls_than_may_be_in_flight_wait_for_their_turn
        an_execution_that_has_ended_makes_no_calls
        a_token_opens_nothing_after_its_time_and_a_renewed_one_does
        a_call_outlives_the_token_that_it_was_made_with
        a_stream_outlives_the_token_that_it_was_made_with
        an_input_over_its_bound_is_refused
        an_output_over_its_bound_is_withheld
        an_input_that_is_nested_too_deeply_is_refused
        a_guest_that_gives_up_cancels_no_call_of_another
        a_call_that_is_given_up_leaves_those_beside_it_their_replies
        a_document_shows_only_tools_that_the_scopes_allow
        items_arrive_in_order_and_then_the_end
        a_stream_that_is_refused_says_why
        a_stream_that_is_read_slowly_arrives_whole
        streams_and_calls_at_the_same_time_have_their_own_answers
        the_items_of_a_stream_together_are_bounded
        a_stream_is_one_call_on_record
    """.split()
}
"""Cases that the server of a protocol decides beside those."""


def cases_of(suite: type[BridgeSuite]) -> set[str]:
    return {name for name in dir(suite) if name.startswith("test_")}


def wire_only(suite: type[S]) -> type[S]:
    """Leaves a class the cases that a transport decides."""
    for name in cases_of(suite) & cases_of(Both) - WIRE:
        setattr(suite, name, None)
    return suite


def rest_in_matrix(suite: type[S], *, gate: Set[str] = WIRE | SERVED) -> type[S]:
    """Marks the cases that neither a transport nor a server decides as of the matrix."""
    for name in cases_of(suite) & cases_of(Both) - gate:
        setattr(suite, name, pytest.mark.matrix(REASON)(_own(getattr(suite, name))))
    return suite


def _own(case: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """A function of the class alone, so that no other class has its mark."""

    @functools.wraps(case)
    async def same(self: Any) -> None:
        await case(self)

    return same
