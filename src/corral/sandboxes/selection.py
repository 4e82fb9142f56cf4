"""Selects the sandbox for each language."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from corral.errors import ConfigError, StartFailed, UnknownProvider
from corral.languages import LANGUAGES
from corral.logs import get_logger
from corral.plugins import load_by_name
from corral.sandboxes import SandboxProvider
from corral.types import Language

logger = get_logger("corral.sandboxes")

Sandboxes: TypeAlias = str | SandboxProvider | Mapping[Language, str | SandboxProvider]
"""A provider or its name, one of those for each language, or "auto"."""

_WARM_BY_DEFAULT: tuple[Language, Language] = ("typescript", "python")
"""Languages in order of preference. An opening Corral prepares sandboxes for the first, unless programs are known to be
in the second; if the first does not run here, for the second. Others are prepared at their first program."""


class Providers:
    """Providers of one Corral, made on first use."""

    def __init__(self, sandbox: Sandboxes) -> None:
        if isinstance(sandbox, str) and sandbox != "auto":
            sandbox = load_by_name("corral.sandboxes", sandbox)
        self._sandbox = sandbox
        self._made: dict[Language, SandboxProvider] = {}

    def get(self, language: Language) -> SandboxProvider:
        """Returns the provider for programs in this language.

        Raises:
            UnknownProvider: no provider runs the language.
            ConfigError: the configured object is not a provider.
        """
        if language not in self._made:
            provider = self._choose(language)
            if language not in provider.capabilities.languages:
                raise UnknownProvider(f"sandbox {provider.name!r} does not run {language}")
            self._made[language] = provider
        return self._made[language]

    @property
    def made(self) -> set[SandboxProvider]:
        return set(self._made.values())

    async def warm_up(self, warm: Callable[[Language], Awaitable[None]], first: Language | None) -> None:
        """Calls `warm` for the languages that will certainly be used. `first` is one of them, if known.

        Raises:
            StartFailed: `warm` failed. If no language is configured, raised only if none of them runs here.
        """
        match self._sandbox:
            case SandboxProvider() as provider:
                certain = sorted(provider.capabilities.languages)
            case Mapping():
                certain = sorted(self._sandbox)
            case _:
                await _warm_up_either(warm, first or _WARM_BY_DEFAULT[0])
                return
        for language in certain:
            await warm(language)

    def _choose(self, language: Language) -> SandboxProvider:
        sandbox = self._sandbox
        if isinstance(sandbox, SandboxProvider):
            return sandbox
        if isinstance(sandbox, type):
            raise ConfigError(f"sandbox={sandbox.__name__} is a class; pass an object: {sandbox.__name__}()")
        if isinstance(sandbox, str):
            if language not in LANGUAGES:
                raise UnknownProvider(f"no sandbox runs {language!r}; there are sandboxes for {', '.join(LANGUAGES)}")
            provider: SandboxProvider = load_by_name("corral.sandboxes", LANGUAGES[language].sandbox)
            return provider
        if language not in sandbox:
            raise UnknownProvider(f"this Corral has no sandbox for {language!r}")
        chosen = sandbox[language]
        return load_by_name("corral.sandboxes", chosen) if isinstance(chosen, str) else chosen


async def _warm_up_either(warm: Callable[[Language], Awaitable[None]], first: Language) -> None:
    second = _WARM_BY_DEFAULT[first == _WARM_BY_DEFAULT[0]]
    try:
        await warm(first)
    except StartFailed as error:
        try:
            await warm(second)
        except StartFailed:
            raise error from None
        logger.warning("programs in %s do not run here, those in %s do: %s", first, second, error)
