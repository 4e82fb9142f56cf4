"""Hints about names from other languages, and about methods that Python's lists, dicts and strings lack."""

from __future__ import annotations

import re

NAMES = {
    **dict.fromkeys(("null", "undefined"), "Write `None`."),
    "true": "Write `True`.",
    "false": "Write `False`.",
    "console": "Write `print(...)`.",
    "JSON": "Write `import json` and `json.dumps(...)` or `json.loads(...)`.",
    "Math": "Write `import math`, or use `min`, `max` and `round`.",
    "Promise": "Write `import asyncio` and `await asyncio.gather(...)`.",
    "parseInt": "Write `int(...)`.",
    "parseFloat": "Write `float(...)`.",
    "Object": "Write `value.keys()`, `value.values()` or `value.items()`.",
    **dict.fromkeys(("pd", "np", "requests", "httpx"), "It is not imported."),
}
"""Replacements for names of other languages."""

_LISTS = {
    **dict.fromkeys(("length", "size"), "write `len({0})`"),
    **dict.fromkeys(("push", "add"), "write `{0}.append(...)`"),
    "find": "write `next((each for each in {0} if ...), None)`",
    "filter": "write `[each for each in {0} if ...]`",
    **dict.fromkeys(("map", "flatMap"), "write `[... for each in {0}]`"),
    "forEach": "write `for each in {0}:`",
    "includes": "write `... in {0}`",
    "indexOf": "write `{0}.index(...)`",
    "join": 'write `", ".join({0})`',
    "slice": "write `{0}[start:end]`",
    "concat": "write `{0} + [...]`",
    "reduce": "write `sum(... for each in {0})` or a loop",
    "some": "write `any(... for each in {0})`",
    "every": "write `all(... for each in {0})`",
    "first": "write `{0}[0]`",
    "last": "write `{0}[-1]`",
    **dict.fromkeys(("items", "values", "keys", "get"), "it is a list: write `for each in {0}:`"),
}
_DICTS = {
    **dict.fromkeys(("length", "size"), "write `len({0})`"),
    "find": "write `next((each for each in {0}.values() if ...), None)`",
    **dict.fromkeys(("filter", "map"), "write `[... for key, value in {0}.items() if ...]`"),
    **dict.fromkeys(("forEach", "entries"), "write `for key, value in {0}.items():`"),
    **dict.fromkeys(("has", "includes", "hasOwnProperty", "has_key"), "write `... in {0}`"),
    **dict.fromkeys(("append", "push", "add"), "write `{0}[key] = value`"),
    "iteritems": "write `{0}.items()`",
}
_STRINGS = {
    "length": "write `len({0})`",
    "toUpperCase": "write `{0}.upper()`",
    "toLowerCase": "write `{0}.lower()`",
    "trim": "write `{0}.strip()`",
    "includes": "write `... in {0}`",
    "indexOf": "write `{0}.find(...)`",
    "startsWith": "write `{0}.startswith(...)`",
    "endsWith": "write `{0}.endswith(...)`",
    **dict.fromkeys(("slice", "substring", "substr"), "write `{0}[start:end]`"),
    "replaceAll": "write `{0}.replace(...)`",
    "padStart": "write `{0}.rjust(...)`",
    "padEnd": "write `{0}.ljust(...)`",
    "toString": "it is already a string",
}
_OF_TIMES = frozenset(
    {"year", "month", "day", "hour", "minute", "strftime", "isoformat", "timestamp", "weekday", "date", "astimezone"}
)
_OF_DICTS = frozenset({"get", "keys", "values", "items"})
_TABLES = (
    (re.compile(r"list\["), _LISTS),
    (re.compile(r"dict\["), _DICTS),
    (re.compile(r"str$|Literal\[[\"']"), _STRINGS),
)
_OF_TYPE = re.compile(r"(?:on|subscript) object of type `(?P<type>.*?)`(?:$| with|\n)", re.DOTALL)
_OPERATION = re.compile(
    r"Operator `.*?` is not supported between (?:two )?objects of type `(?P<left>.*?)`(?: and `(?P<right>.*?)`)?$"
)
_ITEMS = re.compile(r"list\[(.*)\]", re.DOTALL)
_MAX_SHOWN = 60


def method_hint(type_: str, name: str, value: str) -> str | None:
    """Returns the replacement for a JavaScript method of a list, a dict or a string.

    `type_` is the value's type as the type checker prints it, `value` its source text.
    """
    shown = value if len(value) <= _MAX_SHOWN and "\n" not in value else "it"
    tables = (table for pattern, table in _TABLES if pattern.match(type_))
    replacement = next((table.get(name) for table in tables), None)
    return None if replacement is None else f"{replacement.format(shown)[0].upper()}{replacement.format(shown)[1:]}."


def text_hint(name: str, value: str) -> str | None:
    """Returns the replacement for a member of the value that a string encodes."""
    if name in _OF_TIMES:
        return f"Write `datetime.fromisoformat({value}).{name}`: times are strings."
    return "If it holds JSON, parse it with `json.loads` first." if name in _OF_DICTS else None


def has_no_keys(value: str, key: str, message: str) -> tuple[str, str | None]:
    """Returns the message and hint for a key of a value that has no keys. `message` is the type checker's."""
    match = _OF_TYPE.search(message)
    type_ = match["type"] if match else ""
    if type_ == "None":
        return f"{value} is None here and has no {key}.", "Check for None first."
    if type_ == "str":
        return f"{value} is a `str` and has no {key}.", "If it holds JSON, parse it with `json.loads` first."
    if type_.startswith("tuple["):
        return f"{value} is a `tuple` and has no {key}.", "Access its items by index."
    if type_.startswith("list["):
        return f"{value} is a `list` and has no {key}.", "Take one of its items first, or iterate over it."
    return f"{value} is a `{type_}` and has no {key}.", None


def operation_hint(message: str, objects: frozenset[str]) -> str | None:
    """Returns the fix for arithmetic with a type that does not allow it; None if it can be correct."""
    match = _OPERATION.search(message)
    if match is None:
        return None
    types = [match["left"], match["right"] or match["left"]]
    kinds = {_kind(each, objects) for each in types}
    if None in kinds or not kinds & {"text", "container"}:
        return None
    if kinds == {"text"}:
        return "It is a `str`: parse times with `datetime.fromisoformat(...)`, numbers with `float(...)`."
    return "Convert the `str` with `float(...)`." if kinds == {"text", "number"} else "Take a number from it first."


def cannot_be_added(type_: str, function: str, objects: frozenset[str]) -> bool:
    """True if `sum` or `join` fails with every possible item of a type. For the type of a list, `function` ends in
    `[]`."""
    if function.endswith("[]"):
        items = _ITEMS.fullmatch(type_)
        return items is not None and cannot_be_added(items[1], function.removesuffix("[]"), objects)
    wrong = ("text", "container") if function == "sum" else ("number", "container")
    return _kind(type_, objects) in wrong


def _kind(type_: str, objects: frozenset[str]) -> str | None:
    """Returns the kind of a type in arithmetic; None if there can be several."""
    if "|" in type_ or "&" in type_ or "Unknown" in type_ or "Any" in type_:
        return None
    name = re.split(r"[\[*]", type_)[0]
    if name == "Literal":
        return "text" if type_[8:9] in "\"'" else "number"
    kinds = {"str": "text", "int": "number", "float": "number", "dict": "container", "list": "container"}
    return "container" if name in objects else kinds.get(name)
