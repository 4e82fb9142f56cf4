"""What a docstring says about a function: Google, NumPy or Sphinx style."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["Docstring", "read_docstring"]


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
        returns=parsed.returns.description if parsed.returns else None,
    )
