"""`Corral.model`: texts and tools for models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Unpack

from corral.arguments import checked
from corral.errors import ConfigError, LedgerError, StartFailed, error_class
from corral.languages import LANGUAGES
from corral.model import Catalog, declare_tools
from corral.model.model_tools import Execute, ModelOptions, ModelTool, Surroundings, model_tools, system_prompt
from corral.results import ExecutionResult
from corral.running.runtime import Runtime
from corral.running.session import Session
from corral.running.tool_views import ToolViews
from corral.sandboxes import SandboxProvider
from corral.sessions import Sessions
from corral.tools import Tool, ToolRegistry
from corral.tools.tool_sources import Tools
from corral.types import Audience, ExecutionContext, Language

_MOST_SESSIONS = 10_000
"""Maximum number of sessions whose last failed program is remembered."""
_NEWEST_PYTHON = (3, 14)
_PYTHON = "" if sys.version_info >= _NEWEST_PYTHON else f"{sys.version_info.major}.{sys.version_info.minor}"
"""Version to state to models if they know a newer one; otherwise empty."""


class ForModels:
    """Texts and tools for models: `Corral.model`. They need no sandbox."""

    _shown_as = "Corral.model"  # in errors

    def __init__(
        self,
        runtime: Runtime,
        views: ToolViews,
        execute: Execute,
        *,
        expect_sources: Callable[[], None],
        has_ledger: bool,
        kept: Sessions | None,
    ) -> None:
        self._runtime = runtime
        self._views = views
        self._execute = execute
        self._expect_sources = expect_sources
        self._has_ledger = has_ledger
        self._kept = kept

    @checked
    def visible_tools(
        self, context: ExecutionContext | None = None, *, hide_denied: bool | None = None
    ) -> ToolRegistry:
        """Returns the tools that this caller sees: all, or without denied ones if those are hidden."""
        return self._views.registry(None, context, hide_denied)

    @checked
    def declarations(self, language: Language = "typescript", **audience: Unpack[Audience]) -> str:
        """Declares the tools in the program's language: the same text for the same tools, in a stable order.

        Raises:
            ConfigError: the language is unknown, or tool sources are not open.
        """
        self._expect_sources()
        return declare_tools(self._views.registry(**audience).snapshot(), language)

    @checked
    def catalog(
        self,
        language: Language = "typescript",
        *,
        budget_tokens: int = 4_000,
        count_tokens: Callable[[str], int] | None = None,
        first: Collection[str] = (),
        tools: Tools | None = None,
        **audience: Unpack[Audience],
    ) -> Catalog:
        """Makes a catalog of the tools within a budget of tokens: full declarations, or shorter ones of some tools.

        `first` are names of tools and namespaces to declare in full first. `tools` are the tools of one execution,
        instead of the Corral's. `context` is the caller, if denied tools are hidden; without a context, the catalog has
        the tools that need no scope, and says that there can be more.

        Raises:
            ConfigError: the language is unknown, or the budget is too small.
        """
        self._expect_sources()
        return self._views.catalog(
            language, budget_tokens=budget_tokens, count_tokens=count_tokens, first=first, tools=tools, **audience
        )

    @checked
    def tools(
        self, language: Language = "typescript", *, session: Session | None = None, **options: Unpack[ModelOptions]
    ) -> tuple[ModelTool, ...]:
        """Makes the tools that a model needs. The first runs programs; its description declares the tools.

        `search_tools` and `describe_tools` are added unless the catalog declares every tool in full. All programs run
        in `session`, if you pass one.

        Raises:
            ConfigError: the language is unknown, the name is not a tool's, or programs cannot be durable.
        """
        execute = partial(self._execute, tools=options.get("tools"), session=session)
        if options.get("durable"):
            if not self._has_ledger or (session is not None and session.opened.keep == "files"):
                raise ConfigError("tools(durable=True) needs a Corral with a ledger, and no session that keeps files")
            execute = partial(self._execute_after, execute)
        hidden, tools = options.get("hide_denied"), options.get("tools")
        catalog = options.get("catalog") or self.catalog(
            language, tools=tools, context=options.get("context"), hide_denied=hidden
        )

        def discovery(context: ExecutionContext) -> Mapping[str, Tool]:
            return self._views.discovery(self._views.registry(tools, context, hidden), language)

        return model_tools(
            execute,
            language,
            catalog,
            discovery,
            options,
            self.surroundings(language, session, durable=options.get("durable", False)),
        )

    async def _execute_after(
        self, execute: Execute, source: str, *, repeat: bool, context: ExecutionContext, **options: Any
    ) -> ExecutionResult:
        """Runs a durable program, which does not repeat changes that a failed program before it, in the same session,
        has made."""
        failed, options = self._runtime.failed, {**options, "context": context, "durable": True}
        if context.session_id is None:
            return await execute(source, **options)
        key = context.owner, context.session_id
        last = after = failed.pop(key, None)
        try:
            result = await execute(source, after=None if repeat else after, **options)
            if result.status != "rejected":
                code = "" if result.error is None else result.error.code
                has_failed = result.status in ("failed", "timed_out") and not issubclass(error_class(code), LedgerError)
                last = result.execution_id if has_failed else None
            return result
        finally:
            if last is not None:
                failed[key] = last
                if len(failed) > _MOST_SESSIONS:
                    del failed[next(iter(failed))]

    @checked
    def prompt(
        self,
        base: str = "",
        *,
        language: Language = "typescript",
        catalog: Catalog | None = None,
        session: Session | None = None,
        **audience: Unpack[Audience],
    ) -> str:
        """Appends to `base` the rules for programs, and the tools, which `tools(in_prompt=True)` leaves out.

        The same tools give the same text, so that providers' prompt caches stay valid.

        Raises:
            ConfigError: the language is unknown.
        """
        catalogs = {"": catalog or self.catalog(language, **audience)}
        return system_prompt(base, language, catalogs, self.surroundings(language, session))

    def surroundings(
        self, language: Language = "typescript", session: Session | None = None, *, durable: bool = False
    ) -> Surroundings:
        """Describes what programs have besides the language and tools, including files of this session, or of
        `sessions`; `durable` programs have none."""
        modules = (session and session.modules) or self._runtime.modules
        packages = self._runtime.packages_for(language, session and session.packages)
        offered = packages if packages is not None else modules if LANGUAGES[language].npm else None
        network = [*self._runtime.service_sources, *([session.network] if session and session.network else [])]
        provider = self._provider(language)
        limits = self._runtime.limits
        skills = self._runtime.skills.skills if session is None else session.skills.skills
        kept = self._kept if session is None else session.opened
        return Surroundings(
            mounts=() if kept is None or durable else kept.mounts,
            files=() if session is None or durable else session.files.some_names(),
            packages=(*(provider.packages if provider else ()), *(() if offered is None else offered.allowed)),
            python=_PYTHON if provider is not None and provider.name == "cpython" else "",
            standard_library=provider is None or provider.name != "monty",
            origins=tuple(origin for source in network for origin in source.origins),
            skills=tuple((each.name, each.description, each.path) for each in skills.values()),
            calls=limits.calls,
            seconds=limits.wall_seconds,
            checked=self._runtime.check != "off",
            variables=kept is not None and kept.keep == "variables",
        )

    def _provider(self, language: Language) -> SandboxProvider | None:
        """Provider for a language, if one can be used here."""
        try:
            return self._runtime.providers.get(language)
        except (ConfigError, StartFailed):
            return None
