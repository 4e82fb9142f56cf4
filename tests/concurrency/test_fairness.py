"""Shares of tenants: no tenant's use of common places or of the thread for large values leaves others without one."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from threading import Barrier, Event
from types import SimpleNamespace
from typing import NoReturn

import anyio
import pytest

from corral.concurrency import fairness
from corral.concurrency.fairness import Shares, owner_active, run_in_turn


def test_one_tenant_alone_may_have_all_places_and_no_more() -> None:
    shares = Shares(4)
    assert [shares.take("eve") for _ in range(5)] == [True, True, True, True, False]


def test_whoever_has_less_than_a_fair_part_finds_a_place_when_all_are_taken() -> None:
    shares = Shares(4, ["eve"] * 4)
    assert [shares.take("bob") for _ in range(3)] == [True, True, False]
    assert [shares.take("ann") for _ in range(2)] == [True, False]
    assert not shares.take("eve")


def test_there_are_never_more_than_twice_as_many_places() -> None:
    shares = Shares(4, ["eve"] * 4)
    assert sum(shares.take(f"user {number}") for number in range(20)) == 4


def test_a_place_that_is_given_back_is_there_for_others() -> None:
    shares = Shares(1, ["eve"])
    assert [shares.take("bob"), shares.take("ann")] == [True, False]
    shares.give_back("eve")
    shares.give_back("bob")
    assert [shares.take("eve"), shares.take("eve")] == [True, False]


@pytest.fixture
def long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the first turn count as one of an hour."""
    monkeypatch.setattr(fairness, "_MOST_REST_SECONDS", 3_600)
    times = chain([0.0, 0.0], repeat(3_600.0))
    monkeypatch.setattr(fairness, "time", SimpleNamespace(monotonic=lambda: next(times)))


@pytest.mark.anyio
@pytest.mark.usefixtures("long_rests")
async def test_a_tenant_alone_has_one_turn_after_another() -> None:
    with owner_active("eve"):
        with owner_active("bob"):
            await run_in_turn(int, owner="eve")
        assert [await run_in_turn(int, text, owner="eve") for text in "123"] == [1, 2, 3]


@pytest.mark.anyio
@pytest.mark.usefixtures("long_rests")
async def test_a_tenant_rests_between_turns_while_another_is_active_until_that_one_wants_a_turn() -> None:
    ended: list[str] = []

    async def turn(tenant: str) -> None:
        ended.append(await run_in_turn(str, tenant, owner=tenant))

    with anyio.fail_after(30), owner_active("bob"):
        await turn("eve")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn, "eve")
            await anyio.wait_all_tasks_blocked()
            assert ended == ["eve"]
            tasks.start_soon(turn, "bob")
    assert ended == ["eve", "eve", "bob"]


@pytest.mark.anyio
@pytest.mark.usefixtures("long_rests")
async def test_a_tenant_that_is_cancelled_while_it_rests_passes_its_turn_on() -> None:
    with anyio.fail_after(30), owner_active("bob"):
        await run_in_turn(int, owner="eve")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: run_in_turn(int, owner="eve"))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert await run_in_turn(int, "1", owner="bob") == 1


@pytest.mark.anyio
async def test_python_switches_sooner_from_the_thread_for_large_values_and_only_meanwhile() -> None:
    before = sys.getswitchinterval()

    def fail() -> NoReturn:
        raise ZeroDivisionError

    assert await run_in_turn(sys.getswitchinterval) < before
    with pytest.raises(ZeroDivisionError):
        await run_in_turn(fail)
    assert sys.getswitchinterval() == before


def test_threads_of_several_event_loops_switch_sooner_until_the_last_one_has_ended() -> None:
    before = sys.getswitchinterval()
    both, first_ended = Barrier(2), Event()

    def second() -> float:
        both.wait(60)
        first_ended.wait(60)
        return sys.getswitchinterval()

    with ThreadPoolExecutor(2) as loops:
        first = loops.submit(anyio.run, run_in_turn, both.wait, 60)
        first.add_done_callback(lambda _: first_ended.set())
        last = loops.submit(anyio.run, run_in_turn, second)
    assert first.exception() is None
    assert last.result() < before
    assert sys.getswitchinterval() == before


@pytest.mark.anyio
async def test_an_interval_that_the_application_sets_meanwhile_stays() -> None:
    before = sys.getswitchinterval()
    try:
        await run_in_turn(sys.setswitchinterval, 2 * before)
        assert sys.getswitchinterval() == pytest.approx(2 * before)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
async def test_a_fork_made_meanwhile_has_the_interval_from_before() -> None:
    before = sys.getswitchinterval()

    def fork() -> int:
        child = os.fork()
        if child == 0:
            os._exit(sys.getswitchinterval() != before)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert await run_in_turn(fork) == 0
