"""Holds a program back until it has been checked: its first call, what it prints, and its result."""

from __future__ import annotations

from concurrent.futures import Future

import anyio

from corral.checking.case import Case
from corral.checking.checker import Checker, PendingCheck
from corral.checking.verdict import Verdict
from corral.concurrency.threads import thread_safe_callback
from corral.errors import ProgramRejected


class Gate:
    """The gate of one program. The program starts during the check, so the check usually costs no time."""

    def __init__(self, checker: Checker, case: Case) -> None:
        self._checker = checker
        self._case = case
        started = checker.begin(case)
        self.verdict = checker.reconsidered(case, started) if isinstance(started, Verdict) else None
        self._pending = started if isinstance(started, PendingCheck) else None
        self._decided = Future[None]()
        if self.verdict is not None:
            self._decide()

    @property
    def is_decided(self) -> bool:
        return self._decided.done()

    @property
    def is_open(self) -> bool:
        """True if the program may continue: its check passed, or was neither possible nor required."""
        if not self._decided.done():
            return False
        return self.verdict.rejection is None if self.is_checked and self.verdict else not self._case.must

    @property
    def is_checked(self) -> bool:
        return self.verdict is not None and self.verdict.unchecked is None

    @property
    def rejection(self) -> ProgramRejected | None:
        """The error for a program that must not run; None if the program itself is not the reason."""
        if self.verdict is None:
            return None
        if self._case.must and self.verdict.is_own:
            return ProgramRejected(f"the program could not be checked, which is required: {self.verdict.unchecked}")
        return self.verdict.rejection

    async def decide(self) -> None:
        """Checks the program and decides."""
        try:
            if self._pending is not None:
                self.verdict = await self._pending.verdict()
            if self.verdict is None:
                self.verdict = await self._checker.verdict(self._case)
            self.verdict = self._checker.reconsidered(self._case, self.verdict)
        finally:
            self.close()

    def close(self) -> None:
        """Opens or closes the gate for good, with or without a verdict. Idempotent."""
        if self._pending is not None:
            self._pending.close()
        self._decide()

    def _decide(self) -> None:
        if not self._decided.done():
            self._decided.set_result(None)

    async def wait(self) -> None:
        """Waits for the decision, on any event loop."""
        decided = anyio.Event()
        notify = thread_safe_callback(decided.set)
        self._decided.add_done_callback(lambda _: notify())
        await decided.wait()
