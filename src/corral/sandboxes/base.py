"""The two contracts of a sandbox provider."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Protocol, Self

from corral.containment import TIERS, ContainmentKind, Tier
from corral.errors import StartFailed
from corral.jail.spaces import SpaceHost
from corral.npm import ModuleTexts
from corral.sessions import ProgramFiles
from corral.types import Capabilities, Endpoint, Exit, GuestState, Limits, LogEntry, Program, SandboxConfig, ToolName

GRACE_SECONDS = 0.25
"""Grace period for calls that still run when their program has ended, unless their tool must finish."""


class GuestJournal(Protocol):
    """Host's half of a durable execution, as the session of its guest sees it.

    Its calls are answered by the handler of the endpoint, timers (`TIMER`) among them. A reply enters the guest's
    buffer in the turn in which the handler returns it: the handler has just given it its place in the order. At a
    pause the journal cancels the session.
    """

    @property
    def start(self) -> Mapping[str, object]:
        """Returns the member `durable` of START: `seed`, 64 hexadecimal digits, and `now`, in milliseconds."""
        ...

    def attach(self, ask: Callable[[], None]) -> None:
        """Takes the function that asks the guest, by PING, if anything is left to run. The answer goes to `idle`.

        PING goes behind all replies that the handler has returned, and only the answer to the last PING counts.
        """
        ...

    def arrived(self) -> None:
        """Notes a received CALL."""
        ...

    def cleared(self, sequence: int) -> None:
        """Notes that the program has cancelled a timer. Its call gets no reply, unless that is under way."""
        ...

    def idle(self, state: GuestState) -> None:
        """Takes a PONG: nothing is left to run until another reply arrives."""
        ...

    def ending(self, state: GuestState) -> None:
        """Takes an OUTCOME that does not wait for the calls that are left."""
        ...

    async def grace(self) -> None:
        """Waits, after `ending`, until the calls that are left have to be cut short."""
        ...

    def finishing(self) -> None:
        """Notes that FINISH enters the guest's buffer now."""
        ...

    def ended(self, state: GuestState) -> None:
        """Takes an EXIT."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One program and everything about its run: the content of a guest's first message.

    `env` is the program's whole environment; None hides even an empty one. `mounts` are the paths of its session's
    directories, whether they are writable, and their real places if these differ; `files` are their contents, for an
    engine that sees no directories. `modules` are packages that it can import, `types` a text that defines the
    declared types that it uses as values, and `services` the names of the host's services. `durable` is the journal of
    a durable execution, for a sandbox with that setting. `on_log` gets each console
    entry as it arrives, and `on_outcome` the program's outcome if calls are still running then, so that both survive
    whatever ends the program.
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

    A closing Corral closes its provider too, except inside the provider's own `async with`: then warm sandboxes serve
    the next Corral, and are freed at the end of the block.
    """

    name: ClassVar[str]
    packages: tuple[str, ...] = ()
    """The provider's own packages, which its programs can import."""
    _entered = 0

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Returns the languages, bridges and limits that its sandboxes support on this machine."""

    @abstractmethod
    async def start(self, config: SandboxConfig) -> Sandbox:
        """Starts a sandbox, ready for one program.

        Raises:
            StartFailed: with the reason and the remedy.
        """

    def engine_version(self, config: SandboxConfig) -> str:  # noqa: ARG002
        """Returns the versions of everything that decides how a program runs, such as an engine and its packages.

        A durable execution only continues where they are the same.
        """
        return self.name

    async def warm(self, config: SandboxConfig) -> None:
        """Checks that sandboxes of this kind can be started, and keeps some ready until `aclose`.

        Raises:
            StartFailed: as `start` does.
        """

    async def space_host(self, config: SandboxConfig) -> SpaceHost | None:  # noqa: ARG002
        """Returns the host of spaces that its guests can see; None if they see no directories of a session."""
        return None

    async def aclose(self) -> None:
        """Frees everything kept between sandboxes. The provider can be used again afterwards."""

    @property
    def is_entered(self) -> bool:
        """True inside its `async with`: then only that block closes it."""
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
    """One live sandbox, used as `async with`. It belongs to one owner until it is closed.

    Deadlines and cancellation belong to the caller: `execute` runs until the program ends or its task is cancelled,
    and `aclose`, which must end everything that still runs inside, always follows.
    """

    containment: ContainmentKind
    """Actual containment, as results report it."""

    @property
    def is_usable(self) -> bool:
        """True after `execute` if it can run the next cell of a notebook."""
        return False

    @abstractmethod
    async def execute(self, job: Job, bridge: Endpoint) -> Exit:
        """Runs a program to its end. The `Exit` reports whatever the guest does; none of it raises."""

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
