"""Rates are held exactly: never more than was said, never a call refused for longer than was said."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import re
import threading
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral import Corral, ExecutionContext, Tool, define_tool, tool
from corral.calls.rates import Bucket, MemoryRates, RateLimits, RateStore, Refusal
from corral.errors import ConfigError, RateLimited
from corral.sandboxes import DenoSandbox
from corral.tools.rates import Rate, RateLimit
from tests.docs.markdown import ROOT, blocks
from tests.work import examples

T = TypeVar("T")

RATES = st.builds(Rate, st.integers(1, 20), st.integers(1, 100))
INSTANTS_US = st.lists(st.integers(0, 5_000_000), min_size=1, max_size=60)
"""Microseconds from one call to the next."""


class Time:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.us = 1_000_000

    def __call__(self) -> int:
        return self.us * 1000

    def wait(self, seconds: float) -> None:
        self.us += round(seconds * 1_000_000)


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits for something")


def take(store: RateStore, *buckets: Bucket) -> Refusal | None:
    return at_once(store.take(buckets))


# --- the algorithm


@settings(max_examples=examples(50))
@given(rate=RATES, pauses=INSTANTS_US)
def test_in_any_interval_there_are_no_more_calls_than_the_burst_and_the_share_of_the_interval(
    rate: Rate, pauses: list[int]
) -> None:
    time = Time()
    store = MemoryRates(clock=time)
    taken: list[int] = []
    for pause in pauses:
        time.us += pause
        if take(store, Bucket("k", rate)) is None:
            taken.append(time.us)
    for first, start in enumerate(taken):
        for last in range(first, len(taken)):
            allowed = rate.count + (taken[last] - start) / 1e6 * rate.count / rate.seconds
            assert last - first + 1 <= allowed + 1e-9


@given(rate=RATES)
def test_as_many_calls_as_the_count_are_allowed_at_once_and_after_a_whole_period_again(rate: Rate) -> None:
    time = Time()
    store = MemoryRates(clock=time)
    for _ in range(3):
        for _ in range(rate.count):
            assert take(store, Bucket("k", rate)) is None
        assert take(store, Bucket("k", rate)) is not None
        time.us += rate.interval_us * rate.count


@given(rates=st.lists(RATES, min_size=1, max_size=4), pauses=INSTANTS_US)
def test_a_refused_call_is_allowed_after_the_time_it_was_told_and_no_sooner(
    rates: list[Rate], pauses: list[int]
) -> None:
    time = Time()
    store = MemoryRates(clock=time)
    buckets = [Bucket(str(number), rate) for number, rate in enumerate(rates)]
    for pause in pauses:
        time.us += pause
        refusal = take(store, *buckets)
        if refusal is not None:
            assert refusal.seconds > 0
            time.wait(refusal.seconds)
            time.us -= 1
            sooner = take(store, *buckets)
            assert sooner is not None
            assert (round(sooner.seconds * 1e6), sooner.bucket) == (1, refusal.bucket)
            time.us += 1
            assert take(store, *buckets) is None


@settings(max_examples=examples(50))
@given(
    rates=st.lists(RATES, min_size=2, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 3_000_000), st.sets(st.integers(0, 3), min_size=1)), max_size=60),
)
def test_a_call_counts_in_all_its_buckets_or_in_none(rates: list[Rate], steps: list[tuple[int, set[int]]]) -> None:
    time = Time()
    together = MemoryRates(clock=time)
    alone = [MemoryRates(clock=time) for _ in rates]
    for pause, numbers in steps:
        time.us += pause
        buckets = {number: Bucket(str(number), rates[number]) for number in numbers if number < len(rates)}
        refusal = take(together, *buckets.values())
        # alone, each bucket counts only what was let through
        waits = {number: refusal_alone(alone[number], bucket, time) for number, bucket in buckets.items()}
        assert (0 if refusal is None else refusal.seconds) == max(waits.values(), default=0)
        if refusal is None:
            assert all(take(alone[number], bucket) is None for number, bucket in buckets.items())
        else:
            assert refusal.bucket in [bucket for number, bucket in buckets.items() if waits[number] == refusal.seconds]


def refusal_alone(store: MemoryRates, bucket: Bucket, time: Time) -> float:
    """Seconds until `store` would allow a call, asked of a copy."""
    copy = MemoryRates(clock=time)
    copy._paid_until = dict(store._paid_until)
    refusal = take(copy, bucket)
    return 0 if refusal is None else refusal.seconds


def test_the_narrowest_bucket_is_the_one_that_is_full_for_longest() -> None:
    store = MemoryRates(clock=Time())
    quick, slow = Bucket("quick", Rate(1, 1)), Bucket("slow", Rate(1, 60))
    assert take(store, quick, slow) is None
    assert take(store, quick, slow) == take(store, slow, quick) == Refusal(60, slow)


def test_a_bucket_whose_rate_has_become_higher_forgets_what_it_was_paid_for_beyond_it() -> None:
    time = Time()
    store = MemoryRates(clock=time)
    assert take(store, Bucket("k", Rate(1, 86_400))) is None
    assert take(store, Bucket("k", Rate(10, 1))) == Refusal(0.1, Bucket("k", Rate(10, 1)))


# --- the store in memory


def test_buckets_that_are_empty_again_make_room_and_nothing_is_forgotten() -> None:
    time = Time()
    store = MemoryRates(most_keys=100, clock=time)
    busy = Bucket("busy", Rate(1, 1000))
    assert take(store, busy) is None
    for number in range(10_000):
        time.us += 20_000  # so that fifty of them are in use
        assert take(store, Bucket(str(number), Rate(1, 1))) is None
        assert len(store._paid_until) <= 100
    assert take(store, busy) is not None


def test_under_a_flood_of_names_those_that_are_used_least_recently_start_again() -> None:
    store = MemoryRates(most_keys=100, clock=Time())
    early, busy = Bucket("early", Rate(1, 1000)), Bucket("busy", Rate(300, 1000))
    assert take(store, early) is None
    for number in range(300):
        assert take(store, Bucket(str(number), Rate(1, 1000)), busy) is None
        assert len(store._paid_until) <= 100
    assert take(store, early) is None
    assert take(store, busy) is not None


@pytest.mark.usefixtures("hasty_threads")
def test_threads_share_a_store_and_get_no_more_than_there_is() -> None:
    store = MemoryRates()
    taken: list[int] = []

    def work() -> None:
        taken.append(sum(take(store, Bucket("k", Rate(1000, 86_400))) is None for _ in range(500)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 1000


def test_a_call_counts_that_came_while_another_made_room() -> None:
    class Lock(AbstractContextManager[None]):
        def __enter__(self) -> None:
            nonlocal others
            if others:
                others = False
                assert take(store, Bucket("a", Rate(1, 1000)), Bucket("b", Rate(1, 1000))) is None

        def __exit__(self, *_: object) -> None: ...

    store = MemoryRates(most_keys=1, clock=Time())
    others = True
    store._lock = Lock()  # pyright: ignore[reportAttributeAccessIssue]
    assert take(store, Bucket("k", Rate(1, 1000))) is None
    assert take(store, Bucket("k", Rate(1, 1000))) is not None


def test_a_store_without_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="most_keys must be positive, not 0"):
        MemoryRates(most_keys=0)


# --- the limits of a Corral


def limited(rate_limit: RateLimit | None = None, name: str = "t") -> Tool:
    return define_tool(name=name, rate_limit=rate_limit, execute=print)


def who(user: str = "ada", organization: str | None = None) -> ExecutionContext:
    return ExecutionContext(user_id=user, organization_id=organization)


async def admit(limits: RateLimits, called: Tool, name: str, context: ExecutionContext) -> None:
    """What the guard does for a call."""
    if buckets := limits.buckets(called, name, context):
        await limits.take(buckets, name)


def refused(limits: RateLimits, called: Tool, context: ExecutionContext) -> RateLimited | None:
    try:
        at_once(admit(limits, called, called.name, context))
    except RateLimited as error:
        return error
    return None


class NoStore(RateStore):
    async def take(self, buckets: object) -> Refusal | None:
        raise AssertionError("the store was asked")


def test_without_a_rate_the_store_is_not_asked() -> None:
    assert refused(RateLimits(store=NoStore()), limited(), who()) is None
    with pytest.raises(AssertionError, match="was asked"):
        refused(RateLimits(store=NoStore()), limited("1/day"), who())
    with pytest.raises(AssertionError, match="was asked"):
        refused(RateLimits(user="1/day", store=NoStore()), limited(), who())


@pytest.mark.parametrize(
    ("limits", "rate_limit", "text"),
    [
        ({}, "1/10s", "1/10s per user"),
        ({}, {"organization": "1/10s"}, "1/10s per organization"),
        ({}, {"everyone": "1/10s"}, "1/10s for everyone"),
        ({"user": "1/10s"}, None, "1/10s per user over all tools"),
        ({"organization": "1/10s"}, "9/10s", "1/10s per organization over all tools"),
        ({"everyone": "1/10s"}, None, "1/10s for everyone over all tools"),
    ],
)
def test_the_refusal_names_the_tool_whose_limit_it_is_and_when_to_try_again(
    limits: dict[str, str], rate_limit: Any, text: str
) -> None:
    time = Time()
    rates = RateLimits(**limits, store=MemoryRates(clock=time))
    assert refused(rates, limited(rate_limit), who()) is None
    time.wait(8.75)
    error = refused(rates, limited(rate_limit), who())
    assert error is not None
    assert str(error) == f"tools.t: the limit of {text} is used up; try again in 1.3 s"
    assert error.retry_after_seconds == 1.25


@given(st.integers(1, 3_000_000_000_000))
def test_the_time_in_the_text_is_long_enough_and_written_plainly(us: int) -> None:
    class Full(RateStore):
        async def take(self, buckets: Any) -> Refusal:
            return Refusal(us / 1e6, buckets[0])

    error = refused(RateLimits(store=Full()), limited("1/day"), who())
    assert error is not None
    found = re.search(r"try again in (\d+(?:\.\d)?) s$", str(error))
    assert found is not None
    assert us / 1e6 <= float(found[1]) <= us / 1e6 + 0.1001


def test_limits_over_all_tools_and_of_a_tool_hold_together_and_a_refused_call_counts_nowhere() -> None:
    limits = RateLimits(user="3/hour", store=MemoryRates(clock=Time()))
    once, free = limited("1/hour", "once"), limited(None, "free")
    assert refused(limits, once, who()) is None
    for _ in range(5):
        assert "1/hour per user is" in str(refused(limits, once, who()))
    assert refused(limits, free, who()) is None
    assert refused(limits, free, who()) is None
    assert "3/hour per user over all tools" in str(refused(limits, free, who()))


def test_each_tool_counts_for_itself() -> None:
    limits = RateLimits()
    assert refused(limits, limited("1/hour", "a"), who()) is None
    assert refused(limits, limited("1/hour", "b"), who()) is None
    assert refused(limits, limited("1/hour", "a"), who()) is not None


def test_users_of_an_organization_share_its_limit_and_have_their_own() -> None:
    limits = RateLimits(user="2/hour", organization="3/hour")
    free = limited()
    assert [refused(limits, free, who(user, "acme")) is None for user in ("ada", "ada", "ada")] == [True, True, False]
    assert [refused(limits, free, who(user, "acme")) is None for user in ("bob", "bob")] == [True, False]
    assert refused(limits, free, who("bob", "other")) is None


CONTEXTS = [
    who("b", "a:c"),
    who("a:b", "c"),
    who("b", "c"),
    who("b"),
    who("b", ""),
    who("b", "-"),
    who("c:b"),
    who("1:c:b", "c"),
    who("b", "1:c"),
    who("", "c"),
    who("c", ""),
    who("B", "c"),
    who("é", "c"),
    who("e\u0301", "c"),
    who("\n", "c"),
    who("b\0", "c"),
    who("x" * 1000, "c"),
    who("x" * 1001, "c"),
    who("c", "x" * 1000),
    who("x" * 500, "x" * 500),
    who("x" * 501, "x" * 499),
]


class Keys(RateStore):
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def take(self, buckets: Any) -> None:
        self.keys += [bucket.key for bucket in buckets]


def keys_of(context: ExecutionContext, scope: Any) -> list[str]:
    store = Keys()
    assert refused(RateLimits(**{scope: "1/day"}, store=store), limited({scope: "1/day"}), context) is None
    return store.keys


def test_no_two_callers_share_a_bucket_whatever_is_in_their_ids() -> None:
    seen = [key for context in CONTEXTS for key in keys_of(context, "user")]
    assert len(set(seen)) == len(seen) == 2 * len(CONTEXTS)
    tenants = {context.organization_id for context in CONTEXTS}
    organizations = {key for context in CONTEXTS for key in keys_of(context, "organization")}
    assert len(organizations) == 2 * len(tenants)
    assert not organizations & set(seen)


@settings(max_examples=examples(50))
@given(*[st.text(st.sampled_from("ab:-1#é"), max_size=8)] * 4)
def test_no_two_callers_share_a_bucket(user: str, organization: str, user2: str, organization2: str) -> None:
    one, other = who(user, organization), who(user2, organization2)
    assert (keys_of(one, "user") == keys_of(other, "user")) == ((user, organization) == (user2, organization2))


def test_keys_are_short_ascii_whatever_is_in_an_id() -> None:
    for context in [*CONTEXTS, ExecutionContext.model_construct(user_id="\ud800", organization_id="\udfff")]:
        for key in keys_of(context, "user"):
            assert key.isascii()
            assert len(key) <= 140


def test_a_refusal_says_nothing_of_other_callers() -> None:
    limits = RateLimits(user="1/hour", organization="5/hour", store=MemoryRates(clock=Time()))
    for user in ("bob", "carol", "dave", "erin"):
        assert refused(limits, limited(), who(user, "acme")) is None
    assert refused(limits, limited(), who("ada", "acme")) is None
    error = refused(limits, limited(), who("ada", "acme"))
    assert str(error) == "tools.t: the limit of 1/hour per user over all tools is used up; try again in 3600 s"


def test_each_set_of_limits_counts_for_itself_unless_they_share_a_store() -> None:
    assert RateLimits().store is not RateLimits().store
    store = MemoryRates()
    assert refused(RateLimits(user="1/day", store=store), limited(), who()) is None
    assert refused(RateLimits(user="1/day", store=store), limited(), who()) is not None


@pytest.mark.parametrize("scope", ["user", "organization", "everyone"])
def test_a_wrong_rate_is_refused_at_once(scope: str) -> None:
    with pytest.raises(ConfigError, match="RateLimits: 'often' is not a rate; write a count"):
        RateLimits(**{scope: "often"})  # pyright: ignore[reportArgumentType]


# --- what a program sees


@pytest.mark.anyio
async def test_the_program_of_the_page_waits_and_tries_again(warm_deno: DenoSandbox) -> None:
    [page] = [block for block in blocks(ROOT / "docs" / "rates.md") if "retryAfterSeconds" in block.text]
    time = Time()
    limits = RateLimits(store=MemoryRates(clock=time))
    calls: list[str] = []

    @tool
    async def get_quote(symbol: str, context: ExecutionContext) -> float:
        calls.append(symbol)
        try:
            await admit(limits, limited("1/second"), "get_quote", context)
        except RateLimited as error:
            time.wait(error.retry_after_seconds or 0)
            raise RateLimited(str(error), retry_after_seconds=0.1) from None
        return float(len(symbol))

    result = await Corral([get_quote], sandbox=warm_deno, check=False).execute(page.text)
    assert (result.error, result.value) == (None, {"KO": 2.0, "IBM": 3.0})
    assert calls == ["KO", "IBM", "IBM"]
    assert result.duration_ms >= 100
