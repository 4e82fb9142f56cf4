"""An agent's run of ten calls by one program, with a scripted model, beside other code modes. `python -m bench.agents`.

Each sample is a new process: its first run (from the start of the process), later runs of an agent that nobody has
entered, and runs of one that is entered. Rows take turns. The peers are installed into environments of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).resolve().parents[1]
_RUNS = 10
_CALLS = 10
_TYPESCRIPT = "let sum = 0; for (let i = 0; i < 10; i++) sum += await tools.square({ number: i }); return sum;"
_PYTHON = "total = 0\nfor i in range(10):\n    total += await {}square(number=i)\ntotal"
_FASTMCP = """\
total = 0
for i in range(10):
    total += (await call_tool("square", {"number": i}))["result"]
return total"""
_SMOLAGENTS = "<code>\nfinal_answer(sum(square(i) for i in range(10)))\n</code>"
_SUM = sum(number**2 for number in range(_CALLS))


class _Row(NamedTuple):
    title: str
    peer: str | None
    """Environment; None: that of Corral."""
    distributions: tuple[str, ...]
    requirement: str = ""


_ROWS = {
    "corral-typescript": _Row("Corral, TypeScript", None, ("corral", "pydantic-ai-slim")),
    "corral-python": _Row("Corral, Python", None, ("corral", "pydantic-ai-slim")),
    "corral-typescript-deno": _Row("Corral, TypeScript, without tsgo", None, ("corral", "pydantic-ai-slim")),
    "harness": _Row(
        "pydantic-ai-harness, CodeMode",
        "harness",
        ("pydantic-ai-harness", "pydantic-ai-slim", "pydantic-monty"),
        "pydantic-ai-harness[code-mode]==0.62.0",
    ),
    "fastmcp": _Row("FastMCP, CodeMode", "fastmcp", ("fastmcp", "pydantic-monty"), "fastmcp[code-mode]==4.2.3"),
    "smolagents": _Row("smolagents, CodeAgent", "smolagents", ("smolagents",), "smolagents==1.26.0"),
}


class _Subject(NamedTuple):
    run: Callable[[], Awaitable[object]]
    enter: Callable[[], AbstractAsyncContextManager[Any]] | None


def square(number: int) -> int:
    """The square of a number."""
    return number**2


def _pydantic_ai(capability: Any, tool: str, code: str) -> _Subject:
    """An agent whose model writes the program, and then answers with what came of it."""
    messages, function = import_module("pydantic_ai.messages"), import_module("pydantic_ai.models.function")

    def respond(history: list[Any], _: Any) -> Any:
        if len(history) == 1:
            return messages.ModelResponse(parts=[messages.ToolCallPart(tool, {"code": code})])
        return messages.ModelResponse(parts=[messages.TextPart(str(history[-1].parts[-1].content))])

    agent = import_module("pydantic_ai").Agent(
        function.FunctionModel(respond), tools=[square], capabilities=[capability]
    )

    async def run() -> object:
        return (await agent.run("?")).output

    return _Subject(run, lambda: agent)


def _corral(language: str, code: str) -> _Subject:
    mode = import_module("corral.integrations.pydantic_ai").CodeMode(language=language)
    return _pydantic_ai(mode, "execute_code", code)


def _without_tsgo() -> _Subject:
    specs: Any = import_module("corral.checking.servers.specs")
    specs._tsgo_places = tuple  # noqa: SLF001 - there is none
    return _corral("typescript", _TYPESCRIPT)


def _harness() -> _Subject:
    mode = import_module("pydantic_ai_harness.code_mode").CodeMode()
    return _pydantic_ai(mode, "run_code", _PYTHON.format(""))


def _fastmcp() -> _Subject:
    fastmcp = import_module("fastmcp")
    server = fastmcp.FastMCP("bench")
    server.tool(square)
    server.add_transform(import_module("fastmcp.experimental.transforms.code_mode").CodeMode())
    client = fastmcp.Client(server)

    async def run() -> object:
        async with client:
            return str((await client.call_tool("execute", {"code": _FASTMCP})).content)

    return _Subject(run, lambda: client)


def _smolagents() -> _Subject:
    smolagents = import_module("smolagents")

    class Scripted(smolagents.Model):
        def generate(self, *_: Any, **__: Any) -> Any:
            return smolagents.ChatMessage(role="assistant", content=_SMOLAGENTS)

    tool: Any = smolagents.tool(_described_square)
    tool.name = "square"
    agent = smolagents.CodeAgent(tools=[tool], model=Scripted(), verbosity_level=0)

    async def run() -> object:
        return agent.run("?")

    return _Subject(run, None)


def _described_square(number: int) -> int:
    """The square of a number.

    Args:
        number: The number.
    """
    return number**2


_SUBJECTS: dict[str, Callable[[], _Subject]] = {
    "corral-typescript": lambda: _corral("typescript", _TYPESCRIPT),
    "corral-python": lambda: _corral("python", _PYTHON.format("tools.")),
    "corral-typescript-deno": _without_tsgo,
    "harness": _harness,
    "fastmcp": _fastmcp,
    "smolagents": _smolagents,
}


async def _sample(name: str, started: float) -> dict[str, float]:
    subject = _SUBJECTS[name]()
    found = {"cold": await _timed(subject, started)}
    found["unentered"] = statistics.median([await _timed(subject) for _ in range(_RUNS)])
    if subject.enter is not None:
        async with subject.enter():
            await _timed(subject)
            found["entered"] = statistics.median([await _timed(subject) for _ in range(_RUNS)])
    return found


async def _timed(subject: _Subject, started: float | None = None) -> float:
    began = time.monotonic() if started is None else started
    answer = str(await subject.run())
    if str(_SUM) not in answer:
        raise SystemExit(f"the program should come to {_SUM}, not to {answer}")
    return (time.monotonic() - began) * 1e3


def _python(row: _Row, peers: Path) -> str:
    """The interpreter of a row, whose environment is made if it is not there."""
    if row.peer is None:
        return sys.executable
    python = peers / row.peer / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(peers / row.peer)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", row.requirement], check=True)
    return str(python)


def _outcome(python: str, *arguments: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}" if python == sys.executable else str(_ROOT)}
    command = [python, "-m", "bench.agents", *arguments]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.agents", description=__doc__)
    parser.add_argument("--rows", default=",".join(_ROWS), help="default: all")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each; default: 5")
    parser.add_argument("--peers", type=Path, default=Path(tempfile.gettempdir(), "corral-bench-agents"))
    parser.add_argument("--sample", help=argparse.SUPPRESS)
    parser.add_argument("--versions", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.versions:
        print(json.dumps([f"{each} {version(each)}" for each in _ROWS[options.versions].distributions]))
        return
    if options.sample:
        print(json.dumps(asyncio.run(_sample(options.sample, options.started))))
        return
    rows = {name: _ROWS[name] for name in options.rows.split(",")}
    pythons = {name: _python(row, options.peers) for name, row in rows.items()}
    for name, python in pythons.items():
        _outcome(python, "--sample", name)  # bytecode and the files of engines are in the cache now
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    for _ in range(options.rounds):
        for name, python in pythons.items():
            try:
                found = _outcome(python, "--sample", name, "--started", str(time.monotonic()))
            except subprocess.CalledProcessError as error:
                print(f"{name}: a sample is left out, {error}", file=sys.stderr)
                continue
            samples[name].append(found)
            print(name, {key: round(each) for key, each in found.items()}, file=sys.stderr, flush=True)
    print("| | cold ms | unentered ms | entered ms | versions |\n|---|---|---|---|---|")
    for name, row in rows.items():
        medians = [
            f"{statistics.median(each[key] for each in samples[name]):.0f}"
            if samples[name] and key in samples[name][0]
            else "-"
            for key in ("cold", "unentered", "entered")
        ]
        print(f"| {row.title} | {' | '.join(medians)} | {', '.join(_outcome(pythons[name], '--versions', name))} |")


if __name__ == "__main__":
    main()
