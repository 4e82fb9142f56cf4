"""Short copies of values without secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, cast

from pydantic import BaseModel, SecretBytes, SecretStr

from corral.rendering.preview import preview_text, text_of
from corral.rendering.secret_names import names_a_secret

_REDACTED = "[redacted]"
_DEPTH = 8
_ITEMS = 50
_TEXT_CHARS = 200
_ROOM_CHARS = 8000
"""Approximate characters of a whole copy."""
_SCHEMA_DEPTH = 64
_SCHEMAS = 1000


def redacted(
    value: object, schema: Mapping[str, Any] | None = None, *, names: Iterable[str] = (), text_chars: int = _TEXT_CHARS
) -> object:
    """Returns a short copy of `value` as JSON. `[redacted]` replaces secrets, which names or the schema identify.

    `names` are further names of secrets. Each text is cut to `text_chars`.
    """
    return _Copy(secret_names(schema).union(names), text_chars).of(value)


class _Copy:
    """Copies one value within a size limit."""

    def __init__(self, secret_names: frozenset[str], text_chars: int) -> None:
        self._secret_names = secret_names
        self._text_chars = text_chars
        self._room = _ROOM_CHARS

    def of(self, value: object, depth: int = 0) -> object:
        if isinstance(value, BaseModel):
            value = dict(value)
        match value:
            case None | bool() | float():
                return value
            case int():
                return value if -(2**63) < value < 2**63 else f"[integer of {value.bit_length()} bits]"
            case SecretStr() | SecretBytes():
                return _REDACTED
            case bytes() | bytearray():
                return f"[{len(value)} bytes]"
            case Mapping() if depth < _DEPTH:
                return self._members(cast("Mapping[object, object]", value), depth)
            case Sequence() | Set() if depth < _DEPTH and not isinstance(value, str):
                return self._items(cast("Sequence[object]", value), depth)
            case Mapping() | Set() | list() | tuple():
                return "…"
            case _:
                return self._text(text_of(value), self._text_chars)

    def _members(self, members: Mapping[object, object], depth: int) -> dict[str, object]:
        copied: dict[str, object] = {}
        for key, member in members.items():
            name = text_of(key)
            if len(copied) == _ITEMS or self._room <= 0:
                return copied | {"…": f"{len(members) - len(copied)} more"}
            secret = not isinstance(member, bool | None) and (name in self._secret_names or names_a_secret(name[-100:]))
            copied[self._text(name, 100)] = _REDACTED if secret else self.of(member, depth + 1)
        return copied

    def _items(self, items: Sequence[object], depth: int) -> list[object]:
        copied: list[object] = []
        for item in items:
            if len(copied) == _ITEMS or self._room <= 0:
                return [*copied, f"… {len(items) - len(copied)} more"]
            self._room -= 4
            copied.append(self.of(item, depth + 1))
        return copied

    def _text(self, text: str, max_chars: int) -> str:
        shown = preview_text(text, max_chars)
        self._room -= len(shown)
        return shown


_names_by_schema: dict[int, tuple[Mapping[str, Any], frozenset[str]]] = {}
"""Secret names by the schema's identity, which stays unique because the schema is kept here too."""


def secret_names(schema: Mapping[str, Any] | None) -> frozenset[str]:
    """Returns the names of properties that a schema, at any depth, describes as secrets."""
    if schema is None:
        return frozenset()
    if (known := _names_by_schema.get(id(schema))) is None:
        if len(_names_by_schema) >= _SCHEMAS:
            _names_by_schema.clear()
        names: set[str] = set()
        _says_secret(schema, names)
        _names_by_schema[id(schema)] = known = schema, frozenset(names)
    return known[1]


def _says_secret(node: object, names: set[str], depth: int = 0) -> bool:
    """True if a schema describes its value, or unnamed parts of it, as secret, as for pydantic's `SecretStr`.

    Adds the names of properties with such schemas to `names`.
    """
    if depth == _SCHEMA_DEPTH or not isinstance(node, dict | list):
        return False
    if isinstance(node, list):
        # a list, not a generator, so that all are visited
        return True in [_says_secret(each, names, depth + 1) for each in cast("list[object]", node)]
    keywords = cast("dict[str, object]", node)
    secret = keywords.get("format") == "password" or keywords.get("writeOnly") is True
    for keyword, member in keywords.items():
        if keyword == "properties" and isinstance(member, dict):
            properties = cast("dict[str, object]", member)
            names.update(name for name, each in properties.items() if _says_secret(each, names, depth + 1))
        elif _says_secret(member, names, depth + 1) and keyword not in ("$defs", "definitions"):
            secret = True
    return secret
