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
from tests.security.modes import CELLS, LOOKS, PYTHON, SHARING, Mode, Tier, Verdict
from tests.security.product import attacked_corral, attempt, outcomes
from tests.security.raw import BEGAN, RawStarter, attempt_raw, raw_starter
from tests.security.surroundings import look, strange

__all__: list[str] = []

_AT_ONCE = 2
_DETAIL_CHARS = 600
_GONE_SECONDS = 20.0


class _Batch:
    def __init__(self, mode: Mode, scene: Scene, way: Corral | RawStarter, untouched: ExecutionResult | None) -> None:
        self._mode: Mode = mode
        self._scene = scene
        self._way = way
        self._untouched = untouched
        """What a program that looks after an attack should find; none in raw mode."""
        self._slots = anyio.Semaphore(_AT_ONCE)
        # In Python all attacks are one user's. Else each is one's who has no attack under way: where executions share a
        # process, no attack of another's ends it.
        names = ["everybody"] * _AT_ONCE if mode in PYTHON else [f"user {number}" for number in range(_AT_ONCE)]
        self._users = [ExecutionContext(user_id=name, session_id=f"{name} {n}") for n, name in enumerate(names)]

    async def run_all(self, attacks: list[Attack]) -> None:
        size = LOOKS.get(self._mode, 1)
        async with anyio.create_task_group() as tasks:
            for start in range(0, len(attacks), size):
                tasks.start_soon(self._run, attacks[start : start + size])

    async def _run(self, attacks: list[Attack]) -> None:
        """Makes some attacks, one after the other, then looks around, as the same user."""
        async with self._slots:
            user = self._users.pop()
            try:
                verdicts = [await self._judged(attack, user) for attack in attacks]
                following = await self._following(user)
            finally:
                self._users.append(user)
        for verdict in verdicts:
            print(json.dumps(asdict(verdict) | {"following": following}), flush=True)  # noqa: T201 - so the worker reports

    async def _judged(self, attack: Attack, user: ExecutionContext) -> Verdict:
        canaries = Canaries(self._scene, attack.id)
        try:
            code = canaries.fill(attack.code)
            started = time.monotonic()
            if isinstance(self._way, Corral):
                result = await attempt(self._way, self._mode, attack, code, user)
                said, began, ends = f"{result.to_json()}\n{result.console}", True, outcomes(result)
                detail = f"{result.status} {result.value!r} {result.error}"
            else:
                said = detail = await attempt_raw(self._way, attack, code)
                began, ends = BEGAN in said, []
            seconds = round(time.monotonic() - started, 2)
            return Verdict(attack.id, ends, canaries.damage(said), began, [], detail[:_DETAIL_CHARS], seconds)
        finally:
            canaries.close()

    async def _following(self, user: ExecutionContext) -> list[str]:
        if not isinstance(self._way, Corral):
            return []
        assert self._untouched is not None
        if self._mode in CELLS:  # a later cell may find what it has changed
            user = user.model_copy(update={"session_id": None})
        found = await look(self._way, user, python=self._mode in PYTHON, whole=self._mode in SHARING)
        return _shown(strange(self._untouched, found))


async def main(mode: Mode, tier: Tier, attacks: list[Attack]) -> None:
    with scene() as found:
        async with AsyncExitStack() as stack:
            if mode == "raw":
                await _Batch(mode, found, stack.enter_context(raw_starter(tier)), None).run_all(attacks)
                return
            corral = await stack.enter_async_context(attacked_corral(mode, tier))
            # Somebody whose programs have nothing in common with the attacks; a server with packages takes long to start.
            beside = ExecutionContext(user_id="everybody" if mode == "science" else "beside all attacks")

            async def look_around(*, whole: bool) -> ExecutionResult:
                return await look(corral, beside, python=mode in PYTHON, whole=whole)

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
