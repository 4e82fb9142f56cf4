"""Sources of tools that are not the host's own functions: they come with a connection, and may change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from typing_extensions import Unpack, override

from corral.arguments import checked_as
from corral.errors import ToolDefinitionError
from corral.tools.tool import Tool, ToolSettings, check_settings

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
    """Namespace of its tools; None: beside the host's own."""

    scopes: Iterable[str] = frozenset()
    """Scopes that each of its tools asks for. Where tools are hidden from those who may not call them, it tells nobody
    else why its tools are missing."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that are known before it is open."""
        return ()

    @abstractmethod
    def open(self, offer: Offer) -> AbstractAsyncContextManager[None]:
        """Within the block its tools can be called. It offers them before the block begins, and again as they change.

        The block is entered and left in one task. It may be entered several times, for several Corrals; each has a
        connection of its own.

        Raises:
            CorralError: it cannot be opened, and was asked to raise then.
        """

    @checked_as(ToolDefinitionError)
    def filtered(self, keep: Callable[[Tool], bool]) -> ToolSource:
        """This source with only those of its tools for which `keep` is true."""
        return self.transformed(lambda tool: tool if keep(tool) else None)

    @checked_as(ToolDefinitionError)
    def with_settings(self, **settings: Unpack[ToolSettings]) -> ToolSource:
        """This source with these settings for each of its tools, as `Tool.with_settings` gives them.

        Raises:
            ToolDefinitionError: a setting is wrong.
        """
        check_settings("with_settings", **settings)
        return TransformedSource(
            self,
            lambda tool: tool.with_settings(**settings),
            namespace=settings.get("namespace", self.namespace),
            scopes=frozenset(self.scopes).union(settings.get("scopes", ())),
        )

    @checked_as(ToolDefinitionError)
    def transformed(self, change: Callable[[Tool], Tool | None]) -> ToolSource:
        """This source with what `change` makes of each of its tools; None leaves a tool out.

        It is asked once about each tool that is offered, so also about those that come later.
        """
        return TransformedSource(self, change, namespace=self.namespace, scopes=self.scopes)


class TransformedSource(ToolSource):
    """Another source, each of whose tools is changed or left out."""

    def __init__(
        self,
        source: ToolSource,
        change: Callable[[Tool], Tool | None],
        *,
        namespace: str | None,
        scopes: Iterable[str],
    ) -> None:
        self.namespace = namespace
        self.scopes = scopes
        self._source = source
        self._change = change

    @property
    @override
    def tools(self) -> Sequence[Tool]:
        return [tool for tool in map(self._changed, self._source.tools) if tool is not None]

    @override
    @asynccontextmanager
    async def open(self, offer: Offer) -> AsyncGenerator[None]:
        known: Mapping[Tool, Tool | None] = {}

        def offer_changed(tools: Iterable[Tool], *, problem: str | None = None) -> None:
            nonlocal known  # what is offered again, as when a connection is lost, stays the same
            known = {tool: known[tool] if tool in known else self._changed(tool) for tool in tools}
            offer([tool for tool in known.values() if tool is not None], problem=problem)

        async with self._source.open(offer_changed):
            yield

    def _changed(self, tool: Tool) -> Tool | None:
        try:
            return self._change(tool)
        except ToolDefinitionError:
            raise
        except Exception as error:  # a source survives tools that cannot be offered; of a bug it would know nothing
            raise ToolDefinitionError(f"tool {tool.name!r} cannot be transformed: {error!r}") from error
