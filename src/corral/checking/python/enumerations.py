"""Declared texts and numbers that a program takes for an enum."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tree_sitter import Node

from corral.checking.declared_tools import ToolSet
from corral.checking.findings import Finding
from corral.checking.python.expressions import is_tried
from corral.programs.python.names import Names, TooMuch
from corral.programs.syntax.parsing import text_of

_MAX_SHOWN = 12
_NO_LETTER = re.compile(r"[\W_]+")


def taken_for_enums(types: Iterable[str], tools: ToolSet, names: Names) -> Iterator[Finding]:
    """The findings on members, calls and loops of types that are `Literal[...]`, which are no classes."""
    for name in types:
        values = tools.values_of(name)
        try:
            uses = names.of(name) if values else []
        except TooMuch:
            return
        for use in uses:
            hint = _hint(use.node, name, values)
            if hint is not None and not is_tried(use.node):
                shown = ", ".join(values[:_MAX_SHOWN]) + (", ..." if len(values) > _MAX_SHOWN else "")
                message = f"{name} is no enum, but a name of the values {shown}."
                yield Finding(code="enum", message=message, offset=use.node.start_byte, kind="type", hint=hint)


def _hint(use: Node, name: str, values: tuple[str, ...]) -> str | None:
    """The replacement of what is done with a type; None: it may be right."""
    owner = use.parent
    match None if owner is None else owner.type:
        case "attribute" if owner is not None and use == owner.child_by_field_name("object"):
            member = text_of(owner.child_by_field_name("attribute"))
            return None if member.startswith("_") else f"Write {_meant(member, values)}."
        case "call" if owner is not None and use == owner.child_by_field_name("function"):
            return "Write the value itself."
        case "subscript" if owner is not None and use == owner.child_by_field_name("value"):
            key = owner.child_by_field_name("subscript")
            return f"Write {_meant(text_of(key), values)}."
        case "for_statement" | "for_in_clause" if owner is not None and use == owner.child_by_field_name("right"):
            return f"Write `typing.get_args({name})`."
        case _:
            return None


def _meant(member: str, values: tuple[str, ...]) -> str:
    """The value that an enum would call so."""
    found = next((each for each in values if _letters(each) == _letters(member)), None)
    return "one of them" if found is None else f"`{found}`"


def _letters(text: str) -> str:
    return _NO_LETTER.sub("", text).lower()
