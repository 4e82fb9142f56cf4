"""What a Corral's tools come from: opened side by side, and offered to its registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import anyio

from corral.concurrency.task_owned import TaskOwnedContext
from corral.errors import ConfigError
from corral.tools import Tool, ToolRegistry, ToolSource
from corral.tools.names import namespace_identifier

__all__ = ["Connections", "Tools", "connections_of", "registry_of"]

Tools: TypeAlias = ToolRegistry | Iterable[Tool | ToolSource | Callable[..., Any]]
"""Tools: a registry, which stays live, or tools, functions, and what tools come from."""


class Connections:
    """The sources of one registry. What they offer stays registered, and is replaced by what they offer next.

    Raises:
        ConfigError: two of them share a namespace.
        ToolDefinitionError: their tools cannot be together.
    """

    def __init__(self, registry: ToolRegistry, sources: Iterable[ToolSource]) -> None:
        given = list(sources)
        names = [namespace_identifier(each.namespace) for each in given if each.namespace is not None]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"two sources of tools share the namespace {doubled[0]!r}; give one of them another")
        self._registry = registry
        self._offers = [_Offers(registry, source) for source in given]
        self._held: list[TaskOwnedContext] = []

    @property
    def missing(self) -> bool:
        """Whether there are sources that are not open."""
        return bool(self._offers) and not self._held

    @property
    def unknown(self) -> bool:
        """Whether there are sources that are not open, and of whose tools nothing is known until they are."""
        return not self._held and any(not each.offered for each in self._offers)

    def copy(self) -> Connections:
        """The same sources, not open; what they have offered stays registered."""
        copied = Connections(self._registry, ())
        copied._offers = self._offers
        return copied

    async def open(self) -> None:
        """Opens all of them, or none.

        Raises:
            ConfigError: they are open.
            CorralError: that of the first that raises.
        """
        if self._held:
            raise ConfigError("what the tools of this Corral come from is open already")
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
        """Closes those that are open."""
        held, self._held = self._held, []
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                for each in held:
                    tasks.start_soon(each.aclose)


class _Offers:
    """What one source offers, in place of what it offered before; it is the source's `Offer`."""

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


def connections_of(tools: Tools) -> tuple[ToolRegistry, Connections]:
    """The registry of these tools, and the connections that they come with."""
    if isinstance(tools, ToolRegistry):
        return tools, Connections(tools, ())
    own, sources = _apart(tools)
    registry = ToolRegistry(*own)
    return registry, Connections(registry, sources)


def registry_of(tools: Tools) -> ToolRegistry:
    """The registry of these tools, for one execution.

    Raises:
        ConfigError: some of them come with a connection.
    """
    if isinstance(tools, ToolRegistry):
        return tools
    own, sources = _apart(tools)
    if sources:
        name = type(sources[0]).__name__
        raise ConfigError(f"{name} has to be open for long: pass it to Corral(tools=...), not to one execution")
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
