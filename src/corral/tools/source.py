"""Sources of tools that are not the host's own functions: they need a connection, and can change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from typing_extensions import Unpack, override

from corral.arguments import checked_as
from corral.errors import ToolDefinitionError
from corral.tools.tool import Tool, ToolSettings, check_settings


class Offer(Protocol):
    """Replaces all tools that a source has offered.

    `problem` is the reason for missing tools, for programs, such as "the server does not answer".

    Raises:
        ToolDefinitionError: a name conflicts with another tool; the previous offer stays.
    """

    def __call__(self, tools: Iterable[Tool], *, problem: str | None = None) -> None: ...


class ToolSource(ABC):
    """Tools that exist while something is open: a connection to an MCP server, a toolset of an agent framework.

    A Corral opens its sources concurrently when it is opened, and closes them when it is closed. A failing source must
    not affect others: if its peer is unavailable, it offers a `problem` and keeps trying.
    """

    namespace: str | None = None
    """Namespace of its tools; None for no namespace."""

    scopes: Iterable[str] = frozenset()
    """Scopes that each of its tools requires. Where denied tools are hidden, only callers with these scopes learn why
    its tools are missing."""

    @property
    def tools(self) -> Sequence[Tool]:
        """Tools that are known before the source is open."""
        return ()

    @abstractmethod
    def open(self, offer: Offer) -> AbstractAsyncContextManager[None]:
        """Opens the source for a block in which its tools can be called. Offers them first, and again as they change.

        The block is entered and left in one task. It can be entered several times, for several Corrals, each with its
        own connection.

        Raises:
            CorralError: the source cannot be opened, and is required.
        """

    @checked_as(ToolDefinitionError)
    def filtered(self, keep: Callable[[Tool], bool]) -> ToolSource:
        """Returns this source with only the tools for which `keep` is true."""
        return self.transformed(lambda tool: tool if keep(tool) else None)

    @checked_as(ToolDefinitionError)
    def with_settings(self, **settings: Unpack[ToolSettings]) -> ToolSource:
        """Returns this source with these settings for each of its tools, as by `Tool.with_settings`.

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
        """Returns this source with `change` applied to each of its tools; None leaves a tool out.

        `change` is called once for each tool that is offered, also later.
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
            nonlocal known  # tools that are offered again, as after a lost connection, stay the same objects
            known = {tool: known[tool] if tool in known else self._changed(tool) for tool in tools}
            offer([tool for tool in known.values() if tool is not None], problem=problem)

        async with self._source.open(offer_changed):
            yield

    def _changed(self, tool: Tool) -> Tool | None:
        try:
            return self._change(tool)
        except ToolDefinitionError:
            raise
        except Exception as error:  # sources skip tools that cannot be offered, which would hide a bug here
            raise ToolDefinitionError(f"tool {tool.name!r} cannot be transformed: {error!r}") from error
