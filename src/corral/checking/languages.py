"""The language-specific parts of a check."""

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
"""Function in the Python declarations that returns its argument as `Any`."""
_PYTHON_ANY = f"import typing as _typing\ndef {ANY}(value: object, /) -> _typing.Any: ...\n"
_PYTHON_FAILURES = "".join(
    f"class {name}({', '.join(base.__name__ for base in each.__bases__)}):\n"
    "    code: str\n    retry_after_seconds: float | None\n    def __getattr__(self, name: str): ...\n"
    for name, each in failure_classes().items()
)
"""Error classes of calls, which programs can catch."""


class _CheckedLanguage(NamedTuple):
    """Facts about a language that checks need."""

    parse: Callable[[bytes], Tree]
    names: Mapping[str, str]
    """Hints for names from other languages and environments."""
    surroundings: str
    """Declarations in addition to those of the tools."""
    workaround: str
    """Advice for a result whose declaration is wrong."""
    takes_one_object: bool
    """True if a call takes one object. A missing input is then answered with an example call."""


CHECKED: Mapping[Language, _CheckedLanguage] = {
    "typescript": _CheckedLanguage(
        parse_typescript,
        typescript_hints.NAMES,
        "",
        "If the declaration of a result is wrong, write `(await tools...) as any`.",
        takes_one_object=True,
    ),
    "python": _CheckedLanguage(
        parse_python,
        python_hints.NAMES,
        _PYTHON_FAILURES + _PYTHON_ANY,
        "If the declaration of a result is wrong, write `r: Any = await tools...`.",
        takes_one_object=False,
    ),
}
