"""Templates of keys, such as `x-${string}`, where a schema has a regular expression.

A pattern is only taken apart, never run: matching an unknown regular expression may take for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from corral.model.shapes.shape import ANY_KEY, KeyPattern

_ANYTHING = frozenset((".*", ".+", r"[\s\S]*", r"[\s\S]+"))
_DIGITS = frozenset((r"\d+", "[0-9]+", r"[\d]+"))
_QUANTIFIERS = "*+?{"


class _Part(NamedTuple):
    source: str
    character: str | None
    """The character that it matches, if there is exactly one."""


def key_pattern(regular_expression: str) -> KeyPattern | str:
    """The keys that match. A string is the only key that does.

    What a template cannot express is widened, up to `ANY_KEY`; the result is then not `exact`.
    """
    parts = list(_parts(regular_expression))
    if any(part.source == "|" for part in parts):
        return ANY_KEY
    starts = bool(parts) and parts[0].source == "^"
    ends = bool(parts) and parts[-1].source == "$"
    body = parts[starts : len(parts) - ends]
    prefix = "".join(_literals(body)) if starts else ""
    if starts and ends and len(prefix) == len(body):
        return prefix
    rest = body[len(prefix) :]
    suffix = "".join(reversed(_literals(rest[::-1]))) if ends else ""
    middle = "".join(part.source for part in rest[: len(rest) - len(suffix)])
    if starts and ends and middle in _DIGITS:
        return KeyPattern(prefix, suffix, "number", exact=False)
    return KeyPattern(prefix, suffix, exact=not middle or middle in _ANYTHING)


def _literals(parts: list[_Part]) -> list[str]:
    """The certain characters that the parts begin with."""
    return [part.character for part in takewhile(lambda part: part.character is not None, parts) if part.character]


def _parts(source: str) -> Iterator[_Part]:
    """The pieces of a regular expression, each with its quantifier; groups and classes are one piece."""
    position = 0
    while position < len(source):
        end = _end_of_atom(source, position)
        quantified = _end_of_quantifier(source, end)
        atom = source[position:end]
        literal = quantified == end and atom not in {"^", "$", ".", "|"} and atom[0] not in "[("
        yield _Part(source[position:quantified], _character(atom) if literal else None)
        position = quantified


def _end_of_atom(source: str, start: int) -> int:
    match source[start]:
        case "\\":
            return min(start + 2, len(source))
        case "[":
            return _end_of_class(source, start)
        case "(":
            return _end_of_group(source, start)
        case _:
            return start + 1


def _end_of_class(source: str, start: int) -> int:
    position = start + 1
    while position < len(source) and source[position] != "]":
        position += 2 if source[position] == "\\" else 1
    return min(position + 1, len(source))


def _end_of_group(source: str, start: int) -> int:
    depth, position = 0, start
    while position < len(source):
        character = source[position]
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position + 1
        position = _end_of_atom(source, position) if character in "\\[" else position + 1
    return len(source)


def _end_of_quantifier(source: str, start: int) -> int:
    if start >= len(source) or source[start] not in _QUANTIFIERS:
        return start
    closing = source.find("}", start) if source[start] == "{" else start
    end = len(source) if closing < 0 else closing + 1
    return end + 1 if source[end : end + 1] == "?" else end


def _character(atom: str) -> str | None:
    if not atom.startswith("\\"):
        return atom
    return None if len(atom) == 1 or atom[1].isalnum() else atom[1]
