"""Runs a batch of attacks inside the harness's namespaces.

`python -m tests.security.worker MODE TIER` reads attacks as JSON from its standard input and writes a `Verdict` a line
as each attack ends; the last lines list what is strange after all of them, and the processes that were left behind.
MODE `early` attacks nothing: see `early`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import cast

import anyio

from corral import Corral, ExecutionContext, ExecutionResult
from tests.security.attacks import Attack
from tests.security.canaries import Canaries, Scene, scene
from tests.security.early import end_early
from tests.security.modes import PYTHON, SHARING, Mode, Tier, Verdict
from tests.security.product import attacked_corral, attempt, outcomes
from tests.security.raw import BEGAN, RawStarter, attempt_raw, raw_starter
from tests.security.surroundings import look, strange

__all__: list[str] = []

_AT_ONCE = 3
_BOMBS_AT_ONCE = 2
_DETAIL_CHARS = 600
_GONE_SECONDS = 3.0


class _Batch:
    def __init__(self, mode: Mode, scene: Scene, way: Corral | RawStarter, untouched: ExecutionResult | None) -> None:
        self._mode: Mode = mode
        self._scene = scene
        self._way = way
        self._untouched = untouched
        """What a program that looks after an attack should find; none in raw mode."""
        self._slots = anyio.Semaphore(_AT_ONCE)
        self._users = [f"user {number}" for number in range(_AT_ONCE)]
        """Who has no attack under way: where executions share a process, no attack of another's ends it."""
        self._bombs = anyio.Semaphore(_BOMBS_AT_ONCE)

    async def run_all(self, attacks: list[Attack]) -> None:
        async with anyio.create_task_group() as tasks:
            for attack in attacks:
                tasks.start_soon(self._run_bounded, attack)

    async def _run_bounded(self, attack: Attack) -> None:
        if attack.kind == "memory":
            async with self._bombs:
                await self._run(attack)
        else:
            await self._run(attack)

    async def _run(self, attack: Attack) -> None:
        async with self._slots:
            canaries = Canaries(self._scene, attack.id)
            try:
                started = time.monotonic()
                verdict = await self._judged(attack, canaries)
                verdict["seconds"] = round(time.monotonic() - started, 2)
            finally:
                canaries.close()
        print(json.dumps(verdict), flush=True)  # noqa: T201 - this is how the worker reports

    async def _judged(self, attack: Attack, canaries: Canaries) -> dict[str, object]:
        code = canaries.fill(attack.code)
        if not isinstance(self._way, Corral):
            said = await attempt_raw(self._way, attack, code)
            began = BEGAN in said
            verdict = Verdict(attack.id, [], canaries.damage(said), began, [], said[:_DETAIL_CHARS], 0)
            return asdict(verdict)
        assert self._untouched is not None
        user = self._users.pop()
        try:
            result, following = await attempt(self._way, self._mode, attack, code, user)
        finally:
            self._users.append(user)
        said = result.to_json()
        verdict = Verdict(
            attack.id,
            outcomes(result),
            canaries.damage(said + "\n" + result.output),
            True,
            _shown(strange(self._untouched, following)),
            f"{result.status} {result.value!r} {result.error}"[:_DETAIL_CHARS],
            0,
        )
        return asdict(verdict)


async def main(mode: Mode, tier: Tier, attacks: list[Attack]) -> None:
    with scene() as found:
        async with AsyncExitStack() as stack:
            if mode == "raw":
                await _Batch(mode, found, stack.enter_context(raw_starter(tier)), None).run_all(attacks)
                return
            corral = await stack.enter_async_context(attacked_corral(mode, tier))

            async def look_around(*, whole: bool) -> ExecutionResult:
                context = ExecutionContext(user_id="beside all attacks")
                return await look(corral, context, python=mode in PYTHON, whole=whole)

            before, untouched = await look_around(whole=True), await look_around(whole=mode in SHARING)
            assert before.error is untouched.error is None
            await _Batch(mode, found, corral, untouched).run_all(attacks)
            _report("strange", _shown(strange(before, await look_around(whole=True))))


def _shown(lines: Sequence[str]) -> list[str]:
    return [line[:200] for line in lines[:10]]


def _report(name: str, found: list[str]) -> None:
    print(json.dumps({name: found}), flush=True)  # noqa: T201


def _report_left() -> None:
    """Lists what was left behind. What was killed may take a moment to go: process 1, not this one, reaps it."""
    deadline = time.monotonic() + _GONE_SECONDS
    while (left := _others()) and time.monotonic() < deadline:
        time.sleep(0.02)
    _report("left", left)


def _others() -> list[str]:
    """Every process of the namespace but number 1 and this one."""
    found: list[str] = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) not in {1, os.getpid()}:
            with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                found.append(f"{path.name}: {path.joinpath('cmdline').read_text()[:200]!r}")
    return found


if __name__ == "__main__":
    if sys.argv[1] == "early":
        end_early(cast("Tier", sys.argv[2]))
    else:
        attacks = [Attack(**each) for each in json.load(sys.stdin)]
        anyio.run(main, cast("Mode", sys.argv[1]), cast("Tier", sys.argv[2]), attacks)
    _report_left()
