"""Holds a program back until it has been checked: its first call, what it prints, and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from corral.checking.case import Case
from corral.checking.checker import Begun, Checker
from corral.checking.verdict import Verdict
from corral.concurrency.deadline import PausableDeadline
from corral.errors import ProgramRejected
from corral.types import Reply

__all__ = ["Gate"]

C = TypeVar("C")


class Gate:
    """Of one program. It starts meanwhile, so that a check as a rule costs it nothing."""

    def __init__(self, checker: Checker, case: Case) -> None:
        self._checker = checker
        self._case = case
        begun = checker.begin(case)
        self.verdict = begun if isinstance(begun, Verdict) else None
        self._begun = begun if isinstance(begun, Begun) else None
        self._decided = anyio.Event()
        if self.verdict is not None:
            self._decided.set()

    @property
    def is_decided(self) -> bool:
        return self._decided.is_set()

    @property
    def is_open(self) -> bool:
        """True if the program may go on: it has been checked, or could not be and need not be."""
        if not self._decided.is_set():
            return False
        return self.verdict.rejection is None if self.is_checked and self.verdict else not self._case.must

    @property
    def is_checked(self) -> bool:
        return self.verdict is not None and self.verdict.unchecked is None

    @property
    def rejection(self) -> ProgramRejected | None:
        """The reason that the program must not run, if it is the program's own."""
        if self.verdict is None:
            return None
        if self._case.must and self.verdict.is_own:
            return ProgramRejected(f"the program could not be checked, as it must be: {self.verdict.unchecked}")
        return self.verdict.rejection

    async def decide(self) -> None:
        """Has the program checked."""
        try:
            if self._begun is not None:
                self.verdict = await self._begun.verdict()
            if self.verdict is None:
                self.verdict = await self._checker.verdict(self._case)
        finally:
            self.close()

    def close(self) -> None:
        """Decides, if nothing has been decided yet. Idempotent."""
        if self._begun is not None:
            self._begun.close()
        self._decided.set()

    async def wait(self) -> None:
        """Until it is decided."""
        await self._decided.wait()

    def guard(
        self, handler: Callable[[C], Awaitable[Reply]], clock: PausableDeadline
    ) -> Callable[[C], Awaitable[Reply]]:
        """Lets calls through once it is open; if it stays shut, none. The clock stands while they wait."""

        async def gated(call: C) -> Reply:
            if not self.is_open:
                with clock.paused():
                    await self._decided.wait()
                if not self.is_open:
                    await anyio.sleep_forever()  # until the program is ended
            return await handler(call)

        return gated
