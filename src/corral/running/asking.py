"""Answering questions: checks of programs, and texts and tools for models."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Unpack

from corral.arguments import checked
from corral.checking import Case, CheckResult
from corral.errors import ConfigError, ProgramRejected, StartFailed
from corral.languages import LANGUAGES
from corral.model import Catalog, declare_tools
from corral.model.model_tools import ModelOptions, ModelTool, Surroundings, model_tools, system_prompt
from corral.running import prepare
from corral.running.running import CorralRunning
from corral.running.session import Session
from corral.sandboxes import SandboxProvider
from corral.tools import Tool, ToolRegistry
from corral.tools.tool_sources import Tools
from corral.types import Audience, Diagnostic, ExecutionContext, Language

_OWN_PYTHON = frozenset({"cpython", "python"})
"""Names of sandboxes whose Python is that of the host."""
_NEWEST_PYTHON = (3, 14)
_PYTHON = "" if sys.version_info >= _NEWEST_PYTHON else f"{sys.version_info.major}.{sys.version_info.minor}"
"""Version that models have to be told, because they know a newer one."""


class CorralAsking(CorralRunning):
    """Answers questions about programs and tools, which need no sandbox."""

    # --- checking programs

    @checked
    async def check(
        self,
        source: str,
        language: Language = "typescript",
        *,
        tools: Tools | None = None,
        env: bool = False,
        **audience: Unpack[Audience],
    ) -> CheckResult:
        """Type-checks a program without running it; waits until a language server is ready.

        `env`: True if the program would get an environment. `context`: the caller, if denied tools are hidden. On a
        Corral that is not open, `aclose` ends the server.

        Raises:
            ConfigError: the language is unknown, or the Corral is closed.
        """
        self._require_usable()
        context = audience.get("context")
        registry = self._views.registry(tools, **audience)
        try:
            program = await prepare(source, language, self._runtime.limits, context, registry)
        except ProgramRejected as error:
            rejected = Diagnostic(
                severity="error", message=str(error), code=error.code, line=error.line, column=error.column
            )
            return CheckResult(language=language, checked=False, diagnostics=(rejected,))
        self._runtime.checker.start(language, self._runtime.tools)
        in_session = context is not None and self._kept_session(context) is not None
        modules = self._runtime.loads_modules(language, in_session=in_session)
        network = any(source.origins for source in self._runtime.service_sources)
        case = Case(program, registry, env=env, must=True, modules=modules, network=network, context=context)
        verdict = await self._runtime.checker.verdict(case)
        return CheckResult(
            language=language,
            checked=verdict.unchecked is None,
            unchecked=verdict.unchecked,
            diagnostics=(*verdict.diagnostics, *program.diagnostics),
        )

    @checked
    def check_sync(
        self,
        source: str,
        language: Language = "typescript",
        *,
        tools: Tools | None = None,
        env: bool = False,
        **audience: Unpack[Audience],
    ) -> CheckResult:
        """Runs `check` for callers without an event loop, like `execute_sync`.

        Raises:
            ConfigError: as `check` and `execute_sync`.
        """
        return self._in_a_loop(partial(self.check, source, language, tools=tools, env=env, **audience))

    # --- texts and tools for models

    @checked
    def tools_for(self, context: ExecutionContext | None = None, *, hide_denied: bool | None = None) -> ToolRegistry:
        """Returns the tools that this caller sees: all, or without denied ones if those are hidden."""
        return self._views.registry(None, context, hide_denied)

    @checked
    def declarations(self, language: Language = "typescript", **audience: Unpack[Audience]) -> str:
        """Declares the tools in the program's language: the same text for the same tools, in a stable order.

        Raises:
            ConfigError: the language is unknown, or tool sources are not open.
        """
        self._require_declarable()
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

        `first`: names of tools and namespaces to declare in full first. `tools`: the tools of one execution, instead of
        the Corral's. `context`: the caller, if denied tools are hidden; without one the catalog has the tools that need
        no scope, and says that there may be more.

        Raises:
            ConfigError: the language is unknown, or the budget is too small.
        """
        self._require_declarable()
        return self._views.catalog(
            language, budget_tokens=budget_tokens, count_tokens=count_tokens, first=first, tools=tools, **audience
        )

    @checked
    def model_tool(
        self, language: Language = "typescript", *, session: Session | None = None, **options: Unpack[ModelOptions]
    ) -> ModelTool:
        """Makes the tool that runs a model's programs. Its description explains programs and declares the tools.

        `session`: the one that all programs of this tool run in.

        Raises:
            ConfigError: the language is unknown, or the name is not a tool's.
        """
        return self.model_tools(language, session=session, **options)[0]

    @checked
    def model_tools(
        self, language: Language = "typescript", *, session: Session | None = None, **options: Unpack[ModelOptions]
    ) -> tuple[ModelTool, ...]:
        """Makes `model_tool`, and `search_tools` and `describe_tools` unless the catalog declares every tool in full.

        Raises:
            ConfigError: as `model_tool`.
        """
        hidden, tools = options.get("hide_denied"), options.get("tools")
        catalog = options.get("catalog") or self.catalog(
            language, tools=tools, context=options.get("context"), hide_denied=hidden
        )

        def discovery(context: ExecutionContext) -> Mapping[str, Tool]:
            return self._views.discovery(self._views.registry(tools, context, hidden), language)

        return model_tools(
            partial(self.execute, tools=tools, session=session),
            language,
            catalog,
            discovery,
            options,
            self.surroundings(language, session),
        )

    @checked
    def system_prompt(
        self,
        base: str = "",
        *,
        language: Language = "typescript",
        catalog: Catalog | None = None,
        session: Session | None = None,
        **audience: Unpack[Audience],
    ) -> str:
        """Appends to `base` the rules for programs and the tools, which `model_tool(in_prompt=True)` leaves out.

        The same tools give the same text, so that providers' prompt caches stay valid.

        Raises:
            ConfigError: the language is unknown.
        """
        catalogs = {"": catalog or self.catalog(language, **audience)}
        return system_prompt(base, language, catalogs, self.surroundings(language, session))

    @checked
    def surroundings(self, language: Language = "typescript", session: Session | None = None) -> Surroundings:
        """Describes what programs have besides the language and tools: files of this session, or of `sessions`."""
        modules = (session and session.modules) or self._runtime.modules
        packages = self._runtime.packages_for(language, session and session.packages)
        offered = packages if packages is not None else modules if LANGUAGES[language].npm else None
        network = [*self._runtime.service_sources, *([session.network] if session and session.network else [])]
        mounts = () if self._kept_sessions is None else self._kept_sessions.mounts
        provider = self._provider(language)
        limits = self._runtime.limits
        skills = self._runtime.skills.skills if session is None else session.skills.skills
        return Surroundings(
            mounts=mounts if session is None else session.opened.space.mounts,
            files=() if session is None else session.files.some_names(),
            packages=(*(provider.packages if provider else ()), *(() if offered is None else offered.allowed)),
            python=_PYTHON if provider is not None and provider.name in _OWN_PYTHON else "",
            standard_library=provider is None or provider.name != "monty",
            origins=tuple(origin for source in network for origin in source.origins),
            skills=tuple((each.name, each.description, each.path) for each in skills.values()),
            calls=limits.calls,
            seconds=limits.wall_seconds,
            checked=bool(self._runtime.check),
        )

    def _provider(self, language: Language) -> SandboxProvider | None:
        """The provider for a language, if there is one that can be used here."""
        try:
            return self._runtime.providers.get(language)
        except (ConfigError, StartFailed):
            return None

    def _require_declarable(self) -> None:
        if self._sources.unknown:
            raise ConfigError(
                "tool sources are not open, so their tools are unknown; open the Corral (`async with corral`) or use "
                "`corral.connected()` first"
            )
        self._views.warn_once()
