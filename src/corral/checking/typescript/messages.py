"""Parses types in TypeScript's messages, and finds out when one certainly does not fit another.

A program's own types are erased when it runs, and the compiler often knows less about a value than the program's
author: it takes a variable with one of three texts for any `string`. So a mismatch counts only if no value could be
correct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from corral.checking.printed_types import PrintedKind, are_disjoint, is_text_for, split_outside

_MISMATCH = re.compile(
    r"(?:Type|Argument of type) '(?P<source>.*?)' is not assignable to "
    r"(?:type|parameter of type) '(?P<target>.*?)'\.(?: |$)"
)
_NOTHING_IN_COMMON = re.compile(r"Type '(?P<source>.*)' has no properties in common with type '(?P<target>.*)'\.")
_MISSING_ONE = re.compile(
    r"Property '(?P<names>[^']*)' is (?:missing|optional) in type '(?P<source>.*)' "
    r"but required in type '(?P<target>.*)'"
)
_MISSING_MORE = re.compile(
    r"Type '(?P<source>.*)' is missing the following properties from type '(?P<target>.*?)': (?P<names>.*)$"
)
_NAMED_TYPE = re.compile(r"^type ([\w$]+) = (.*?);$(?=\n(?:type |declare |/\*\*)|\Z|\n\Z)", re.MULTILINE | re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_BIGINT = re.compile(r"-?\d+n")
_NUMBER = re.compile(r"-?[\d.]+(?:e[+-]?\d+)?")
_SPELT = frozenset({"number", "bigint", "boolean"})
_MAX_HOPS = 20

_LONG_TYPE = re.compile(r"'[^'\n]*\{[^'\n]{80,}'")

_CROSSES_AS: Mapping[str, frozenset[str]] = {
    "Date": frozenset({"string"}),
    "Set": frozenset({"array"}),
    "Map": frozenset({"object", "array"}),
    "Buffer": frozenset({"string", "bytes", "array"}),
    "ArrayBuffer": frozenset({"string", "bytes"}),
    "DataView": frozenset({"string", "bytes"}),
    "Temporal": frozenset({"string"}),
    "URL": frozenset({"string"}),
    "Error": frozenset({"object"}),
    "RegExp": frozenset(),
    "Function": frozenset(),
    "Promise": frozenset(),
    "AsyncIterable": frozenset(),
    "PromiseLike": frozenset(),
}
"""Kinds that instances of built-in classes have when they reach the host, from the value codec's table."""
_ARRAY_LIKE = frozenset({"Array", "ReadonlyArray", "Iterable"})
_ANYTHING = frozenset({"any", "unknown", "never", "object", "Object", "this", "{}"})


def mismatch(message: str) -> tuple[str, str] | None:
    """Returns the innermost mismatched types in a message: the actual type and the expected one."""
    types: tuple[str, str] | None = None
    for line in message.splitlines():
        if match := _first(line, _MISMATCH, _NOTHING_IN_COMMON, _MISSING_ONE, _MISSING_MORE):
            members = [] if types is None else union_members(types[0])
            if members and all(each[0] in "\"'" for each in members):
                break
            if len(members) > 1 and match["source"] in members:
                break  # the message is about one union member; the others may fit
            types = match["source"], match["target"]
    return types


def missing(message: str) -> list[str]:
    """Returns the missing properties named in a message's last line; empty for other messages."""
    match = _first(message.splitlines()[-1] if message else "", _MISSING_ONE, _MISSING_MORE)
    return [] if match is None else re.split(r", (?:and )?", match["names"].partition(", and ")[0])


def shortened(message: str) -> str:
    """Shortens a message that is shown with the declaration: drops the outer types, and elides long ones."""
    *outer, last = [line.strip() for line in message.strip().splitlines()] or [""]
    where = [line for line in outer if line.startswith("Types of property")]
    return " ".join(_LONG_TYPE.sub("'{ ... }'", line) for line in (*where, last))


def _first(line: str, *patterns: re.Pattern[str]) -> re.Match[str] | None:
    return next((match for pattern in patterns if (match := pattern.search(line))), None)


def named_types(declarations: str) -> dict[str, str]:
    """Returns the declared type aliases, by name."""
    return dict(_NAMED_TYPE.findall(declarations))


def certainly_differs(source: str, target: str, named: Mapping[str, str]) -> bool:
    """True if no value of one type, as sent to the host, fits another. `named` are declared types by name."""
    return are_disjoint(list(_kinds(source, named)), list(_kinds(target, named)), _may_be)


def is_object(type_: str, named: Mapping[str, str]) -> bool:
    """True if values of a type have members by name."""
    return any(each.name == "object" for each in _kinds(type_, named))


def is_text_for_less(source: str, target: str, named: Mapping[str, str]) -> bool:
    """True if a string is used where a number or a boolean is declared, and may have the form of one."""
    return is_text_for(list(_kinds(source, named)), list(_kinds(target, named)), _SPELT)


def union_members(type_: str) -> list[str]:
    return split_outside(type_, "|", brackets=("([{<", ")]}>"), quotes="\"'`")


def _kinds(type_: str, named: Mapping[str, str], hops: int = 0) -> Iterator[PrintedKind]:
    """Yields the kinds of a type's members, with the value of literals."""
    for member in union_members(type_):
        if member in named and hops < _MAX_HOPS:
            yield from _kinds(named[member], named, hops + 1)
        else:
            yield from _kind(member)


def _kind(member: str) -> Iterator[PrintedKind]:
    name = match.group().lstrip("$") if (match := _IDENTIFIER.match(member)) else ""
    if member in _ANYTHING or " & " in member:
        yield PrintedKind("any")
    elif member[0] in "\"'":
        yield PrintedKind("string", member)
    elif member in ("string", "number", "boolean", "bigint", "null", "symbol"):
        yield PrintedKind(member)
    elif member in ("undefined", "void"):
        yield PrintedKind("undefined")
    elif member in ("true", "false"):
        yield PrintedKind("boolean", member)
    elif member[0] == "`":
        yield PrintedKind("string")
    elif _BIGINT.fullmatch(member):
        yield PrintedKind("bigint")
    elif _NUMBER.fullmatch(member):
        yield PrintedKind("number", member)
    elif ("=>" in member and member[0] in "(<") or name in ("new", "typeof"):
        yield PrintedKind("function")
    elif member.endswith("]") or name == "readonly" or name in _ARRAY_LIKE:
        yield PrintedKind("array")
    elif member[0] == "{" or name in ("Record", "Partial"):
        yield PrintedKind("object")
    elif name == "Uint8Array" or (name.endswith("Array") and name[:3] in ("Int", "Uin", "Flo", "Big")):
        yield from map(PrintedKind, ("bytes", "string", "array"))
    elif name in _CROSSES_AS:
        yield from map(PrintedKind, _CROSSES_AS[name] or {name})
    else:  # the program's own class, enum or type
        yield PrintedKind("any")


def _may_be(source: PrintedKind, target: PrintedKind) -> bool:
    """True if, as far as the host can tell, a value can be of both kinds."""
    names = {source.name, target.name}
    if "any" in names or names == {"number", "bigint"}:
        return True
    return len(names) == 1 and (None in (source.literal, target.literal) or source.literal == target.literal)
