"""Tool sources of a Corral: opened concurrently, with their tools in its registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import anyio

from corral.concurrency.task_owned import TaskOwnedContext
from corral.errors import ConfigError
from corral.logs import get_logger
from corral.tools import Tool, ToolRegistry, ToolSource
from corral.tools.names import identifier, namespace_identifier

_logger = get_logger("corral")

Tools: TypeAlias = ToolRegistry | Iterable[Tool | ToolSource | Callable[..., Any]]
"""A registry, which stays live; or tools, functions and tool sources."""


class ToolSources:
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
        """True if there are sources and they are not open."""
        return bool(self._offers) and not self._held

    @property
    def unknown(self) -> bool:
        """True if a source is not open and its tools are unknown until it is."""
        return not self._held and any(not each.offered for each in self._offers)

    def copy(self) -> ToolSources:
        """Returns the same sources, not open; their tools stay registered."""
        copied = ToolSources(self._registry, ())
        copied._offers = self._offers
        return copied

    async def open(self) -> None:
        """Opens all sources, or none.

        Raises:
            ConfigError: the sources are already open.
            CorralError: the first error of a source.
        """
        if self._held:
            raise ConfigError("the tool sources of this Corral are already open")
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
    """Registers the tools that one source offers, replacing its previous offer; this is the source's `Offer`."""

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


def registry_and_sources(tools: Tools) -> tuple[ToolRegistry, ToolSources]:
    """Returns a registry with these tools, and their sources."""
    if isinstance(tools, ToolRegistry):
        return tools, ToolSources(tools, ())
    own, sources = _apart(tools)
    registry = ToolRegistry(*own)
    return registry, ToolSources(registry, sources)


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
