"""The transformer `superjson`: JSON beside a tree of the values with other types.

Wire format: npm's superjson 2, `{"json": ..., "meta": {"values": {"a.b": ["Date"]}, "v": 1}}`. A key of `values` is a
path, in which `.` and `\\` are escaped by a backslash; a list has a type, and the tree of the values inside.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic_core import to_jsonable_python

from corral.errors import MalformedMessage, MessageTooLarge

_SAFE_INTEGER = 2**53 - 1
_MOST_DEPTH = 200
_MOST_PATH_CHARS = 4_000_000
"""Maximum characters of the paths to values of other types: each repeats all keys above its value."""
_PIECES = re.compile(r"\\(.?)|\.|[^\\.]+", re.DOTALL)


def to_superjson(value: object) -> dict[str, Any]:
    """Writes a value that a tool returned, with its tags converted.

    Raises:
        MessageTooLarge: the paths to values of other types are too long.
    """
    types = _ValueTypes()
    plain = _plain(value, (), types)
    if not types.kinds:
        return {"json": plain}
    return {"json": plain, "meta": {"values": types.kinds.get("", types.kinds), "v": 1}}


class _ValueTypes:
    """Types by path."""

    def __init__(self) -> None:
        self.kinds: dict[str, list[Any]] = {}
        self._room = _MOST_PATH_CHARS
        self._above: tuple[str, ...] = ()
        self._prefix = ""
        """Text of the path `_above`, that of the last container with such a value."""

    def add(self, path: tuple[str, ...], kind: object) -> None:
        if path[:-1] != self._above:
            self._above = path[:-1]
            self._prefix = "".join(f"{_escape(step)}." for step in self._above)
        self._room -= len(self._prefix) + 1
        if self._room < 0:
            raise MessageTooLarge(
                "the call was made, but its result was withheld: the paths to its integers over 2^53, bytes and other "
                f"values that JSON cannot express have more than {_MOST_PATH_CHARS} characters"
            )
        self.kinds[self._prefix + "".join(map(_escape, path[-1:]))] = [kind]


def _escape(step: str) -> str:
    return step.replace("\\", "\\\\").replace(".", "\\.")


def from_superjson(raw: object) -> Any:
    """Reads an input. Values that JSON can express stay unchanged, such as a date as its string.

    Raises:
        MalformedMessage: the input is not a superjson document.
    """
    if not isinstance(raw, dict) or "json" not in raw:
        raise MalformedMessage('with the transformer superjson an input is {"json": ..., "meta": ...}')
    document = cast("dict[str, Any]", raw)
    meta: Any = document.get("meta") or {}
    if not isinstance(meta, dict):
        raise MalformedMessage("the meta of an input is not an object")
    return _read(document["json"], cast("dict[str, Any]", meta).get("values"), 0)


def _plain(value: object, path: tuple[str, ...], types: _ValueTypes) -> Any:
    match value:
        case None | bool() | str():
            return value
        case int():
            if -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
                return value
            return _typed(str(value), "bigint", path, types)
        case float():
            if math.isfinite(value):
                return _typed("-0", "number", path, types) if not value and math.copysign(1, value) < 0 else value
            text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return _typed(text, "number", path, types)
        case bytes() | bytearray() | memoryview():
            return _typed([*bytes(cast("bytes", value))], ["typed-array", "Uint8Array"], path, types)
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {str(key): _plain(each, (*path, str(key)), types) for key, each in items}
        case list() | tuple():
            elements = cast("Iterable[Any]", value)
            return [_plain(each, (*path, str(number)), types) for number, each in enumerate(elements)]
        case _:
            return _plain(to_jsonable_python(value, by_alias=True, inf_nan_mode="constants"), path, types)


def _typed(value: Any, kind: object, path: tuple[str, ...], types: _ValueTypes) -> Any:
    types.add(path, kind)
    return value


def _read(value: Any, tree: Any, depth: int) -> Any:
    """Converts a value by the tree of its own types and of those inside."""
    if depth > _MOST_DEPTH:
        raise MalformedMessage("the meta of an input is nested too deeply")
    if isinstance(tree, list) and tree:
        kind, *inner = cast("list[Any]", tree)
        if inner:
            value = _read(value, inner[0], depth + 1)
        return _convert(value, kind)
    if isinstance(tree, dict):
        for key, subtree in cast("dict[str, Any]", tree).items():
            value = _put(value, _path(key), subtree, depth)
    return value


def _put(value: Any, path: list[str], subtree: Any, depth: int) -> Any:
    parent, last = value, path[-1]
    for step in path[:-1]:
        parent = _at(parent, step)
    read = _read(_at(parent, last), subtree, depth + 1)
    if isinstance(parent, list):
        parent[int(last)] = None if read is _UNDEFINED else read
    elif read is _UNDEFINED:
        del parent[last]
    else:
        parent[last] = read
    return value


def _at(parent: Any, step: str) -> Any:
    try:
        return parent[int(step) if isinstance(parent, list) else step]
    except (LookupError, ValueError, TypeError):
        raise MalformedMessage("the meta of an input names a value that does not exist") from None


def _path(key: str) -> list[str]:
    steps: list[list[str]] = [[]]
    for match in _PIECES.finditer(key):
        if match[0] == ".":
            steps.append([])
        else:
            steps[-1].append(match[0] if match[1] is None else match[1])
    return ["".join(step) for step in steps]


_UNDEFINED = object()


def _convert(value: Any, kind: Any) -> Any:
    try:
        match kind:
            case "undefined":
                return _UNDEFINED
            case "bigint":
                return int(value)
            case "number":
                return float(value)
            case "map":
                return {str(key): each for key, each in value}
            case ["typed-array", *_]:
                if not isinstance(value, list):  # bytes() of a number would allocate that many
                    raise TypeError
                return b64encode(bytes(cast("list[int]", value))).decode()
            case "Error":
                return value["message"]
            case _:
                return value  # Date, set, regexp and URL: the form that JSON gives them
    except (ValueError, TypeError, LookupError, OverflowError):
        raise MalformedMessage("the meta of an input does not fit its json") from None


def without_undefined(value: object) -> Any:
    """Returns an input, with an empty object in place of undefined."""
    return {} if value is _UNDEFINED or value is None else value
