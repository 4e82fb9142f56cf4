"""The part of a check that depends on the language of the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tree_sitter import Tree

from corral.checking.hints import python as python_hints
from corral.checking.hints import typescript as typescript_hints
from corral.guest.python.failures import failure_classes
from corral.programs.syntax.python import parse as parse_python
from corral.programs.syntax.typescript import parse as parse_typescript
from corral.types import Language

ANY = "_corral_any"
"""Function in declarations for Python that returns its argument as a value of any type."""
_PYTHON_ANY = f"import typing as _typing\ndef {ANY}(value: object, /) -> _typing.Any: ...\n"
_PYTHON_FAILURES = "".join(
    f"class {name}({', '.join(base.__name__ for base in each.__bases__)}):\n"
    "    code: str\n    retry_after_seconds: float | None\n    def __getattr__(self, name: str): ...\n"
    for name, each in failure_classes().items()
)
"""Error classes of calls, which programs may catch."""


class CheckedLanguage(NamedTuple):
    """Facts about a language that checks need."""

    parse: Callable[[bytes], Tree]
    names: Mapping[str, str]
    """Substitutes for names that other surroundings have."""
    surroundings: str
    """Declarations that programs find beside the tools."""
    workaround: str
    """Sentence on what to write where the declaration of a result is wrong."""
    takes_one_object: bool
    """True if a call has one object as its input, so that a missing input is answered with an example of it."""


CHECKED: Mapping[Language, CheckedLanguage] = {
    "typescript": CheckedLanguage(
        parse_typescript,
        typescript_hints.NAMES,
        "",
        "If a result is declared wrongly, write `(await tools...) as any`.",
        takes_one_object=True,
    ),
    "python": CheckedLanguage(
        parse_python,
        python_hints.NAMES,
        _PYTHON_FAILURES + _PYTHON_ANY,
        "If a result is declared wrongly, write `r: Any = await tools...`.",
        takes_one_object=False,
    ),
}
