"""Runs a durable program against a host that records its replies, and again from the record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from typing_extensions import override

from corral import Limits
from corral.npm import ModuleTexts
from corral.programs import prepare_python, prepare_typescript
from corral.sandboxes import Job, SandboxProvider
from corral.sandboxes.base import GuestJournal, SavedGuest
from corral.types import (
    TIMER,
    CallError,
    CallRequest,
    Exit,
    GuestState,
    Language,
    LogEntry,
    Owner,
    PipeEndpoint,
    Reply,
    SandboxConfig,
    ToolName,
)

__all__ = ["Answer", "Recording", "differences", "record", "replay"]

NOW = 1_800_000_000_000.25
Answer = Callable[[str, Any], Awaitable[Reply]]


class Recording(GuestJournal):
    """A journal in memory: it records, or it gives the replies of another one in their order."""

    def __init__(self, answer: Answer, seed: str, of: Recording | None = None) -> None:
        self.answer, self.seed, self.of = answer, seed, of
        self.calls: dict[int, tuple[str, Any]] = {}
        self.replies: list[tuple[int, Reply]] = []
        """Replies in the order in which the program got them; 0 stands for FINISH."""
        self.exit: Exit | None = None
        self.state: GuestState | None = None
        self.logs: list[LogEntry] = []
        self.idle_states: list[GuestState] = []
        self.cancelled: set[int] = set()
        self.ask: Callable[[], None] = lambda: None
        self._timers: dict[int, anyio.CancelScope] = {}
        self._turns: dict[int, anyio.Event] = {}
        self._finish = anyio.Event()
        self._next = 0
        self._began = anyio.current_time()

    @property
    @override
    def start(self) -> Mapping[str, object]:
        return {"seed": self.seed, "now": NOW}

    @property
    @override
    def stored(self) -> SavedGuest | None:
        return None

    @override
    def began(self, *, restored: bool) -> None:
        pass

    @override
    def attach(self, ask: Callable[[], None], save: Callable[[], None]) -> None:
        self.ask = ask

    @override
    def saved(self, guest: SavedGuest | None) -> None:
        raise AssertionError("no engine of these tests was asked for its state")

    @override
    def arrived(self) -> None:
        pass

    @override
    def cleared(self, sequence: int) -> None:
        self.cancelled.add(sequence)
        if scope := self._timers.get(sequence):
            scope.cancel()

    @override
    def idle(self, state: GuestState) -> None:
        self.idle_states.append(state)

    @override
    def ending(self, state: GuestState) -> None:
        self._advance()

    @override
    async def grace(self) -> None:
        await (self._finish.wait() if self.of else anyio.sleep(0.05))

    @override
    def lost(self) -> None:
        pass

    @override
    def finishing(self) -> None:
        self.replies.append((0, Reply()))

    @override
    def ended(self, state: GuestState) -> None:
        self.state = state

    async def handle(self, call: CallRequest) -> Reply:
        self.calls[call.sequence] = call.tool, call.input
        if self.of is not None:
            return await self._recorded(call.sequence)
        with anyio.CancelScope() as scope:
            if call.sequence in self.cancelled:
                scope.cancel()
            if call.tool == TIMER:
                self._timers[call.sequence] = scope
                milliseconds: Any = call.input
                await anyio.sleep(milliseconds / 1000)
                reply = Reply()
            else:
                reply = await self._answered(call)
            active = (anyio.current_time() - self._began) * 1000
            reply = reply._replace(stamp=(NOW + active, active))
            self.replies.append((call.sequence, reply))
            return reply
        return Reply(parked=True)

    async def _answered(self, call: CallRequest) -> Reply:
        try:
            return await self.answer(call.tool, call.input)
        except ValueError as error:
            return Reply(error=CallError(code="tool_failed", name="ToolFailed", message=str(error)))

    async def _recorded(self, sequence: int) -> Reply:
        assert self.of is not None
        self._turns[sequence] = turn = anyio.Event()
        self._advance()
        await turn.wait()
        _, reply = self.of.replies[self._next]
        self._next += 1
        self._advance()
        return reply

    def _advance(self) -> None:
        """Wakes the call whose reply is the next one."""
        if self.of is None or self._next == len(self.of.replies):
            return
        sequence, _ = self.of.replies[self._next]
        if sequence == 0:
            self._finish.set()
        elif turn := self._turns.get(sequence):
            turn.set()


async def record(
    provider: SandboxProvider, language: Language, source: str, answer: Answer, seed: str = "5a" * 32
) -> Recording:
    """Runs a program, and returns its record."""
    return await run(provider, language, source, Recording(answer, seed))


async def replay(provider: SandboxProvider, language: Language, source: str, of: Recording) -> Recording:
    """Runs it again, with recorded replies only."""
    return await run(provider, language, source, Recording(of.answer, of.seed, of))


async def run(provider: SandboxProvider, language: Language, source: str, journal: Recording) -> Recording:
    """Runs a program with a journal."""
    limits = Limits(wall_seconds=60, calls=1000)
    job = Job(
        execution_id="x",
        program=prepare_typescript(source) if language == "typescript" else prepare_python(source),
        limits=limits,
        tools=(ToolName.parse("get"), ToolName.parse("put")),
        env={},
        services=("$fetch", "$http"),
        on_log=journal.logs.append,
        on_outcome=lambda _: None,
        modules=ModuleTexts(allowed=(), texts={}, failures={}) if language == "typescript" else None,
        durable=journal,
    )
    config = SandboxConfig(
        language=language,
        owner=Owner("o", "u"),
        durable=True,
        modules=language == "typescript",
        memory_mb=limits.memory_mb,
    )
    async with await provider.start(config) as sandbox:
        with anyio.fail_after(60):
            journal.exit = await sandbox.execute(job, PipeEndpoint(handler=journal.handle))
    return journal


def differences(one: Recording, other: Recording) -> list[str]:
    """Returns what differs between two runs. Calls that ended with their program may be on one record only."""
    both = one.calls.keys() & other.calls.keys()
    parts = {
        "calls": ({n: one.calls[n] for n in both}, {n: other.calls[n] for n in both}),
        "exits": (one.exit, other.exit),
        "states": (one.state, other.state),
        "logs": ([entry.text for entry in one.logs], [entry.text for entry in other.logs]),
    }
    return [f"{name}: {first!r} {second!r}" for name, (first, second) in parts.items() if first != second]
