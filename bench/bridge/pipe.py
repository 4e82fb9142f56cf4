"""The same calls over the pipe, with every guard in use and with validation alone."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from corral import AuditLog, Corral, ExecutionContext, Limits, RateLimits, Tool, tool

__all__ = ["measure_pipe"]

_SKIPPED = 200
_COUNTED = 1_000
_MANY = "10000/second"
_PROGRAM = f"""
let last = 0;
for (let i = 0; i < {_SKIPPED + _COUNTED}; i++) last = await tools.add({{ a: i, b: 1 }});
return last;
"""


class _Clocked:
    """A tool that notes when its calls arrive."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []

    async def add(self, a: int, b: int) -> int:
        """Adds."""
        self.arrivals.append(time.perf_counter())
        return a + b

    def spent(self) -> float:
        """Microseconds from one call's arrival to the next one's, on average over those that count."""
        first, last = self.arrivals[_SKIPPED], self.arrivals[-1]
        count = len(self.arrivals) - 1 - _SKIPPED
        self.arrivals.clear()
        return (last - first) / count * 1e6


async def measure_pipe(rounds: int, directory: Path) -> dict[str, float]:
    """Medians in microseconds a call, and their ratio; rounds take turns."""
    bare, full = _Clocked(), _Clocked()
    limits = Limits(calls=100_000)
    guarded: Tool = tool(
        scopes={"math:add"}, any_scope={"a", "b"}, rate_limit={"user": _MANY, "organization": _MANY, "everyone": _MANY}
    )(full.add)
    rates = RateLimits(user=_MANY, organization=_MANY, everyone=_MANY)
    audit = AuditLog(directory / "audit.jsonl")
    context = ExecutionContext(user_id="ann", organization_id="acme", scopes={"math:add", "a"})
    spent: dict[str, list[float]] = {"validation": [], "all guards": []}
    async with (
        Corral([bare.add], limits=limits, check=False) as one,
        Corral([guarded], limits=limits, rates=rates, audit=audit, check=False) as other,
    ):
        for _ in range(rounds):
            (await one.execute(_PROGRAM, context=context)).raise_for_error()
            spent["validation"].append(bare.spent())
            (await other.execute(_PROGRAM, context=context)).raise_for_error()
            spent["all guards"].append(full.spent())
    medians = {name: statistics.median(values) for name, values in spent.items()}
    return medians | {"ratio": medians["all guards"] / medians["validation"]}
