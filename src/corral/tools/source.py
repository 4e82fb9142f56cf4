"""Sources of tools that are not the host's own functions: they come with a connection, and may change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from corral.tools.tool import Tool

__all__ = ["Offer", "ToolSource"]


class Offer(Protocol):
    """Takes all tools that a source has now, in place of those that it offered before.

    `problem` says, for programs, why there may be too few of them, such as "the server does not answer".

    Raises:
        ToolDefinitionError: they cannot be together with the host's other tools; those before stay.
    """

    def __call__(self, tools: Iterable[Tool], *, problem: str | None = None) -> None: ...


class ToolSource(ABC):
    """Tools that are there while something is open: a connection to an MCP server, a toolset of an agent framework.

    A Corral opens its sources when it is opened, side by side, and closes them with itself. What one source does wrong
    must not keep others from working: a source whose peer is out of order says so in `problem`, and goes on trying.
    """

    namespace: str | None = None
    """Where its tools are; None: beside the host's own."""

    scopes: Iterable[str] = frozenset()
    """Scopes that each of its tools asks for. Where tools are hidden from those who may not call them, it tells nobody
    else why its tools are missing."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What is known of them before it is open."""
        return ()

    @abstractmethod
    def open(self, offer: Offer) -> AbstractAsyncContextManager[None]:
        """Within the block its tools can be called. It offers them before the block begins, and again as they change.

        The block is entered and left in one task. It may be entered several times, for several Corrals; each has a
        connection of its own.

        Raises:
            CorralError: it cannot be opened, and was asked to raise then.
        """
