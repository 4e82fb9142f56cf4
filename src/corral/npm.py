"""Texts of npm packages, for programs and for servers that evaluate them in advance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTexts:
    """Packages for one program, by specifier. `texts` are bodies of CommonJS functions, for everything that it can
    require. `failures` are the reasons why packages that it names are missing."""

    allowed: tuple[str, ...]
    texts: Mapping[str, str]
    failures: Mapping[str, str]

    def without(self, preloaded: Mapping[str, frozenset[str]], env: Container[str]) -> ModuleTexts:
        """Returns the texts that a guest has not evaluated yet.

        `preloaded` has the evaluated texts, each with the environment variables that it looked up while they were
        unset. If `env` sets one of these, the text has to be evaluated again.
        """
        names = {name for name, asked in preloaded.items() if not any(each in env for each in asked)}
        return replace(self, texts={name: text for name, text in self.texts.items() if name not in names})


class Trial(NamedTuple):
    """Findings from evaluating a package in a separate process."""

    reasons: tuple[str, ...]
    """Reasons why each process has to evaluate the package itself."""
    asynchronous: bool = False
    """True if the package started work that only the engine's event loop completes."""
    environment: frozenset[str] = frozenset()
    """Names of environment variables that the package looked up."""


@dataclass(frozen=True, slots=True, eq=False)
class NpmModules:
    """npm packages that are evaluated before a program arrives. Compared by identity."""

    names: tuple[str, ...]
    texts: Callable[[Collection[str]], Awaitable[ModuleTexts]]
    """Returns the texts of some packages and their dependencies."""
    trials: dict[str, Trial] = field(default_factory=dict[str, Trial])
    """Findings about packages that have been evaluated, by name."""
