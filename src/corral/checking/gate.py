"""Holds a program back until it has been checked: its first call, what it prints, and its result."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.to_thread

from corral.checking.checker import Begun, Checker
from corral.checking.verdict import Verdict
from corral.clock import Clock
from corral.errors import ProgramRejected
from corral.tools import ToolRegistry
from corral.types import Call, Handler, Language, References, Reply

__all__ = ["Gate"]


class Gate:
    """Of one program. It starts meanwhile, so that a check as a rule costs it nothing."""

    def __init__(
        self,
        checker: Checker,
        source: str,
        language: Language,
        tools: ToolRegistry,
        references: References | None = None,
        *,
        env: bool,
        must: bool,
    ) -> None:
        self._check = partial(checker.check, source, language, tools, env, must, references)
        self._must = must
        begun = checker.begin(source, language, tools, env, references)
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
        """Whether the program may go on: it has been checked, or could not be and need not be."""
        if not self._decided.is_set():
            return False
        return self.verdict.rejection is None if self.is_checked and self.verdict else not self._must

    @property
    def is_checked(self) -> bool:
        return self.verdict is not None and self.verdict.unchecked is None

    @property
    def rejection(self) -> ProgramRejected | None:
        return None if self.verdict is None else self.verdict.rejection

    async def decide(self) -> None:
        """Has the program checked."""
        try:
            if self._begun is not None:
                self.verdict = await self._begun.verdict()
            if self.verdict is None:
                own = anyio.CapacityLimiter(1)  # threads that tools keep busy must not keep it waiting
                self.verdict = await anyio.to_thread.run_sync(self._check, abandon_on_cancel=True, limiter=own)
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

    def guard(self, handler: Handler, clock: Clock) -> Handler:
        """Lets calls through once it is open; if it stays shut, none. The clock stands while they wait."""

        async def gated(call: Call) -> Reply:
            if not self.is_open:
                with clock.standing():
                    await self._decided.wait()
                if not self.is_open:
                    await anyio.sleep_forever()  # until the program is ended
            return await handler(call)

        return gated
