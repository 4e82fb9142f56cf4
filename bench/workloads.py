"""What is measured: one program for each workload, in JavaScript and in Python, with what it must return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypedDict

__all__ = [
    "CALLS_SKIPPED",
    "COLD",
    "KEYS",
    "LIVE_SANDBOXES",
    "MEMORY",
    "TEXT_LENGTH",
    "WORKLOADS",
    "Language",
    "Plan",
    "PlannedWorkload",
    "Workload",
    "make_plan",
]

Language: TypeAlias = Literal["javascript", "python"]

COLD: Final = "cold"
"""The first result of a fresh provider, the making of the provider included."""
MEMORY: Final = "memory"
"""What idle and live sandboxes take."""
TEXT_LENGTH: Final = 1_000_000
CALLS_SKIPPED: Final = 200
"""Calls before the first that counts towards the cost of one."""
LIVE_SANDBOXES: Final = 4
"""How many are kept at the same time to see what one takes."""
_CALLS_COUNTED: Final = 1000


@dataclass(frozen=True, kw_only=True)
class Workload:
    """`at_once` executions of one program, each in a fresh sandbox, timed from the first submission to the last result.

    With `of_calls`, what is taken instead is the mean time from one call's arrival at the host to the next one's.
    """

    key: str
    title: str
    programs: Mapping[Language, str]
    expected: int
    """What the program returns, or the length of the text that it returns."""
    repeats: int
    """Samples in one round."""
    warmup: int = 1
    """Executions before the first sample."""
    at_once: int = 1
    of_calls: bool = False


_SEQUENTIAL_CALLS = f"""
let last = 0;
for (let i = 0; i < {CALLS_SKIPPED + _CALLS_COUNTED}; i++) last = await tools.add({{ a: i, b: 1 }});
return last;
"""

WORKLOADS: Final = (
    Workload(
        key="W1",
        title="a trivial program",
        programs={"javascript": "return 1;", "python": "1"},
        expected=1,
        repeats=10,
        warmup=2,
    ),
    Workload(
        key="W2",
        title="100 sequential calls",
        programs={
            "javascript": """
let sum = 0;
for (let i = 0; i < 100; i++) sum += await tools.add({ a: i, b: 1 });
return sum;
""",
            "python": """
total = 0
for i in range(100):
    total += await tools.add(a=i, b=1)
total
""",
        },
        expected=5050,
        repeats=5,
    ),
    Workload(
        key="W3",
        title="100 concurrent calls",
        programs={
            "javascript": """
const all = await Promise.all(Array.from({ length: 100 }, (_, i) => tools.add({ a: i, b: 1 })));
return all.reduce((sum, value) => sum + value, 0);
""",
            "python": """
import asyncio
sum(await asyncio.gather(*[tools.add(a=i, b=1) for i in range(100)]))
""",
        },
        expected=5050,
        repeats=5,
    ),
    Workload(
        key="W4",
        title="a text of 1 MB in and out",
        programs={"javascript": "return await tools.text({});", "python": "await tools.text()"},
        expected=TEXT_LENGTH,
        repeats=5,
    ),
    Workload(
        key="W5",
        title="fib(27) in the guest",
        programs={
            "javascript": """
const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));
return fib(27);
""",
            "python": """
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
fib(27)
""",
        },
        expected=196_418,
        repeats=3,
    ),
    Workload(
        key="W6",
        title="64 executions at once, each with 5 calls of 10 ms",
        programs={
            "javascript": """
let sum = 0;
for (let i = 0; i < 5; i++) sum += await tools.slow({ n: i });
return sum;
""",
            "python": """
total = 0
for i in range(5):
    total += await tools.slow(n=i)
total
""",
        },
        expected=10,
        repeats=2,
        at_once=64,
    ),
    Workload(
        key="call",
        title="one call of many",
        programs={
            "javascript": _SEQUENTIAL_CALLS,
            "python": f"""
last = 0
for i in range({CALLS_SKIPPED + _CALLS_COUNTED}):
    last = await tools.add(a=i, b=1)
last
""",
        },
        expected=CALLS_SKIPPED + _CALLS_COUNTED,
        repeats=3,
        warmup=0,
        of_calls=True,
    ),
    Workload(
        key="timer-call",
        title="one call of many, after a timer",
        programs={"javascript": "await new Promise((resolve) => setTimeout(resolve, 1));" + _SEQUENTIAL_CALLS},
        expected=CALLS_SKIPPED + _CALLS_COUNTED,
        repeats=3,
        warmup=0,
        of_calls=True,
    ),
)

KEYS: Final = (COLD, *(workload.key for workload in WORKLOADS), MEMORY)

_TRIVIAL: Final[Mapping[Language, str]] = WORKLOADS[0].programs
_HOLD: Final[Mapping[Language, str]] = {"javascript": "return await tools.hold({});", "python": "await tools.hold()"}


class PlannedWorkload(TypedDict):
    key: str
    program: str
    expected: int
    repeats: int
    warmup: int
    at_once: int
    of_calls: bool


class Plan(TypedDict):
    """What a driver reads from its standard input, as one line of JSON."""

    trivial: str
    """The program of a cold start; it returns 1."""
    hold: str
    """A program that stays alive until the tool `hold` answers it with 1; empty: memory is not asked for."""
    sandboxes: int
    """How many of those to keep at once."""
    skipped: int
    text_length: int
    workloads: list[PlannedWorkload]


def make_plan(language: Language, only: frozenset[str]) -> Plan:
    """What a driver is to do for the chosen keys, so far as there is a program in its language."""
    return {
        "trivial": _TRIVIAL[language],
        "hold": _HOLD[language] if MEMORY in only else "",
        "sandboxes": LIVE_SANDBOXES,
        "skipped": CALLS_SKIPPED,
        "text_length": TEXT_LENGTH,
        "workloads": [
            {
                "key": workload.key,
                "program": workload.programs[language],
                "expected": workload.expected,
                "repeats": workload.repeats,
                "warmup": workload.warmup,
                "at_once": workload.at_once,
                "of_calls": workload.of_calls,
            }
            for workload in WORKLOADS
            if workload.key in only and language in workload.programs
        ],
    }
