"""From the rounds' samples to what is reported: medians, and ratios to the floors."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypeAlias, TypedDict

from bench.conduct import Measured
from bench.engines import Driver
from bench.host import Host
from bench.workloads import WORKLOADS

__all__ = ["Measure", "Report", "Row", "Status", "summarize", "summarize_floors"]

Status: TypeAlias = Literal["measured", "not available", "failed"]

_FLOORS: Mapping[str, str] = {"cold": "start", "W1": "start", "W5": "fib", "call": "echo", "timer-call": "echo"}
"""Which floor each ratio is to."""
_IN_MICROSECONDS = frozenset({"echo", *(workload.key for workload in WORKLOADS if workload.of_calls)})
_AT_ONCE = {workload.key: workload.at_once for workload in WORKLOADS if workload.at_once > 1}


class Measure(TypedDict):
    unit: Literal["ms", "µs"]
    median: float
    min: float
    p90: float
    samples: int
    times_floor: NotRequired[float]
    per_second: NotRequired[float]
    """Executions a second, from the median; where a sample is of several executions at once."""


class Row(TypedDict):
    name: str
    title: str
    kind: str
    status: Status
    reason: str | None
    versions: dict[str, str]
    measures: dict[str, Measure]
    memory: dict[str, dict[str, float]]
    errors: dict[str, str]


class Report(TypedDict):
    host: Host
    rounds: int
    floors: dict[str, Measure]
    rows: list[Row]


def summarize_floors(rounds: Sequence[Measured]) -> dict[str, Measure]:
    return {key: _measure(key, samples, {}) for key, samples in _pooled(rounds).items()}


def summarize(driver: Driver, rounds: Sequence[Measured], floors: Mapping[str, Measure]) -> Row:
    """One row, of all its rounds. Whatever went wrong in any of them is in `reason` or `errors`."""
    measures = {key: _measure(key, samples, floors) for key, samples in _pooled(rounds).items()}
    errors: dict[str, str] = {}
    versions: dict[str, str] = {}
    for each in rounds:
        errors |= each.outcome.get("errors", {})
        versions |= each.outcome.get("versions", {})
    unavailable = next((each.outcome["unavailable"] for each in rounds if "unavailable" in each.outcome), None)
    failure = next((each.failure for each in rounds if each.failure is not None), None)
    status: Status = "measured" if measures else "failed" if failure is not None else "not available"
    return {
        "name": driver.name,
        "title": driver.title,
        "kind": driver.kind,
        "status": status,
        "reason": failure or unavailable,
        "versions": versions,
        "measures": measures,
        "memory": _memory(rounds),
        "errors": errors,
    }


def _pooled(rounds: Sequence[Measured]) -> dict[str, list[float]]:
    pooled: dict[str, list[float]] = {}
    for each in rounds:
        for key, samples in each.outcome.get("samples", {}).items():
            pooled.setdefault(key, []).extend(samples)
    return pooled


def _measure(key: str, samples: Sequence[float], floors: Mapping[str, Measure]) -> Measure:
    median = statistics.median(samples)
    p90 = statistics.quantiles(samples, n=10, method="inclusive")[-1] if len(samples) > 1 else samples[0]
    measure: Measure = {
        "unit": "µs" if key in _IN_MICROSECONDS else "ms",
        "median": round(median, 3),
        "min": round(min(samples), 3),
        "p90": round(p90, 3),
        "samples": len(samples),
    }
    floor = floors.get(_FLOORS.get(key, ""))
    if floor is not None:
        measure["times_floor"] = round(median / floor["median"], 2)
    if key in _AT_ONCE:
        measure["per_second"] = round(_AT_ONCE[key] / median * 1e3, 1)
    return measure


def _memory(rounds: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """The medians of each state's numbers."""
    found: dict[str, dict[str, list[float]]] = {}
    for each in rounds:
        for state, sizes in each.memory.items():
            for name, size in sizes.items():
                found.setdefault(state, {}).setdefault(name, []).append(size)
    return {
        state: {name: round(statistics.median(values), 2) for name, values in sizes.items()}
        for state, sizes in found.items()
    }
