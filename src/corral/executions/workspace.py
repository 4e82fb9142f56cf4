"""Directories that an execution runs in, as its session gives them."""

from __future__ import annotations

from typing import Protocol

from corral.isolation import Space
from corral.results import FileChanges

__all__ = ["Workspace"]


class Workspace(Protocol):
    """Directories of a session, as an execution needs them."""

    @property
    def space(self) -> Space:
        """The directories, for its sandbox.

        Raises:
            ConfigError: the session is closed.
        """
        ...

    async def begin(self) -> None:
        """Tells what the host has changed from what executions change."""
        ...

    async def look(self) -> FileChanges:
        """Files that have changed since the last look.

        Raises:
            FileError: they cannot be listed.
        """
        ...
