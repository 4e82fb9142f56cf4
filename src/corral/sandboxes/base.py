"""The two contracts of a sandbox provider: `SandboxProvider` and `Sandbox`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from corral.containment import TIERS, ContainmentKind, Tier
from corral.errors import StartFailed
from corral.jail.spaces import SpaceHost
from corral.npm import ModuleTexts
from corral.sessions import ProgramFiles
from corral.types import Capabilities, Endpoint, Exit, GuestState, Limits, LogEntry, Program, SandboxConfig, ToolName

GRACE_SECONDS = 0.25
"""Seconds that calls can continue after their program has ended, unless their tool must finish."""


class SavedGuest(NamedTuple):
    """Guest of a durable program, at a moment at which nothing was left to run."""

    memory: bytes
    """State of the engine, which only the same engine can read."""
    session: Mapping[str, Any]
    """State of its session, as JSON."""


class GuestJournal(Protocol):
    """Journal of a durable execution, in the form that the session of its guest uses.

    The endpoint's handler answers the calls, including timers (`TIMER`). It also decides the order of replies, so each
    reply enters the guest's buffer in the same turn in which the handler returns it. To pause, the journal cancels the
    session.
    """

    @property
    def start(self) -> Mapping[str, object]:
        """Returns the member `durable` of START: `seed`, 64 hexadecimal digits, and `now`, in milliseconds."""
        ...

    @property
    def stored(self) -> SavedGuest | None:
        """Returns the guest to restore; None if the program begins, or runs again from its first line."""
        ...

    def began(self, *, restored: bool) -> None:
        """Called when the guest runs: as the stored one, or from the beginning."""
        ...

    def attach(self, ask: Callable[[], None], save: Callable[[], None]) -> None:
        """Gives the host two functions for questions to the guest.

        `ask` asks the guest, by PING, whether anything is left to run. PING follows all replies that the handler has
        returned. The answer goes to `idle`, and only the one to the last PING counts. `save` asks an idle guest, whose
        engine has `Capabilities.saves`, for its state, which goes to `saved`.
        """
        ...

    def saved(self, guest: SavedGuest | None) -> None:
        """Called with the guest's state; None if it cannot be saved as it is."""
        ...

    def arrived(self) -> None:
        """Called when a CALL was received."""
        ...

    def cleared(self, sequence: int) -> None:
        """Called when the program has cancelled a timer. Its call gets no reply, unless one is already under way."""
        ...

    def idle(self, state: GuestState) -> None:
        """Called for a PONG: nothing is left to run until another reply arrives."""
        ...

    def ending(self, state: GuestState) -> None:
        """Called for an OUTCOME, with which the program ends without waiting for its remaining calls."""
        ...

    async def grace(self) -> None:
        """Waits, after `ending`, until the remaining calls have to be cancelled."""
        ...

    def lost(self) -> None:
        """Called when the connection to the guest was lost. Then calls that have begun a change must finish."""
        ...

    def finishing(self) -> None:
        """Called when FINISH enters the guest's buffer."""
        ...

    def ended(self, state: GuestState) -> None:
        """Called for an EXIT."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One program and the settings of its run: the content of a guest's first message.

    `env` is the program's whole environment; with None, it does not have one. `mounts` are the paths of its session's
    directories, whether they are writable, and their real paths if these differ; `files` are their contents, for an
    engine that sees no directories. `modules` are packages that it can import, `types` is a text that defines the
    declared types that it uses as values, and `services` are the names of the host's services. `durable` is the journal
    of a durable execution, for a sandbox with that setting. `on_log` gets each console entry as it arrives.
    `on_outcome` gets the program's outcome if calls are still running then, so that it is not lost if the program is
    ended.
    """

    execution_id: str
    program: Program
    limits: Limits
    tools: tuple[ToolName, ...]
    env: Mapping[str, str] | None
    on_log: Callable[[LogEntry], None]
    on_outcome: Callable[[Exit], None]
    mounts: tuple[tuple[str, bool, str | None], ...] = ()
    files: ProgramFiles | None = None
    modules: ModuleTexts | None = None
    types: str = ""
    services: tuple[str, ...] = ()
    durable: GuestJournal | None = None


class SandboxProvider(ABC):
    """Starts sandboxes, possibly many at the same time.

    Closing a Corral also closes its provider, except inside the provider's own `async with`. There, warm sandboxes
    serve the next Corral, and are freed at the end of the block.
    """

    name: ClassVar[str]
    packages: tuple[str, ...] = ()
    """Packages of the provider that its programs can import."""
    _entered = 0

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Returns the languages, bridges and limits that its sandboxes support on this machine."""

    @abstractmethod
    async def start(self, config: SandboxConfig) -> Sandbox:
        """Starts a sandbox, ready for one program.

        Raises:
            StartFailed: the sandbox does not start; the message has the reason and the remedy.
        """

    def engine_version(self, config: SandboxConfig) -> str:  # noqa: ARG002
        """Returns the versions of everything on which the course of a program depends, such as the engine and its
        packages.

        A durable execution can only continue with the same versions.
        """
        return self.name

    def for_durable(self) -> SandboxProvider:
        """Returns the provider for durable programs, which is always the same: by default this one."""
        return self

    async def warm(self, config: SandboxConfig) -> None:
        """Checks that sandboxes of this kind can be started, and keeps some ready until `aclose`.

        Raises:
            StartFailed: see `start`.
        """

    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:  # noqa: ARG002
        """Returns the host of spaces that its guests can see; None if they see no directories of a session."""
        return None

    async def aclose(self) -> None:
        """Frees everything kept between sandboxes. The provider can be used again."""

    @property
    def is_entered(self) -> bool:
        """True inside its `async with`. Only the end of that block closes it then."""
        return self._entered > 0

    async def __aenter__(self) -> Self:
        self._entered += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered -= 1
        if not self._entered:
            await self.aclose()


class Sandbox(ABC):
    """Live sandbox, used as `async with`. It belongs to one owner until it is closed.

    The caller handles deadlines and cancellation: `execute` runs until the program ends or its task is cancelled.
    `aclose` always follows, and must end everything that still runs inside.
    """

    containment: ContainmentKind
    """Actual containment, as results report it."""

    @property
    def is_usable(self) -> bool:
        """True after `execute` if it can run the next cell of a notebook."""
        return False

    @abstractmethod
    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        """Runs a program to its end. Never raises, whatever the guest does; the `Exit` reports it."""

    @abstractmethod
    async def aclose(self) -> None:
        """Ends the sandbox and everything that runs in it. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def below_required_tier(name: str, containment: ContainmentKind, required: Tier) -> StartFailed:
    """Returns the error for a sandbox with insufficient containment."""
    accepted = next(tier for tier in reversed(TIERS) if containment.reaches(tier))
    known = f" ({containment.strength})" if containment not in TIERS else ""
    return StartFailed(
        f"sandbox {name!r} runs with containment {str(containment)!r}{known}, below the required tier {required!r}; "
        f"accept it with Corral(containment={accepted!r})"
    )
