"""`python -m bench.checking`: what it costs that programs are checked before they run.

The programs are those of the tests' corpus, against its tools, and 60 tools with a program of 45 lines. The floor of an
execution is the same program unchecked, in turn with the checked one, in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

import anyio
from tests.checking.corpora import checked, valid_python_programs, wait_for
from tests.checking.tools import TOOLS
from tests.checking.typescript import valid_programs

from bench.host import describe_host
from bench.options import positive
from corral import Corral, Tool, define_tool
from corral.checking import Checker
from corral.checking.servers.specs import SERVERS, ServerKind
from corral.tools import ToolRegistry
from corral.types import Language

_PAUSE_SECONDS = 0.02
"""Between executions, as between those of a model; the servers fall asleep meanwhile."""
_PER_ROUND = 20
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["city"],
}
_READING = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "x": {"type": "number"}},
    "required": ["city", "x"],
}
_LONG = {
    "typescript": "\n".join(
        f"const r{n} = await tools.tool_{n}({{ city: 'Oslo %d', days: {n} }});\n"
        f"const rows{n} = [r{n}, r{n}].filter((each) => each.x > {n}).map(({{ city, x }}) => ({{ city, x: x * 2 }}));\n"
        f"rows{n}.sort((a, b) => b.x - a.x);"
        for n in range(15)
    ),
    "python": "\n".join(
        f"r{n} = await tools.tool_{n}(city='Oslo %d', days={n})\n"
        f"rows{n} = [{{'city': each['city'], 'x': each['x'] * 2}} for each in [r{n}, r{n}] if each['x'] > {n}]\n"
        f"rows{n}.sort(key=lambda each: each['x'])"
        for n in range(15)
    ),
}
"""45 lines; the number makes each one new to the checker."""
_EXECUTED: dict[Language, dict[str, str]] = {
    "typescript": {
        "W1, return 1": "return 1",
        "one call, a new program": "return (await tools.tool_1({ city: 'Oslo %d' })).x",
        "one call, the same program": "return (await tools.tool_1({ city: 'Oslo' })).x",
        "45 lines, a new program": _LONG["typescript"],
    },
    "python": {
        "W1, 1": "1",
        "one call, a new program": "(await tools.tool_1(city='Oslo %d'))['x']",
        "one call, the same program": "(await tools.tool_1(city='Oslo'))['x']",
        "45 lines, a new program": _LONG["python"],
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.checking", description=__doc__)
    parser.add_argument("--rounds", metavar="N", type=positive, default=5, help="how many rounds (default: 5)")
    parser.add_argument("--servers", default="tsgo,deno,ty", help="which language servers (default: tsgo,deno,ty)")
    arguments = parser.parse_args()
    host = describe_host(uvloop=False)
    print(f"{host['cpu']}, {host['cores']} cores, load {host['load']}; {host['python']}; rounds: {arguments.rounds}\n")
    for kind in SERVERS:
        if kind.name in arguments.servers.split(","):
            _checks(kind, arguments.rounds)
    for language in _EXECUTED:
        anyio.run(_executions, language, arguments.rounds)


def _checks(kind: ServerKind, rounds: int) -> None:
    """How long a server takes to get ready, a check by itself takes, and how large the server is then."""
    checker = Checker(servers=(kind,))
    try:
        tools = ToolRegistry(*_sixty())
        ready = _seconds(lambda: (checker.start(kind.language, tools), wait_for(checker, kind.language, 60)))
        if not wait_for(checker, kind.language, 0):
            print(f"{kind.name}: not here")
            return
        print(f"{kind.name}: ready after {ready * 1e3:.0f} ms")

        def check(source: str, registry: ToolRegistry) -> float:
            return _seconds(lambda: checked(checker, source, kind.language, registry, env=False))

        numbers = range(rounds * _PER_ROUND)
        _row("  45 lines, 60 tools", [check(_LONG[kind.language].replace("%d", str(n)), tools) for n in numbers])
        corpus = ToolRegistry(*TOOLS)
        programs = valid_programs() if kind.language == "typescript" else valid_python_programs()
        _row(f"  {len(programs)} programs of the corpus", [check(source, corpus) for source in programs.values()])
        server = checker.server(kind.language)
        assert server is not None
        assert server.pid is not None
        print(f"  resident: {_resident_mb(server.pid):.0f} MB")
    finally:
        checker.close()


async def _executions(language: Language, rounds: int) -> None:
    """Executions with and without a check, in turn."""
    async with AsyncExitStack() as stack:
        corrals = {check: await stack.enter_async_context(Corral(_sixty(), check=check)) for check in (True, False)}
        for corral in corrals.values():
            await corral.execute("1", language=language)
        await corrals[True].check("tools", language)
        print(f"\n{language}: an execution")
        for what, source in _EXECUTED[language].items():
            samples: dict[bool, list[float]] = {True: [], False: []}
            for number in range(rounds * _PER_ROUND):
                new = source.replace("%d", str(number))
                for check, corral in corrals.items():
                    started = time.perf_counter()
                    result = await corral.execute(new, language=language)
                    samples[check].append(time.perf_counter() - started)
                    assert result.success
                    assert result.checked == check
                    await anyio.sleep(_PAUSE_SECONDS)
            _row(f"  {what}", samples[True], median(samples[False]))


def _sixty() -> list[Tool]:
    async def answer(input: dict[str, Any], _: object) -> dict[str, Any]:
        return {"city": input["city"], "x": 1}

    return [
        define_tool(
            name=f"tool_{number}", description="Reads.", input_schema=_SCHEMA, output_schema=_READING, execute=answer
        )
        for number in range(60)
    ]


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _row(what: str, samples: Sequence[float], floor: float | None = None) -> None:
    ratio = "" if floor is None else f"  unchecked {floor * 1e3:6.2f} ms, ratio {median(samples) / floor:.2f}"
    p90 = sorted(samples)[len(samples) * 9 // 10]
    print(f"{what:40} {median(samples) * 1e3:8.2f} ms, p90 {p90 * 1e3:7.2f}{ratio}")


if __name__ == "__main__":
    main()
