"""Directories that an execution runs in, as its session gives them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from corral.isolation import Space
from corral.results import FileChanges
from corral.sessions import ProgramFiles


class Room(Protocol):
    """Directories of a session while an execution uses them."""

    @property
    def space(self) -> Space:
        """The directories, for its sandbox.

        Raises:
            ConfigError: the session is closed.
        """
        ...

    @property
    def program_files(self) -> ProgramFiles:
        """The same, for a sandbox whose programs ask the host."""
        ...

    async def look(self, over: Callable[[str], None], /) -> FileChanges:
        """Files that have changed since the last look; calls `over` if they are longer than they may be.

        Raises:
            FileError: they cannot be listed.
            Exception: they cannot be stored.
        """
        ...


class Workspace(Protocol):
    """A session, as an execution needs it."""

    def enter(self, over: Callable[[str], None], /) -> AbstractAsyncContextManager[Room]:
        """Keeps the directories for the duration of the block, and calls `over` if they hold more than they may.

        Raises:
            CorralError: they cannot be made.
        """
        ...
