"""Types as the compiler of TypeScript prints them in its messages: what values of one are surely none of another.

A program's own types are erased when it runs, and the compiler often knows less of a value than its author does: a text
that will only ever be one of three is a `string` to it. So a mismatch counts only where no value could make it right.
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
"""As what values of the language's classes reach the host: the value codec's table."""
_ARRAY_LIKE = frozenset({"Array", "ReadonlyArray", "Iterable"})
_ANYTHING = frozenset({"any", "unknown", "never", "object", "Object", "this", "{}"})


def mismatch(message: str) -> tuple[str, str] | None:
    """The types that do not fit each other, the innermost ones that a message names: what is given, what is wanted."""
    types: tuple[str, str] | None = None
    for line in message.splitlines():
        if match := _first(line, _MISMATCH, _NOTHING_IN_COMMON, _MISSING_ONE, _MISSING_MORE):
            members = [] if types is None else union_members(types[0])
            if members and all(each[0] in "\"'" for each in members):
                break
            if len(members) > 1 and match["source"] in members:
                break  # one member of the union is told of, and the others fit perhaps
            types = match["source"], match["target"]
    return types


def missing(message: str) -> list[str]:
    """The properties whose absence a message complains of in its last line; [] if it is about something else."""
    match = _first(message.splitlines()[-1] if message else "", _MISSING_ONE, _MISSING_MORE)
    return [] if match is None else re.split(r", (?:and )?", match["names"].partition(", and ")[0])


def shortened(message: str) -> str:
    """A message without what a declaration beside it says better: the types around the innermost one, and long ones."""
    *outer, last = [line.strip() for line in message.strip().splitlines()] or [""]
    where = [line for line in outer if line.startswith("Types of property")]
    return " ".join(_LONG_TYPE.sub("'{ ... }'", line) for line in (*where, last))


def _first(line: str, *patterns: re.Pattern[str]) -> re.Match[str] | None:
    return next((match for pattern in patterns if (match := pattern.search(line))), None)


def named_types(declarations: str) -> dict[str, str]:
    """The types that declarations name, and what they are."""
    return dict(_NAMED_TYPE.findall(declarations))


def certainly_differs(source: str, target: str, named: Mapping[str, str]) -> bool:
    """True if no value of a type, as the host would get it, is of another one. `named`: declared types by name."""
    return are_disjoint(list(_kinds(source, named)), list(_kinds(target, named)), _may_be)


def is_object(type_: str, named: Mapping[str, str]) -> bool:
    """True if values of a type have members by name."""
    return any(each.name == "object" for each in _kinds(type_, named))


def is_text_for_less(source: str, target: str, named: Mapping[str, str]) -> bool:
    """True if a string is given for a number or a boolean, which it may spell."""
    return is_text_for(list(_kinds(source, named)), list(_kinds(target, named)), _SPELT)


def union_members(type_: str) -> list[str]:
    """The members of a union as it is printed; of any other type, that type."""
    return split_outside(type_, "|", brackets=("([{<", ")]}>"), quotes="\"'`")


def _kinds(type_: str, named: Mapping[str, str], hops: int = 0) -> Iterator[PrintedKind]:
    """The members of a type: the kind of each, and the literal if it is one value only."""
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
    else:  # a class, an enum or a type of the program's own
        yield PrintedKind("any")


def _may_be(source: PrintedKind, target: PrintedKind) -> bool:
    """True if some value is of both kinds, as far as it matters to the host."""
    names = {source.name, target.name}
    if "any" in names or names == {"number", "bigint"}:
        return True
    return len(names) == 1 and (None in (source.literal, target.literal) or source.literal == target.literal)
