"""Parses types in ty's messages, and finds out when one certainly does not fit another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from corral.checking.printed_types import PrintedKind, are_disjoint, is_text_for, split_outside

_MISMATCH = re.compile(r"[Ee]xpected `(?P<target>.*?)`, found `(?P<source>.*?)`(?:\n|$)", re.DOTALL)
_KEY_VALUE = re.compile(r"with declared type `(?P<target>[^`]*)` on TypedDict .*value of type `(?P<source>[^`]*)`")
_LITERAL = re.compile(r"Literal\[(.*)\]", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_ELEMENT = re.compile(r"(?:list|set|frozenset|Sequence)\[(?P<element>.*)\]", re.DOTALL)
_DECLARED = re.compile(r"[A-Z]\w*(?:Output|Item)?")
_NUMBERS = frozenset({"int", "float", "bool"})
_KINDS: Mapping[str, str] = {
    "str": "string",
    "LiteralString": "string",
    "int": "int",
    "bool": "bool",
    "float": "float",
    "None": "none",
    "bytes": "bytes",
    "bytearray": "bytes",
    "list": "array",
    "tuple": "array",
    "set": "array",
    "frozenset": "array",
    "Sequence": "array",
    "dict": "object",
    "defaultdict": "object",
    "Counter": "object",
    "OrderedDict": "object",
    "Mapping": "object",
    "CoroutineType": "coroutine",
    "Coroutine": "coroutine",
    "def": "function",
    "type": "function",
}
_CLASSES: Mapping[str, type] = {
    **{each.__name__: each for each in (str, int, float, bool, list, dict, set, tuple)},
    "LiteralString": str,
}
_MAX_MEMBERS = 200


def mismatch(message: str) -> tuple[str, str] | None:
    """Returns the actual and the expected type in a message about a mismatch."""
    match = _MISMATCH.search(message) or _KEY_VALUE.search(message)
    return None if match is None else (match["source"], match["target"])


def certainly_differs(source: str, target: str, objects: frozenset[str]) -> bool:
    """True if no value of one type, as sent to the host, fits another. `objects` are declared TypedDicts."""
    return are_disjoint(list(_kinds(source, objects)), list(_kinds(target, objects)), _may_be)


def is_text_for_number(source: str, target: str) -> bool:
    """True if a string, which may be numeric, is used as a number."""
    return is_text_for(list(_kinds(source, frozenset())), list(_kinds(target, frozenset())), _NUMBERS)


def lacks(type_: str, member: str, has_key: Callable[[str, str], bool]) -> bool:
    """True if no value of a type, not a union, has a member: a key as source text, or `.attribute`.

    `has_key` returns True if a class has a key, or is not a declared TypedDict.
    """
    literal = _LITERAL.fullmatch(type_)
    name = _NAME.match(type_)
    kind = {"string": str, "int": int, "bool": bool}.get(_literal(literal[1]).name) if literal else None
    if kind is None:
        kind = _CLASSES.get(name[0] if name else "")
    if "&" in type_ or "~" in type_ or name is None:
        return False
    if kind is None and has_key(name[0], ""):
        return False
    if member.startswith("."):
        return not hasattr(kind or dict, member[1:])
    if member.startswith('"'):
        return kind not in (None, dict) or (kind is None and not has_key(name[0], member.strip('"')))
    return kind in (None, dict, int, float, bool)


def union_members(type_: str) -> list[str]:
    """Returns the members of a union, with each value of a `Literal` as a separate type."""
    members: list[str] = []
    for part in _split(type_, "|"):
        literal = _LITERAL.fullmatch(part)
        members += [f"Literal[{value}]" for value in _split(literal[1], ",")] if literal else [part]
    return members[:_MAX_MEMBERS]


def _split(text: str, separator: str) -> list[str]:
    return split_outside(text, separator, brackets=("([{", ")]}"), quotes="\"'")


def _kinds(type_: str, objects: frozenset[str]) -> Iterator[PrintedKind]:
    """Yields the kinds of a type's members, with the value of literals."""
    for member in union_members(type_):
        if literal := _LITERAL.fullmatch(member):
            yield _literal(literal[1])
            continue
        match = _NAME.match(member)
        name = match.group().rpartition(".")[2] if match else ""
        if member.startswith(("(", "<class")):
            yield PrintedKind("function")
        elif name in objects:
            yield PrintedKind("object")
        elif " & " in member or "~" in member:
            yield PrintedKind("any")
        else:  # unknown names are enums, dates or the program's own classes
            element = _ELEMENT.fullmatch(member)
            yield PrintedKind(_KINDS.get(name, "any"), element["element"] if element else None)


def _literal(value: str) -> PrintedKind:
    if value in ("True", "False"):
        return PrintedKind("bool", value)
    if value[0] in "\"'":
        return PrintedKind("string", value)
    return PrintedKind("int", value) if value.lstrip("-").isdigit() else PrintedKind("any")


def _elements_differ(source: str, target: str) -> bool:
    """True if lists of one type cannot be lists of the other. Strings and most named types count as compatible."""
    kinds = ({kind for kind, _ in _kinds(each, frozenset())} for each in (source, target))
    one, other = kinds
    plain = {"int", "float", "bool", "array"}
    objects = _DECLARED.fullmatch(source) is not None and other <= {"int", "float", "bool", "string"}
    return objects or (one <= plain and other <= plain | {"string"} and ("array" in one) != ("array" in other))


def _may_be(source: PrintedKind, target: PrintedKind) -> bool:
    kinds = {source.name, target.name}
    if "any" in kinds:
        return True
    if source.name == target.name == "array":
        return source.literal is None or target.literal is None or not _elements_differ(source.literal, target.literal)
    if source.name == target.name:
        return None in (source.literal, target.literal) or source.literal == target.literal
    return kinds <= _NUMBERS or kinds == {"bytes", "string"}
