"""Shares of tenants: no tenant's use of common places leaves others without one."""

from __future__ import annotations

from corral.concurrency.fairness import Shares


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
