"""Sources of tools that are not the host's own functions. They need a connection, and their tools can change.

A Corral opens its sources concurrently, with their tools in its registry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias

import anyio
from typing_extensions import Unpack, override

from corral.arguments import checked_as
from corral.concurrency.task_owned import TaskOwnedContext
from corral.errors import ConfigError, ToolDefinitionError
from corral.logs import get_logger
from corral.tools.names import identifier, namespace_identifier
from corral.tools.registry import ToolRegistry
from corral.tools.tool import Tool, ToolSettings, check_settings

_logger = get_logger("corral")


class Offer(Protocol):
    """Function that replaces all tools that a source has offered.

    `problem` is the reason for missing tools, for programs, such as "the server does not answer".

    Raises:
        ToolDefinitionError: a name conflicts with another tool; the previous offer stays.
    """

    def __call__(self, tools: Iterable[Tool], *, problem: str | None = None) -> None: ...


class ToolSource(ABC):
    """Source of tools that exist while something is open: a connection to an MCP server, a toolset of an agent
    framework.

    A Corral opens its sources concurrently when it is opened, and closes them when it is closed. A failing source must
    not affect others: while its remote system is unavailable, it offers a `problem` and keeps trying.
    """

    namespace: str | None = None
    """Namespace of its tools; None for no namespace."""

    scopes: Iterable[str] = frozenset()
    """Scopes that each of its tools requires. Where denied tools are hidden, only callers with these scopes see why its
    tools are missing."""

    @property
    def tools(self) -> Sequence[Tool]:
        """Tools that are known before the source is open."""
        return ()

    @abstractmethod
    def open(self, offer: Offer) -> AbstractAsyncContextManager[None]:
        """Opens the source for a block in which its tools can be called. Offers them first, and again whenever they
        change.

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
            ToolDefinitionError: a setting is invalid.
        """
        check_settings("with_settings", **settings)
        return _TransformedSource(
            self,
            lambda tool: tool.with_settings(**settings),
            namespace=settings.get("namespace", self.namespace),
            scopes=frozenset(self.scopes).union(settings.get("scopes", ())),
        )

    @checked_as(ToolDefinitionError)
    def transformed(self, change: Callable[[Tool], Tool | None]) -> ToolSource:
        """Returns this source with `change` applied to each of its tools; None leaves a tool out.

        `change` is called once for each tool, including tools that are offered later.
        """
        return _TransformedSource(self, change, namespace=self.namespace, scopes=self.scopes)


class _TransformedSource(ToolSource):
    """Source that changes or leaves out tools of another source."""

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
        except Exception as error:  # otherwise the source would skip the tool, which would hide this bug
            raise ToolDefinitionError(f"tool {tool.name!r} cannot be transformed: {error!r}") from error


# --- sources of a Corral

Tools: TypeAlias = ToolRegistry | Iterable[Tool | ToolSource | Callable[..., Any]]
"""Registry, which stays live; or tools, functions and tool sources."""


class _ToolSources:
    """Tool sources of one registry. Each offer of a source replaces its previous one.

    Raises:
        ConfigError: two sources share a namespace.
        ToolDefinitionError: names of tools clash.
    """

    def __init__(self, registry: ToolRegistry, sources: Iterable[ToolSource]) -> None:
        sources = list(sources)
        spaces = [each.namespace for each in sources if each.namespace is not None]
        names = [namespace_identifier(space) for space in spaces]
        for space, name in zip(spaces, names, strict=True):
            if name != identifier(space):
                _logger.warning("tools.%s is taken, so the tools of %r are at tools.%s", identifier(space), space, name)
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"two tool sources share the namespace {doubled[0]!r}; give one of them another")
        self._registry = registry
        self._offers = [_Offers(registry, source) for source in sources]
        self._held: list[TaskOwnedContext] = []

    @property
    def missing(self) -> bool:
        """True if there are sources that are not open."""
        return bool(self._offers) and not self._held

    @property
    def unknown(self) -> bool:
        """True if the tools of a source will be known only once it is open."""
        return not self._held and any(not each.offered for each in self._offers)

    def copy(self) -> _ToolSources:
        """Returns the same sources, unopened. Their tools stay registered."""
        copied = _ToolSources(self._registry, ())
        copied._offers = self._offers
        return copied

    async def open(self) -> None:
        """Opens all sources, or none.

        Raises:
            ConfigError: the sources are already open.
            CorralError: the first error of a source.
        """
        if self._held:
            raise ConfigError("the tool sources of this Corral are already open; enter it once")
        held = [TaskOwnedContext(each.source.open(each)) for each in self._offers]
        failures: list[Exception] = []

        async def open_one(one: TaskOwnedContext) -> None:
            try:
                await one.open()
            except Exception as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        self._held = held
        try:
            async with anyio.create_task_group() as tasks:
                for each in held:
                    tasks.start_soon(open_one, each)
            if failures:
                raise failures[0]
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Closes the open sources."""
        held, self._held = self._held, []
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for each in held:
                    tasks.start_soon(each.aclose)


class _Offers:
    """Registers the tools that one source offers, in place of its previous offer. Sources call this as their
    `Offer`."""

    def __init__(self, registry: ToolRegistry, source: ToolSource) -> None:
        self.source = source
        self._registry = registry
        self.offered: Sequence[Tool] = ()
        self(source.tools)

    def __call__(self, tools: Iterable[Tool], *, problem: str | None = None) -> None:
        offered = tuple(tools)
        source = self.source
        self._registry.exchange(
            self.offered, offered, namespace=source.namespace, problem=problem, scopes=source.scopes
        )
        self.offered = offered


def registry_and_sources(tools: Tools) -> tuple[ToolRegistry, _ToolSources]:
    """Returns a registry with these tools, and their sources."""
    if isinstance(tools, ToolRegistry):
        return tools, _ToolSources(tools, ())
    own, sources = _apart(tools)
    registry = ToolRegistry(*own)
    return registry, _ToolSources(registry, sources)


def registry_of(tools: Tools) -> ToolRegistry:
    """Returns a registry with these tools, for one execution.

    Raises:
        ConfigError: `tools` contains a tool source.
    """
    if isinstance(tools, ToolRegistry):
        return tools
    own, sources = _apart(tools)
    if sources:
        name = type(sources[0]).__name__
        raise ConfigError(f"{name} is a tool source, which an execution cannot open; pass it to Corral(tools=...)")
    return ToolRegistry(*own)


def _apart(
    tools: Iterable[Tool | ToolSource | Callable[..., Any]],
) -> tuple[list[Tool | Callable[..., Any]], list[ToolSource]]:
    own: list[Tool | Callable[..., Any]] = []
    sources: list[ToolSource] = []
    for each in tools:
        if isinstance(each, ToolSource):
            sources.append(each)
        else:
            own.append(each)
    return own, sources
