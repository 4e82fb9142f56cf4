"""Adds details that Python's errors leave out: the expression that is None, and the existing keys or elements.

No code of the program is called: names are looked up in the frame, and members only in dicts, lists and tuples.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

MAX_SEGMENT = 500
"""Maximum length of expressions that are examined."""
_MAX_EXPRESSION = 80
_MAX_KEYS = 20
_MAX_KEY = 40
_UNKNOWN = object()
_OF_NONE = "'NoneType'"
_LOOP = re.compile(r"for [^:]{1,80} in (.{1,200}):")
_NO_ATTRIBUTE = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
_OF_METHOD = re.compile(r"(?:object of type )?'builtin_function_or_method'")
_WRONG_INDEX = re.compile(r"(?:list|tuple|string|byte) ind(?:ex|ices) must be integer")


def hint(name: str, message: str, segment: str, variables: Mapping[str, Any]) -> str:
    """Returns an addition to the message of an error in the expression `segment`; empty if there is none."""
    if "'async_generator' object is not" in message:
        return ": iterate with `async for`; turn a generator expression with `await` into a list, `[... for ...]`"
    if loop := _LOOP.match(segment.partition("\n")[0]):
        segment = loop[1]
    if len(segment) > MAX_SEGMENT:
        return ""
    try:
        source = f"({segment})"
        node = ast.parse(source, mode="eval").body
        return _addition(name, message, node, lambda each: _text(source, each), variables)
    except Exception:  # not a whole expression, or nested too deeply
        return ""


def _addition(
    name: str, message: str, node: ast.expr, text: Callable[[ast.expr], str], variables: Mapping[str, Any]
) -> str:
    if isinstance(node, ast.Await):
        node = node.value
    if _OF_NONE in message:
        unset = [each for each in _operands(node, message) if _value(each, variables) in (None, _UNKNOWN)]
        shown = text(unset[0]) if unset else ""
        return f": `{shown}` is None" if shown not in ("", "None") else ""
    if _OF_METHOD.match(message):
        return _member_for(node, text, variables)
    owner = _owner(node)
    if owner is None or isinstance(owner, ast.Dict | ast.List | ast.Constant) or not (shown := text(owner)):
        return ""
    value = _value(owner, variables)
    if name == "KeyError":
        return f": `{shown}` has no such key{_keys(value)}"
    if name == "IndexError":
        return f": `{shown}` has {_count(cast('Any', value))}" if isinstance(value, list | tuple) else ""
    missing = _NO_ATTRIBUTE.search(message)
    if missing is None and not _WRONG_INDEX.match(message):
        return ""
    if isinstance(value, dict):
        member = (
            f'; write `{shown}["{missing[2]}"]`'
            if missing is not None and missing[2] in value
            else _keys(cast("object", value))
        )
        return f": `{shown}` is a dict{member}"
    if isinstance(value, list | tuple):
        return f": `{shown}` is a {type(cast('Any', value)).__name__} of {_count(cast('Any', value))}"
    return f": `{shown}` is a string" if isinstance(value, str) else ""


def _member_for(node: ast.expr, text: Callable[[ast.expr], str], variables: Mapping[str, Any]) -> str:
    """Suggests a dict member that has the name of a dict method."""
    match node:
        case ast.Call(_, [argument, *_]) | ast.Subscript(argument):
            return _member_for(argument, text, variables)
        case ast.Attribute(owner, name) if type(value := _value(owner, variables)) is dict and name in value:
            return f': `{text(owner)}` is a dict; write `{text(owner)}["{name}"]`'
        case _:
            return ""


def _owner(node: ast.expr) -> ast.expr | None:
    """Returns the expression whose member was accessed."""
    match node:
        case ast.Subscript(owner) | ast.Attribute(owner) | ast.Call(ast.Attribute(owner)):
            return owner
        case _:
            return None


def _operands(node: ast.expr, message: str) -> list[ast.expr]:
    """Returns the expressions that may be None."""
    match node:
        case ast.Call(function) if "not callable" in message:
            return [function]
        case ast.Call(ast.Attribute(owner)) if "has no attribute" in message:
            return [owner]
        case ast.Call(_, [argument]):
            return [argument]
        case ast.BinOp(left, _, right):
            return [right, left] if message.endswith(_OF_NONE) else [left, right]
        case ast.Compare(left, _, [right]):
            return [right] if "iterable" in message or message.endswith(_OF_NONE) else [left]
        case ast.UnaryOp(_, operand) | ast.Starred(operand):
            return [operand]
        case ast.ListComp(_, [loop, *_]) | ast.SetComp(_, [loop, *_]) | ast.GeneratorExp(_, [loop, *_]):
            return [loop.iter]
        case ast.DictComp(_, _, [loop, *_]):
            return [loop.iter]
        case ast.Subscript(owner) | ast.Attribute(owner) if "iterable" not in message:
            return [owner]
        case ast.Subscript() | ast.Attribute() | ast.Name():
            return [node]
        case _:
            return []


def _value(node: ast.expr, variables: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(name):
            return variables.get(name, _UNKNOWN)
        case ast.Constant(value):
            return value
        case ast.Subscript(owner, index):
            of, key = _value(owner, variables), _value(index, variables)
            kinds = type(cast("object", of)), type(cast("object", key))
            known = kinds in ((dict, str), (dict, int), (list, int), (tuple, int))
            return cast("dict[Any, Any]", of)[key] if known else _UNKNOWN
        case _:
            return _UNKNOWN


def _text(source: str, node: ast.expr) -> str:
    text = " ".join((ast.get_source_segment(source, node) or "").split())
    return text if len(text) <= _MAX_EXPRESSION else ""


def _keys(value: object) -> str:
    if type(value) is not dict:
        return ""
    keys = [repr(key) for key in cast("dict[Any, Any]", value) if type(key) in (str, int)]
    if not keys:
        return "; it is empty" if not value else ""
    shown = [key if len(key) <= _MAX_KEY else f"{key[:_MAX_KEY]}…" for key in keys[:_MAX_KEYS]]
    return f"; it has {', '.join(shown)}{f' and {len(keys) - _MAX_KEYS} more' if len(keys) > _MAX_KEYS else ''}"


def _count(value: list[Any] | tuple[Any, ...]) -> str:
    return f"{len(value)} element{'' if len(value) == 1 else 's'}"
