"""Values across the boundary, the host's half. docs/values.md is the table, docs/frames.md the tags.

From a guest's pipe: JSON in which NaN and the infinities are literals and integers have any size up to 4,300 digits.
To the guest, and over other protocols: JSON in which those are tags, because JavaScript's parser knows neither. A tag
is an object with one key that starts with `$`; a flag says whether there are any, so that plain data is not searched.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json

from corral.errors import MalformedMessage
from corral.types import EncodedValue

__all__ = ["MAX_DEPTH", "ArrayBuffer", "UnencodableValue", "decode_value", "encode_value", "plain_json", "revive_value"]

MAX_DEPTH = 100
"""Containers nested deeper than this are refused, as in the guest. (The JSON parser's own bound is 200.)"""
_SAFE_INTEGER = 2**53 - 1
"""JavaScript's Number.MAX_SAFE_INTEGER; larger ones become BigInt."""
_INTEGER = re.compile("-?[0-9]{1,4300}")
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TAGS = frozenset({"$bytes", "$buffer", "$bigint", "$number", "$object"})


class ArrayBuffer(bytes):
    """Bytes that were, and will again be, an ArrayBuffer in the guest; other bytes are a Uint8Array there."""


class UnencodableValue(ValueError):
    """A value that cannot go to the guest. The message starts with the path to it and shows nothing of it."""


def encode_value(value: object, root: str = "output") -> EncodedValue:
    """Encodes what a tool returned. `root` names the value in errors.

    Raises:
        UnencodableValue: a type that has no form in the guest, a cycle, or nesting over `MAX_DEPTH`.
    """
    if value is None or value is True or value is False or (type(value) is str and value.isascii()):
        return EncodedValue(to_json(value), tagged=False)
    if type(value) is int and -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
        return EncodedValue(b"%d" % value, tagged=False)
    encoder = _Encoder(root)
    plain = encoder.plain(value, 0)
    try:
        return EncodedValue(to_json(plain, inf_nan_mode="constants"), encoder.tagged)
    except PydanticSerializationError:  # a lone surrogate somewhere, which UTF-8 cannot carry
        return EncodedValue(to_json(_well_formed(plain), inf_nan_mode="constants"), encoder.tagged)


def plain_json(value: object) -> bytes:
    """A value as JSON for those who do not know the tags: bytes as base64, NaN and the infinities as null."""
    try:
        return to_json(value, bytes_mode="base64", inf_nan_mode="null")
    except PydanticSerializationError:
        return to_json(_well_formed(value), bytes_mode="base64", inf_nan_mode="null")


def decode_value(payload: bytes, *, tagged: bool) -> Any:
    """Parses a payload from the guest. Depth is bounded by the parser, size by the frame.

    Raises:
        MalformedMessage: it is not JSON, not UTF-8, nested too deeply, or a tag is not well formed.
    """
    try:
        value: Any = from_json(payload)
    except ValueError as error:
        raise MalformedMessage("the sandbox sent a message that is not valid JSON") from error
    return revive_value(value) if tagged else value


def revive_value(value: object) -> Any:
    """A parsed value with what its tags stand for.

    Raises:
        MalformedMessage: a tag is not well formed.
    """
    try:
        return _revive(value)
    except (ValueError, TypeError, binascii.Error) as error:
        raise MalformedMessage("a tag in a value is not well formed") from error


class _Encoder:
    """Turns a value into one that JSON can carry, copying only containers that hold something JSON cannot."""

    def __init__(self, root: str) -> None:
        self.tagged = False
        self._root = root
        self._path: dict[int, str | int] = {}  # by depth

    def plain(self, value: Any, depth: int) -> Any:
        kind = cast("type[object]", type(value))
        if kind is str or kind is bool or value is None:
            return value
        if kind is int:
            return (
                value if -_SAFE_INTEGER <= value <= _SAFE_INTEGER else self._tag("$bigint", self._digits(value, depth))
            )
        if kind is float:
            return value if math.isfinite(value) else self._tag("$number", _number_name(value))
        if kind is dict:
            return self._mapping(value, depth)
        if kind is list or kind is tuple:
            return self._sequence(value, depth)
        return self._other(value, depth)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        self._descend(depth)
        result: dict[str, Any] = {}
        for key, member in value.items():
            name = key if type(key) is str else self._key(key, depth)
            if name in result:
                raise self._refused("two keys that are the same text; keys are strings in a program", depth)
            self._path[depth] = name
            result[name] = self.plain(member, depth + 1)
        if len(result) == 1 and next(iter(result)) in _TAGS:
            return self._tag("$object", result)
        return result

    def _sequence(self, value: Iterable[Any], depth: int) -> list[Any]:
        self._descend(depth)
        result: list[Any] = []
        for index, member in enumerate(value):
            self._path[depth] = index
            result.append(self.plain(member, depth + 1))
        return result

    def _other(self, value: Any, depth: int) -> Any:
        match value:
            case enum.Enum():
                return self.plain(value.value, depth)
            case str() | bool():
                return str(value)
            case int():
                return self.plain(int(value), depth)
            case float():
                return self.plain(float(value), depth)
            case ArrayBuffer():
                return self._tag("$buffer", base64.b64encode(value).decode("ascii"))
            case bytes() | bytearray():
                return self._tag("$bytes", base64.b64encode(value).decode("ascii"))
            case memoryview():
                return self._tag("$bytes", base64.b64encode(bytes(cast("memoryview[int]", value))).decode("ascii"))
            case datetime.datetime() | datetime.date() | datetime.time():
                return _iso(value)
            case datetime.timedelta():
                return to_json(value).decode().strip('"')  # ISO 8601, which the standard library cannot write
            case decimal.Decimal() | uuid.UUID() | pathlib.PurePath():
                return str(value)
            case BaseModel():
                return self.plain(value.model_dump(by_alias=True), depth)
            case Mapping():
                return self._mapping(cast("Mapping[Any, Any]", value), depth)
            case Sequence() | Set():
                return self._sequence(cast("Iterable[Any]", value), depth)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                fields = dataclasses.fields(value)
                return self._mapping({field.name: getattr(value, field.name) for field in fields}, depth)
            case _:
                # Addresses print as their text: pydantic's Url, ipaddress and the like.
                if type(value).__module__.split(".")[0] in {"pydantic", "pydantic_core", "ipaddress"}:
                    return str(value)
                raise self._refused(f"a {type(value).__name__} has no form in a program", depth)

    def _key(self, key: Any, depth: int) -> str:
        if isinstance(key, enum.Enum):
            key = key.value
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, str | int | float | datetime.date | datetime.time | uuid.UUID | decimal.Decimal):
            return str(key)
        raise self._refused(f"a key of type {type(key).__name__}; keys are strings in a program", depth)

    def _digits(self, value: int, depth: int) -> str:
        try:
            return str(value)
        except ValueError:
            raise self._refused("an integer with too many digits", depth) from None

    def _tag(self, tag: str, content: Any) -> dict[str, Any]:
        self.tagged = True
        return {tag: content}

    def _descend(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise self._refused(f"nested deeper than {MAX_DEPTH} levels, or a cycle", depth)

    def _refused(self, reason: str, depth: int) -> UnencodableValue:
        keys = [self._path[level] for level in range(min(depth, 8))]
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key[:80]}" for key in keys)
        return UnencodableValue(f"{self._root}{path}{' …' if depth > len(keys) else ''}: {reason}")


def _iso(value: datetime.datetime | datetime.date | datetime.time) -> str:
    """ISO 8601; an aware UTC time exactly as JavaScript's `toISOString` writes it, where milliseconds suffice."""
    if isinstance(value, datetime.datetime) and value.utcoffset() == datetime.timedelta(0):
        precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
        return f"{value.replace(tzinfo=None).isoformat(timespec=precision)}Z"
    return value.isoformat()


def _number_name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _well_formed(value: Any) -> Any:
    """The same with lone surrogates replaced by U+FFFD."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {_well_formed(key): _well_formed(member) for key, member in cast("dict[str, Any]", value).items()}
        case list():
            return [_well_formed(member) for member in cast("list[Any]", value)]
        case _:
            return value


def _revive(value: Any) -> Any:
    match value:
        case list():
            return [_revive(member) for member in cast("list[Any]", value)]
        case dict():
            record = cast("dict[str, Any]", value)
            if len(record) == 1:
                [(key, content)] = record.items()
                if key in _TAGS:
                    return _untag(key, content)
            return {key: _revive(member) for key, member in record.items()}
        case _:
            return value


def _untag(tag: str, content: Any) -> Any:
    match tag:
        case "$bytes":
            return base64.b64decode(content, validate=True)
        case "$buffer":
            return ArrayBuffer(base64.b64decode(content, validate=True))
        case "$bigint" if isinstance(content, str) and _INTEGER.fullmatch(content):
            return int(content)
        case "$number" if isinstance(content, str) and content in _NUMBERS:
            return _NUMBERS[content]
        case "$object" if isinstance(content, dict):
            return {key: _revive(member) for key, member in cast("dict[str, Any]", content).items()}
        case _:
            raise MalformedMessage(f"the sandbox sent the tag {tag} where it has no meaning")
