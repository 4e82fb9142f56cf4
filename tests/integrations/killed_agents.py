"""Host of agents whose programs pause, for tests that kill it: `python -m tests.integrations.killed_agents`.

It imports the frameworks once. For each command, a line of JSON on its standard input, it forks a process that does one step of an
agent, which is stored in a folder, and writes a line: what the model reads of the program, null if the program has paused, or
"stopped" in a tool that does not return. That process then waits for its death.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import anyio

from corral import Approved, Corral, Tool, tool
from corral.ledger import SqliteLedger
from tests.integrations.pausing import AGENTS

KEYS = {"one": b"k" * 32}


class Command(TypedDict):
    """One step."""

    folder: str
    kind: str
    """Framework."""
    step: str
    """`start`, `answer`, or `decide`: approve call 2 without continuing the program."""
    source: NotRequired[str]
    decisions: NotRequired[Any]
    """Answers to all calls, or by the numbers of calls as text."""
    stop: NotRequired[bool]
    """True if `pay` does not return once it has taken effect."""


def _say(text: str | None) -> None:
    os.write(1, json.dumps(text).encode() + b"\n")


def _tools(folder: Path, *, stop: bool) -> list[Tool]:
    def change(n: int) -> int:
        with (folder / "effects").open("a") as effects:
            effects.write(f"{n}\n")
        return n * 10

    @tool(needs_approval=True)
    async def pay(n: int) -> int:
        """Sends money."""
        done = change(n)
        if stop:
            _say("stopped")
            await anyio.sleep_forever()
        return done

    return [tool(name="put")(change), pay]


async def _do(command: Command) -> None:
    folder = Path(command["folder"])
    stored, tools = folder / "agent", _tools(folder, stop=command.get("stop", False))
    async with Corral(tools, check=False, ledger=SqliteLedger(folder / "runs.db", keys=KEYS)) as corral:
        if command["step"] == "decide":
            [waiting] = await corral.executions.waiting()
            await corral.executions.settle(waiting.execution_id, {2: Approved(by="ann")})
            _say("decided")
        else:
            if command["step"] == "start":
                agent = AGENTS[command["kind"]](command.get("source", ""))
                text = await agent.start(corral)
            else:
                agent = pickle.loads(stored.read_bytes())  # noqa: S301 - written below
                decisions = command.get("decisions")
                if isinstance(decisions, dict):
                    decisions = {int(sequence): each for sequence, each in decisions.items()}  # pyright: ignore
                text = await agent.answer(corral, decisions)
            if text is None:
                stored.write_bytes(pickle.dumps(agent))
            _say(text)
        await anyio.sleep_forever()


def main() -> None:
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            try:
                anyio.run(_do, json.loads(line))
            finally:
                os._exit(1)
        print(child, flush=True)  # noqa: T201
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            _say("failed")


if __name__ == "__main__":
    main()
