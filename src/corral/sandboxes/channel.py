"""Contract of a byte channel, which is all that a machine needs to offer to run programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PostMortem:
    """Information about a guest that ended without a result. Unknown facts keep their defaults."""

    status: int | None = None
    """Exit code, or minus the signal's number."""
    out_of_memory: bool = False
    stderr: str = ""
    """End of its standard error, for the log. Cut to 16,384 characters."""
    lost: str = ""
    """Reason why the channel itself was lost, if that is already known and logged."""


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


class ChannelLost(Exception):
    """Loss of a channel whose provider has already logged the reason, such as the end of a machine with many guests.

    It ends the execution as `sandbox_lost` with this message, and is not logged again.
    """


class GuestChannel(ABC):
    """Connection to the standard input and output of one guest, as bytes.

    Implement `received`, or `attach` if output arrives in callbacks of the event loop. An exception from `send`,
    `received` or `cpu_seconds` is logged, unless it is a `ChannelLost`, and ends the execution as `sandbox_lost`.
    """

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Writes all of `data` to the guest's input. Sends never overlap."""

    def received(self) -> AsyncIterator[bytes]:
        """Yields the guest's output as it arrives, until its end. Called once.

        The next piece is requested once the last one has been handled, so the channel has to limit unread output.
        Several tasks can iterate in turn, so an async generator must not yield inside a cancel scope.
        """
        raise NotImplementedError(f"{type(self).__name__} implements neither `received` nor `attach`")

    def attach(
        self,
        receive: Callable[[bytes], None],
        ended: Callable[[Exception | None], None],
        on_cpu: Callable[[float], None],
    ) -> bool:
        """Optional: pushes output instead of yielding it, which costs the host a third less. Called once, before READY.

        Returns True if the channel does so. Then it calls `receive` with each piece of output, and `ended` once: with
        None at the end of the output, with an exception if the channel is lost. If it measures the guest's processor
        time, it calls `on_cpu` with the seconds used so far whenever they have grown, and `cpu_seconds` is not called.
        All three are called in the event loop and never raise.
        """
        del receive, ended, on_cpu
        return False

    def send_now(self, data: bytes | bytearray) -> int:
        """Optional: takes as much of `data` as it can without waiting, and returns the number of bytes. `send` gets the
        rest."""
        del data
        return 0

    def limit_cpu(self, seconds: float) -> None:
        """Optional: has the place itself end the guest after `seconds` more of processor time. Called before START."""

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
