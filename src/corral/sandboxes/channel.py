"""Contract of a byte channel, which is all that a machine needs to offer to run programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PostMortem:
    """Information about a guest that ended without a result. Unknown facts keep their defaults."""

    status: int | None = None
    """Exit code, or minus the signal's number."""
    out_of_memory: bool = False
    stderr: str = ""
    """End of its standard error, for the log. Cut to 16,384 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestFiles:
    """Guest to start on another machine: its files, and the command to run them."""

    files: Mapping[str, bytes]
    """Contents of the files by name, for one folder. The same for every execution of a language."""
    options: tuple[str, ...]
    """Engine that the machine needs: `deno`, or `python` 3.11 or later on Linux."""
    main: str
    """Name of the file that the engine runs."""
    environment: Mapping[str, str]
    """Environment variables that the engine needs. It should have no others."""

    def command(self, engine: str, folder: str) -> list[str]:
        """Returns the command that starts the guest from the files in `folder`, a path without a final slash."""
        return [engine, *self.options, f"{folder}/{self.main}"]


class GuestChannel(ABC):
    """Connection to the standard input and output of one guest, as bytes.

    An exception from `send`, `received` or `cpu_seconds` is logged, and ends the execution as `sandbox_lost`.
    """

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Writes all of `data` to the guest's input. Sends never overlap."""

    @abstractmethod
    def received(self) -> AsyncIterator[bytes]:
        """Yields the guest's output as it arrives, until its end. Called once.

        The next piece is requested once the last one has been handled, so the channel has to limit unread output.
        Several tasks can iterate in turn, so an async generator must not yield inside a cancel scope.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Ends the guest and frees its resources, within 10 s. Always called, possibly while `received` waits."""

    async def cpu_seconds(self) -> float | None:
        """Returns the processor seconds used so far, so that the host can end the guest at its limit. None if not
        measured."""
        return None

    async def post_mortem(self) -> PostMortem:
        """Called before `aclose` if the output ended without a result. Has 5 s."""
        return PostMortem()
