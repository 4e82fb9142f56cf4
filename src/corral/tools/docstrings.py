"""Descriptions of a function and its parameters from a docstring: Google, NumPy or Sphinx style."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from docstring_parser import Docstring as ParsedDocstring

_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_TYPES = frozenset(
    """any array arr bool boolean bytearray bytes callable char class complex coroutine date datetime decimal dict
    dictionary double enum file float frozenset function generator int integer iterable iterator json list long map
    mapping none null number numeric object obj sequence set str string text timedelta tuple type union uuid void
    awaitable path""".split()
)
"""Words in lower case that name types in docstrings. Anything else in lower case names a value."""


class Docstring(NamedTuple):
    """The texts of a docstring that a model should see."""

    description: str = ""
    parameters: Mapping[str, str] = MappingProxyType({})
    returns: str | None = None


def read_docstring(text: str | None) -> Docstring:
    """Never raises: of a docstring in no known style, the whole text is the description."""
    if not text:
        return Docstring()
    from docstring_parser import parse  # importing corral should not cost what only the definition of tools needs

    text = inspect.cleandoc(text)
    try:
        parsed = parse(text)
    except Exception:
        return Docstring(text)
    paragraphs = [part.strip() for part in (parsed.short_description, parsed.long_description) if part]
    return Docstring(
        description="\n\n".join(paragraphs),
        parameters={each.arg_name.lstrip("*"): each.description for each in parsed.params if each.description},
        returns=_returns(parsed),
    )


def _returns(parsed: ParsedDocstring) -> str | None:
    """The texts on what comes back. The name of a result, or of a member, is kept; a type is not."""
    told: list[str] = []
    for each in parsed.many_returns:
        name, text = each.return_name or _member(each.type_name or ""), each.description or ""
        told.append(f"{name}: {text}" if name and name != text else text)
    return "\n".join(filter(None, told)) or None


def _member(text: str) -> str | None:
    """Text in the place of a type, for a member as in `names: all that are there`."""
    return text if _NAME.fullmatch(text) and text not in _TYPES else None
