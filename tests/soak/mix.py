"""What is thrown at a Corral: programs of many kinds, what is done to them, and which ends are legal then."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from corral import ExecutionResult, Limits, ToolError, tool

__all__ = ["KINDS", "LIMITS", "TOOLS", "USERS", "Kind", "Planned", "plan"]

USERS = ("ann", "bob")
_MEMORY_MB = 16
"""Little, so that bombs end soon; the same for all, who share servers."""
LIMITS = Limits(wall_seconds=60, cpu_seconds=30, memory_mb=_MEMORY_MB)
_SHORT = Limits(wall_seconds=0.3, cpu_seconds=30, memory_mb=_MEMORY_MB)
_LITTLE_CPU = Limits(wall_seconds=60, cpu_seconds=0.1, memory_mb=_MEMORY_MB)
_BOMB = Limits(wall_seconds=60, cpu_seconds=1, memory_mb=_MEMORY_MB)


@tool
async def add(a: float, b: float) -> float:
    """Adds."""
    return a + b


@tool
async def wait(seconds: float) -> float:
    """Waits."""
    await anyio.sleep(seconds)
    return seconds


@tool
async def repeat(text: str, times: int) -> str:
    """A long text."""
    return text * times


@tool
async def fail(message: str) -> None:
    """Fails."""
    raise ToolError(message)


TOOLS = [add, wait, repeat, fail]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of execution. `legal` says whether a result is one it may have; `weight` how often it comes."""

    name: str
    weight: int
    source: Callable[[random.Random], str]
    legal: Callable[[ExecutionResult], bool]
    limits: Limits = LIMITS
    cancelled: bool = False
    """Whether it is cancelled at some time; being cancelled is legal then."""


def _ends_with(status: str, *codes: str) -> Callable[[ExecutionResult], bool]:
    return lambda result: result.status == status and (result.error is None or result.error.code in codes)


def _is_value(value: object) -> Callable[[ExecutionResult], bool]:
    return lambda result: result.status == "succeeded" and result.value == value


def _calls(chance: random.Random) -> str:
    calls = chance.randint(1, 20)
    return f"""
        let sum = {120 - calls};
        for (let i = 0; i < {calls}; i++) sum = await tools.add({{ a: sum, b: 1 }});
        return sum"""


def _waits(chance: random.Random) -> str:
    return f"for (let i = 0; i < 10; i++) await tools.wait({{ seconds: {chance.uniform(0.001, 0.02):.4f} }}); return 'waited'"


KINDS = (
    Kind("calls", 30, _calls, _is_value(120)),
    Kind(
        "concurrent calls",
        8,
        lambda chance: (
            f"return (await Promise.all(Array.from({{ length: {chance.randint(10, 200)} }}, (_, i) => tools.add({{ a: i, b: 0 }})))).every((sum, i) => sum === i)"
        ),
        _is_value(True),
    ),
    Kind(
        "large values",
        5,
        lambda chance: (
            f"return (await tools.repeat({{ text: 'ab', times: {chance.randint(1, 400_000)} }})).slice(0, 2)"
        ),
        _is_value("ab"),
    ),
    Kind("an enum", 4, lambda chance: f"enum E {{ A = {chance.randint(1, 999)} }} return E[E.A]", _is_value("A")),
    Kind("cancelled", 12, _waits, _is_value("waited"), cancelled=True),
    Kind("cancelled at work", 4, lambda _: "while (true) {}", lambda _: False, cancelled=True),
    Kind(
        "out of time",
        4,
        lambda _: "await tools.wait({ seconds: 60 })",
        _ends_with("timed_out", "program_timeout"),
        _SHORT,
    ),
    Kind(
        "endless loop",
        4,
        lambda _: "while (true) {}",
        _ends_with("timed_out", "program_timeout"),
        _LITTLE_CPU,
    ),
    Kind(
        "heap bomb",
        2,
        lambda _: "const a = []; for (;;) a.push({ x: [1, 2, 3] })",
        lambda result: result.error is not None and result.error.code in {"memory_exceeded", "program_timeout"},
        _BOMB,
    ),
    Kind(
        "buffer bomb",
        3,
        lambda chance: (
            f"const a = []; for (;;) {{ const b = new Uint8Array({chance.randint(1, 64)} << 20); b.fill(1); a.push(b) }}"
        ),
        lambda result: result.error is not None and result.error.code in {"memory_exceeded", "program_timeout"},
        _BOMB,
    ),
    Kind(
        "console flood",
        4,
        lambda _: "for (let i = 0; i < 3000; i++) console.log('x'.repeat(100)); return 7",
        lambda result: result.value == 7 and len(result.truncated) == 1 and len(result.console) <= 64_000,
    ),
    Kind("thrown error", 5, lambda _: "throw new RangeError('as planned')", _ends_with("failed", "program_failed")),
    Kind("failing tool", 5, lambda _: "await tools.fail({ message: 'no' })", _ends_with("failed", "tool_error")),
    Kind("syntax error", 3, lambda _: "const = 1", _ends_with("rejected", "program_rejected")),
    Kind("large result", 3, lambda _: "return 'x'.repeat(2_000_000)", _ends_with("failed", "output_exceeded")),
    Kind(
        "left alone",
        4,
        lambda _: "tools.wait({ seconds: 0.01 }); setTimeout(() => {}, 60_000); return 'gone'",
        _is_value("gone"),
    ),
)


@dataclass(frozen=True, slots=True)
class Planned:
    """One execution to come. The times are seconds after its start."""

    kind: Kind
    source: str
    cancel_after: float | None
    kill_after: float | None
    """When some guest, not always this one's, is killed from outside."""
    launcher_kill_after: float | None
    """When what starts all guests, and ends with them, is killed."""
    user: str


def plan(chance: random.Random) -> Planned:
    """The next execution of a mix that `chance` decides."""
    (kind,) = chance.choices(KINDS, [kind.weight for kind in KINDS])
    return Planned(
        kind=kind,
        source=kind.source(chance),
        cancel_after=chance.uniform(0, 0.2) if kind.cancelled else None,
        kill_after=chance.uniform(0, 0.1) if chance.random() < 0.06 else None,
        launcher_kill_after=chance.uniform(0, 0.1) if chance.random() < 0.01 else None,
        user=chance.choice(USERS),
    )
