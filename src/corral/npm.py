"""Texts of packages for programs, and for servers that load them before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTexts:
    """Packages for one program. `texts` are bodies of CommonJS functions by specifier, of those that it may ask for;
    `failures` are the reasons why others that it names have none."""

    allowed: tuple[str, ...]
    texts: Mapping[str, str]
    failures: Mapping[str, str]

    def without(self, preloaded: Mapping[str, frozenset[str]], env: Container[str]) -> ModuleTexts:
        """The same without texts that a guest has evaluated, each with the names of the environment that it asked for.

        It found none of them there.
        """
        names = {name for name, asked in preloaded.items() if not any(each in env for each in asked)}
        return replace(self, texts={name: text for name, text in self.texts.items() if name not in names})


class Trial(NamedTuple):
    """Findings about a package that was loaded in a process of its own."""

    reasons: tuple[str, ...]
    """Reasons to evaluate it in each process."""
    asynchronous: bool = False
    """It touched what completes through the engine's event loop."""
    environment: frozenset[str] = frozenset()
    """Names of the environment that it asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class NpmModules:
    """Packages of npm that are evaluated before there is a program. It is equal to itself only."""

    names: tuple[str, ...]
    texts: Callable[[Collection[str]], Awaitable[ModuleTexts]]
    """Gives the texts of some of them, and of what these require."""
    trials: dict[str, Trial] = field(default_factory=dict[str, Trial])
    """Of those that were loaded already, by name."""
