"""Views of a Corral's tools for a caller: registry, catalog and search tools."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from corral.calls import ImpliedScopes, Services
from corral.logs import get_logger
from corral.model import Catalog, LearntResults, discovery_tools, secret_parameters
from corral.policy import Policy, PolicySource
from corral.rendering.lists import first_few
from corral.tools import Tool, ToolRegistry
from corral.tools.tool_sources import Tools, registry_of
from corral.types import ExecutionContext, Language, ToolName

logger = get_logger("corral")

K = TypeVar("K")
V = TypeVar("V")

_LISTED = 20
"""Maximum number of names in one warning."""
_MOST_KEPT = 64
"""Maximum number of cached catalogs, and of cached pairs of `tools.search` and `tools.describe`."""
_ANYBODY = ExecutionContext()


class ToolViews:
    """Creates views of a registry, and caches them for callers with the same tools."""

    def __init__(
        self,
        tools: ToolRegistry,
        implied: ImpliedScopes,
        *,
        hide_denied: bool,
        learnt: LearntResults,
        policy: PolicySource | None = None,
    ) -> None:
        self._tools = tools
        self._learnt = learnt
        self._implied = implied
        self._policy = policy if isinstance(policy, Policy) else None
        self._hide_denied = hide_denied
        self._discoveries: OrderedDict[tuple[ToolRegistry, Language], Mapping[str, Tool]] = OrderedDict()
        self._catalogs: OrderedDict[tuple[object, ...], tuple[Mapping[ToolName, Tool], Catalog]] = OrderedDict()
        self._shown: Mapping[ToolName, Tool] = {}
        """Snapshot of the tools for which catalogs are cached."""
        self._warned = False

    def registry(
        self,
        tools: Tools | None = None,
        context: ExecutionContext | None = None,
        hide_denied: bool | None = None,
    ) -> ToolRegistry:
        """Returns `tools`, or else the Corral's. If denied tools are hidden, returns only those that the caller may
        call.

        Raises:
            ConfigError: `tools` contains a tool source.
        """
        registry = self._tools if tools is None else registry_of(tools)
        if self._hides(hide_denied):
            caller = context or _ANYBODY
            scopes = self._implied.held_with(caller.scopes)
            return registry.visible_to(scopes, self._policy and self._policy.view(caller, scopes))
        return registry

    def callable_tools(
        self, tools: Tools | None, context: ExecutionContext | None, hide_denied: bool | None, language: Language
    ) -> tuple[ToolRegistry, Services]:
        """Returns the tools that one execution can call: those visible to its caller, and Corral's own."""
        registry = self.registry(tools, context, hide_denied)
        return registry, self.discovery(registry, language, keep=tools is None)

    def discovery(self, registry: ToolRegistry, language: Language, *, keep: bool = True) -> Mapping[str, Tool]:
        """Returns `tools.search` and `tools.describe` by name. They are cached with their search index."""
        key = registry, language
        services = self._discoveries.get(key)
        if services is None:
            services = {str(name): tool for name, tool in discovery_tools(registry, language, self._learnt).items()}
            if keep:
                _keep(self._discoveries, key, services)
        return services

    def catalog(
        self,
        language: Language,
        *,
        budget_tokens: int,
        count_tokens: Callable[[str], int] | None,
        first: Collection[str] = (),
        tools: Tools | None = None,
        context: ExecutionContext | None = None,
        hide_denied: bool | None = None,
    ) -> Catalog:
        """Returns a catalog of `tools`, or else of the Corral's. Its text is cached for the same tools and options.

        Raises:
            ConfigError: the budget is too small.
        """
        registry = self.registry(tools, context, hide_denied)
        complete = context is not None or not self._hides(hide_denied)
        snapshot, every = registry.snapshot(), self._tools.snapshot()
        if every is not self._shown:  # the tools have changed
            self._catalogs.clear()
            self._shown = every
        learnt = self._learnt.told_in_catalog(snapshot, context or _ANYBODY, language)
        key = id(snapshot), language, budget_tokens, id(count_tokens), tuple(first), complete, tuple(learnt.items())
        known = self._catalogs.get(key)
        if known is not None and known[0] is snapshot:
            return known[1].again(registry)
        made = Catalog(
            registry,
            language,
            budget_tokens=budget_tokens,
            count_tokens=count_tokens,
            first=first,
            complete=complete,
            learnt=learnt,
        )
        _keep(self._catalogs, key, (snapshot, made))
        return made.again(registry)

    def _hides(self, hide_denied: bool | None) -> bool:
        return self._hide_denied if hide_denied is None else hide_denied

    def warn_once(self) -> None:
        """Warns the host once about tools without a return type and parameters that look like secrets."""
        if self._warned:
            return
        self._warned = True
        if untyped := self._tools.untyped():
            logger.warning(
                "%s not declare a return type, so models have to guess it: %s",
                "1 tool does" if len(untyped) == 1 else f"{len(untyped)} tools do",
                ", ".join(first_few(list(map(str, untyped)), _LISTED)),
            )
        secret = [
            f"{name}({path})"
            for name, tool in self._tools.snapshot().items()
            if tool.has_schemas  # creating thousands would block the event loop for seconds
            for path in secret_parameters(tool.input_schema)
        ]
        if secret:
            logger.warning(
                "%s secrets that models would have to write: %s; take them from the context instead",
                "1 parameter looks like" if len(secret) == 1 else f"{len(secret)} parameters look like",
                ", ".join(first_few(secret, _LISTED)),
            )


def _keep(cache: OrderedDict[K, V], key: K, value: V) -> None:
    cache[key] = value
    while len(cache) > _MOST_KEPT:
        cache.popitem(last=False)
