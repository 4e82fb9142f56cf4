"""Runs one driver process to its end, and looks at its memory whenever it asks for that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bench.driver import Outcome
from bench.engines import ROOT, Driver
from bench.memory import Memory, tree_memory
from bench.workloads import Plan

__all__ = ["Measured", "conduct"]

_SECONDS = 400.0
"""For one round of one row; what is not done by then is given up."""
_STDERR_CHARS = 600


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One round of one row. `memory` has `rest`, all that the provider's processes take when nothing runs, and what one
    `idle` and one `live` sandbox take.
    """

    outcome: Outcome
    memory: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    failure: str | None = None
    """Why there is nothing in the outcome."""

    @property
    def is_empty(self) -> bool:
        return self.failure is not None or "samples" not in self.outcome


def conduct(driver: Driver, plan: Plan, *, uvloop: bool) -> Measured:
    """Starts `driver`, lets it do `plan`, and ends all that it started."""
    if driver.needs is not None and not driver.needs.exists():
        return Measured(outcome={"unavailable": "not set up: run bench/peers/setup"})
    command = [*driver.command, *(["--uvloop"] if uvloop else [])]
    with tempfile.TemporaryFile("w+") as errors:
        try:
            process = subprocess.Popen(
                command,
                cwd=driver.directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            return Measured(outcome={}, failure=f"{driver.command[0]}: {error.strerror}")
        late = threading.Event()
        timer = threading.Timer(_SECONDS, _give_up, (process, late))
        timer.start()
        try:
            with process:
                outcome, memory = _listen(process, plan)
        except BrokenPipeError:
            outcome, memory = None, {}
        finally:
            timer.cancel()
            _end(process)
        if outcome is not None:
            return Measured(outcome=outcome, memory=memory, failure=outcome.get("failed"))
        errors.seek(0)
        tail = errors.read()[-_STDERR_CHARS:].strip()
        why = f"not done after {_SECONDS:g} s" if late.is_set() else f"ended with status {process.returncode}"
        return Measured(outcome={}, failure=f"{why}: {tail}".removesuffix(": "))


def _listen(process: subprocess.Popen[str], plan: Plan) -> tuple[Outcome | None, dict[str, dict[str, float]]]:
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(plan), file=process.stdin, flush=True)
    base = Memory()
    memory: dict[str, dict[str, float]] = {}
    for line in process.stdout:
        if not line.startswith("{"):  # something of the engine's own
            continue
        message: dict[str, Any] = json.loads(line)
        if "pause" not in message:
            process.stdin.close()
            return Outcome(**message), memory
        host, below = tree_memory(process.pid)
        if not message["sandboxes"]:
            base = host + below
            memory.setdefault("rest", below.each(Memory(), 1))
        else:
            memory[message["pause"]] = (host + below).each(base, message["sandboxes"])
        print(file=process.stdin, flush=True)
    return None, memory


def _give_up(process: subprocess.Popen[str], late: threading.Event) -> None:
    late.set()
    _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
