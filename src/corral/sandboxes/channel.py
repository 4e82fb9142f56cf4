"""Contract of a byte channel: everything that a place needs to offer to run programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PostMortem:
    """Traces that a guest left when it ended without a result. Unknown facts keep their defaults."""

    status: int | None = None
    """Exit code, or minus the signal's number."""
    out_of_memory: bool = False
    stderr: str = ""
    """End of its standard error, for the log; it is cut to 16,384 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestFiles:
    """A guest as a place needs it: its files, and the command to run them."""

    files: Mapping[str, bytes]
    """Contents by name, for one folder. They are the same for every execution of a language."""
    options: tuple[str, ...]
    """Options of the engine: `deno`, or `python` from 3.11 on, for Linux."""
    main: str
    """Name of the file that the engine runs."""
    environment: Mapping[str, str]
    """Environment variables that the engine needs; it should have no others."""

    def command(self, engine: str, folder: str) -> list[str]:
        """Returns the command that starts the guest with the files in `folder`, which ends without a slash."""
        return [engine, *self.options, f"{folder}/{self.main}"]


class GuestChannel(ABC):
    """Bytes to and from the standard input and output of one guest.

    An exception from `send`, `received` or `cpu_seconds` ends the execution as `sandbox_lost`; the log has it.
    """

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Writes all of `data` to the guest's input. Sends never overlap."""

    @abstractmethod
    def received(self) -> AsyncIterator[bytes]:
        """Yields the guest's output as it arrives, until its end. Called once.

        The next piece is requested once the last one is handled, so limiting unread output is up to the channel.
        Several tasks may iterate, one after another: an async generator must not yield inside a cancel scope.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Ends the guest and frees its resources, within 10 s. Always called, perhaps while `received` waits."""

    async def cpu_seconds(self) -> float | None:
        """Returns the processor seconds used so far; the host ends the guest at its limit. None if not measured."""
        return None

    async def post_mortem(self) -> PostMortem:
        """Called before `aclose` if the output has ended without a result. It has 5 s."""
        return PostMortem()
