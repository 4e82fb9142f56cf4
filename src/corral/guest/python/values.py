"""Half of the value codec that Python guests and their host share.

docs/values.md specifies the conversions, docs/frames.md the tags. `corral.guest.values` adds host-only types.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import decimal
import enum
import io
import json
import math
import re
import types
import uuid
from collections import UserString
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from pathlib import PurePath
from typing import Any, NamedTuple, TypeGuard, cast

MAX_DEPTH = 100
"""Maximum nesting. Deeper values are mistakes or attacks."""
_MAX_DIGITS = 4300
"""Maximum digits of an integer: Python's default limit for parsing (sys.int_info.default_max_str_digits)."""
SAFE_INTEGER = 2**53 - 1
"""JavaScript's Number.MAX_SAFE_INTEGER. Larger integers become BigInt."""
_SHOWN_STEPS = 8
_INTEGER = re.compile(f"-?[0-9]{{1,{_MAX_DIGITS}}}")
_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_TAGS = frozenset({"$bytes", "$buffer", "$bigint", "$number", "$object"})
_MISSING = frozenset({"NaTType", "NAType"})
"""pandas' markers of missing values."""
_MODES_OF_PNG = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16"})
_SCIENCE = frozenset({"PIL", "matplotlib", "numpy", "pandas"})
_FINE_TIME = re.compile(r"timedelta64\[|datetime64\[(ns|ps|fs|as)")
"""numpy types without a counterpart in Python: durations can be in months."""
_NAMES = (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID, PurePath)
"""Types of keys other than strings. Such a key becomes the text of its value."""
_TEXTS = frozenset({"fractions", "ipaddress", "zoneinfo"})
"""Modules whose objects are converted to their text."""
_PROGRAM_MODULE = "__main__"
_UNCHANGED = frozenset({str, bool, type(None)})
_SAFE = 2**63
_to_json = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_from_json = json.JSONDecoder().raw_decode


class ArrayBuffer(bytes):
    """Bytes that are an ArrayBuffer in a JavaScript guest. Other bytes are a Uint8Array there."""


class UnencodableValue(ValueError):
    """A value has no form on the other side. The message starts with its path and reveals none of its content."""


class TooLarge(UnencodableValue):
    """The text of a value is longer than allowed."""


class TooManyParts(Exception):
    """A value has more members and elements than the encoder may read."""


class Encoded(NamedTuple):
    """JSON text of a value, whether it contains tags, and whether lone surrogates in it were replaced."""

    text: bytes
    tagged: bool
    replaced: bool
    consumed: bool = False


def encode(value: object, root: str, max_bytes: float, *, plain: bool = False) -> Encoded:
    """Encodes a value that leaves the guest. NaN, the infinities and large integers are in Python's JSON notation.

    In `plain` JSON, they are tags.

    Raises:
        UnencodableValue: a type without a form, a cycle, nesting over `MAX_DEPTH`.
        TooLarge: more bytes than `max_bytes`.
    """
    replaced = False
    encoder = (PlainEncoder if plain else Encoder)(root, max_bytes)
    text = _to_json(encoder.plain(value, 0))
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = well_formed(text).encode()
        replaced = True
    if len(data) > max_bytes:
        raise TooLarge(f"{root} has {len(data)} bytes; {max_bytes:.0f} are allowed")
    return Encoded(data, encoder.tagged, replaced, encoder.consumed)


def decode(payload: bytes, *, tagged: bool) -> Any:
    """Decodes a payload from the host."""
    value, _ = _from_json(payload.decode())
    return revive(value) if tagged else value


def _is_flat(value: dict[Any, Any]) -> bool:
    """True for an object that JSON encodes unchanged, as it does most inputs and table rows."""
    for name, member in value.items():
        if type(name) is not str:
            return False
        if type(member) is int:
            if not -SAFE_INTEGER <= member <= SAFE_INTEGER:
                return False
        elif type(member) not in _UNCHANGED and not (type(member) is float and math.isfinite(member)):
            return False
    return _TAGS.isdisjoint(value)


def revive(value: Any) -> Any:
    """Replaces the tags in a parsed value by the values that they represent.

    Raises:
        ValueError: a tag is malformed.
    """
    match value:
        case list():
            return [revive(member) for member in cast("list[Any]", value)]
        case dict():
            record = cast("dict[str, Any]", value)
            if len(record) == 1:
                [(key, content)] = record.items()
                if key in _TAGS:
                    return _untagged(key, content)
            return {key: revive(member) for key, member in record.items()}
        case _:
            return value


def _untagged(tag: str, content: Any) -> Any:
    match tag:
        case "$bytes":
            return _decoded(content)
        case "$buffer":
            return ArrayBuffer(_decoded(content))
        case "$bigint" if isinstance(content, str) and _INTEGER.fullmatch(content):
            return int(content)
        case "$number" if isinstance(content, str) and content in _NUMBERS:
            return _NUMBERS[content]
        case "$object" if isinstance(content, dict):
            return {key: revive(member) for key, member in cast("dict[str, Any]", content).items()}
        case _:
            raise ValueError(f"the tag {tag} is not allowed here")


def _decoded(content: Any) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (TypeError, binascii.Error) as error:
        raise ValueError("a tag of bytes that is not base64") from error


class Encoder:
    """Converts a value to one that JSON can represent.

    Its text can contain `NaN`, the infinities and integers of any size. `other` converts types that JSON lacks.
    """

    sees_all = False
    """True if `plain` is to be called for every member, even of flat objects."""
    parts: float = math.inf
    """Number of members and elements of lists and dicts that may still be read."""

    def __init__(self, root: str, max_bytes: float = math.inf) -> None:
        self.tagged = False
        self.consumed = False
        """True once items of an iterator have been consumed, which cannot be undone."""
        self._root = root
        self._room = max_bytes
        """Number of items that iterators can still yield, because they can be endless."""
        self._path: dict[int, str | int] = {}  # by depth
        self._parents: dict[int, int] = {}  # by depth: the identity of the container

    def plain(self, value: Any, depth: int) -> Any:
        """Converts a value to None, bool, str, int, float, list and dict only."""
        kind = cast("type[object]", type(value))
        if kind in _UNCHANGED:
            return value
        if kind is int:
            return self.integer(value, depth)
        if kind is float:
            return self.number(value)
        if kind is dict or kind is list or kind is tuple:
            self.parts -= len(value)
            if self.parts < 0:
                raise TooManyParts
            if kind is not dict:
                return self.sequence(value, value, depth)
            if depth < MAX_DEPTH and not self.sees_all and _is_flat(value):
                return value
            return self.mapping(value, value.items(), depth)
        return self.other(value, depth)

    def integer(self, value: int, depth: int) -> Any:
        if not -_SAFE < value < _SAFE:
            self.digits(value, depth)
        return value

    def number(self, value: float) -> Any:
        return value

    def digits(self, value: int, depth: int) -> str:
        try:
            return str(value)
        except ValueError:
            raise self.refused(f"an integer of more than {_MAX_DIGITS} digits is too long", depth) from None

    def mapping(self, owner: object, items: Iterable[tuple[Any, Any]], depth: int) -> Any:
        self._descend(owner, depth)
        result: dict[str, Any] = {}
        pending = iter(items)
        for key, member in pending:
            if type(key) is not str or key in result:
                return self._with_other_keys(result, [(key, member), *pending], depth)
            self._path[depth] = key
            result[key] = self.plain(member, depth + 1)
        return self._object(result)

    def _object(self, members: dict[str, Any]) -> dict[str, Any]:
        return members if _TAGS.isdisjoint(members) else self.tag("$object", members)

    def _with_other_keys(self, done: dict[str, Any], rest: list[tuple[Any, Any]], depth: int) -> Any:
        """Converts a mapping with non-string keys to an object if all keys have a text, else to a list of pairs."""
        names = [self.key_text(key, depth) for key, _ in rest]
        if None in names or len({*done, *names}) < len(done) + len(names):
            return self.pairs(done, rest, depth)
        for name, (_, member) in zip(cast("list[str]", names), rest, strict=True):
            self._path[depth] = name
            done[name] = self.plain(member, depth + 1)
        return self._object(done)

    def pairs(self, done: dict[str, Any], rest: list[tuple[Any, Any]], depth: int) -> Any:
        """Adds the remaining members to those already converted."""
        result: list[Any] = [[name, member] for name, member in done.items()]
        for key, member in rest:
            self._path[depth] = len(result)
            result.append(self.plain([self.class_name(key) or key, member], depth + 1))
        return result

    def sequence(self, owner: object, members: Iterable[Any], depth: int) -> list[Any]:
        self._descend(owner, depth)
        result: list[Any] = []
        for index, member in enumerate(members):
            self._path[depth] = index
            result.append(self.plain(member, depth + 1))
        return result

    def other(self, value: Any, depth: int) -> Any:
        match value:
            case enum.Enum():
                return self.plain(value.value, depth)
            case str():
                return str.__str__(value)
            case int():
                return self.integer(int.__int__(value), depth)
            case float():
                return self.number(float.__float__(value))
            case ArrayBuffer():
                return self.tag("$buffer", base64.b64encode(value).decode("ascii"))
            case bytes() | bytearray() | memoryview():
                return self.tag("$bytes", base64.b64encode(bytes(cast("bytes", value))).decode("ascii"))
            case _ if is_science(value):
                return self._science(value, depth)
            case datetime.datetime() | datetime.date() | datetime.time():
                return iso(value)
            case datetime.timedelta():
                return duration(value)
            case decimal.Decimal() | uuid.UUID() | PurePath() | UserString():
                return str(value)
            case Mapping():
                return self.mapping(cast("object", value), cast("Mapping[Any, Any]", value).items(), depth)
            case Set():
                return self.sequence(cast("object", value), _in_order(cast("Set[Any]", value)), depth)
            case Sequence() | ValuesView():
                return self.sequence(cast("object", value), cast("Iterable[Any]", value), depth)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                names = [field.name for field in dataclasses.fields(value)]
                return self.mapping(value, [(name, getattr(value, name)) for name in names], depth)
            case _:
                return self.rest(value, depth)

    def rest(self, value: Any, depth: int) -> Any:
        """Converts values without a JSON form: errors, objects, awaitables, functions and iterators."""
        kind = cast("type[Any]", type(value))
        if isinstance(value, BaseException):
            return self.mapping(value, _members_of_error(value), depth)
        if isinstance(value, re.Pattern):
            return self.plain(cast("re.Pattern[Any]", value).pattern, depth)
        if callable(getattr(kind, "model_dump", None)):  # pydantic model
            return self.plain(value.model_dump(by_alias=True), depth)
        if isinstance(value, type):
            raise self.refused(f"the class {value.__name__} cannot leave the sandbox; return its contents", depth)
        if issubclass(kind, Awaitable):
            reason: object = getattr(value, "not_awaited", None)
            raise self.refused(reason if isinstance(reason, str) else f"a {kind.__name__}: await it first", depth)
        if callable(value):
            raise self.refused("a function cannot leave the sandbox; call it, or return its result", depth)
        if issubclass(kind, AsyncIterator):
            raise self.refused("an async iterator: collect it first, [each async for each in ...]", depth)
        if issubclass(kind, Iterator) and not issubclass(kind, io.IOBase):
            return self._collected(cast("Iterator[Any]", value), depth)
        if kind.__module__ in _TEXTS:
            return str(value)
        if isinstance(value, types.SimpleNamespace):
            return self.mapping(value, vars(value).items(), depth)
        if kind.__module__ == _PROGRAM_MODULE and isinstance(members := getattr(value, "__dict__", None), dict):
            own = [(name, each) for name, each in cast("dict[str, Any]", members).items() if name[:1] != "_"]
            return self.mapping(value, own, depth)
        raise self.refused(f"a {kind.__name__} cannot leave the sandbox; return its contents", depth)

    def _collected(self, members: Iterator[Any], depth: int) -> list[Any]:
        """Collects an iterator's items, up to the limit of the whole value."""
        self.consumed = True
        self._descend(members, depth)
        result: list[Any] = []
        for member in members:
            self._path[depth] = len(result)
            result.append(plain := self.plain(member, depth + 1))
            self._room -= _least_size(plain)
            if self._room < 0:
                raise TooLarge(f"{self._root}: an iterator yields more than is allowed, or has no end")
        return result

    def tag(self, tag: str, content: Any) -> dict[str, Any]:
        self.tagged = True
        return {tag: content}

    def refused(self, reason: str, depth: int) -> UnencodableValue:
        """Returns the error for a value at this depth."""
        path = self._root
        for level in range(min(depth, _SHOWN_STEPS)):
            step = self._path[level]
            if isinstance(step, int):
                path += f"[{step}]"
            else:
                path += f".{step[:80]}" if step[:80].isidentifier() else f"[{json.dumps(step[:80])}]"
        return UnencodableValue(f"{path}{' …' if depth > _SHOWN_STEPS else ''}: {reason}")

    def _science(self, value: Any, depth: int) -> Any:
        """Converts numpy's scalars and arrays, pandas' frames and their contents, and pictures."""
        if isinstance(value, datetime.datetime) and type(value).__name__ not in _MISSING:
            return iso(value)
        try:
            content = unwrapped(value)
        except ValueError as error:
            raise self.refused(str(error), depth) from None
        if content is value:
            return self.rest(value, depth)
        if type(content) is list:
            return self.sequence(value, cast("list[Any]", content), depth)
        if type(content) is dict:
            return self.mapping(value, cast("dict[Any, Any]", content).items(), depth)
        return self.plain(content, depth)

    def class_name(self, value: object) -> str | None:
        """Returns the name of a class that serves as a key."""
        return value.__name__ if isinstance(value, type) else None

    def key_text(self, key: Any, depth: int) -> str | None:
        """Returns a key's text in an object: as in JavaScript's JSON; for a class, its name."""
        if isinstance(key, enum.Enum):
            key = key.value
        if key is None:
            return "null"
        if (name := self.class_name(key)) is not None:
            return name
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, str):
            return str.__str__(key)
        if isinstance(key, int):
            return self.digits(int.__int__(key), depth)
        if isinstance(key, float):
            return str(float.__float__(key))
        if isinstance(key, _NAMES) or is_science(key):
            plain = self.other(key, depth)
            if isinstance(plain, str | int | float):
                return self.key_text(plain, depth)
        return None

    def _descend(self, container: object, depth: int) -> None:
        if depth >= MAX_DEPTH:
            self._refuse_depth(container)
        self._parents[depth] = id(container)

    def _refuse_depth(self, container: object) -> None:
        """Refuses excessive depth. Reports a cycle as such, with the path at which it closes."""
        parents = [*(self._parents[level] for level in range(MAX_DEPTH)), id(container)]
        seen: set[int] = set()
        for depth, parent in enumerate(parents):
            if parent in seen:
                raise self.refused("a cycle: the value contains itself", depth)
            seen.add(parent)
        raise self.refused(f"nested deeper than {MAX_DEPTH} levels", MAX_DEPTH)


class PlainEncoder(Encoder):
    """Plain JSON for parsers such as JavaScript's, which support neither NaN nor integers over 2^53."""

    def integer(self, value: int, depth: int) -> Any:
        return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else self.tag("$bigint", self.digits(value, depth))

    def number(self, value: float) -> Any:
        if math.isfinite(value):
            return value
        return self.tag("$number", "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")


def _least_size(plain: Any) -> int:
    """Returns a lower bound of a value's encoded bytes that is cheap to compute."""
    if isinstance(plain, int):
        return 2 + plain.bit_length() // 4
    if isinstance(plain, list):
        return 2 + sum(2 + len(each) if isinstance(each, str) else 2 for each in cast("list[object]", plain))
    if isinstance(plain, dict):
        return 2 + 5 * len(cast("dict[str, object]", plain))
    return 2 + len(plain) if isinstance(plain, str) else 2


def iso(value: datetime.datetime | datetime.date | datetime.time) -> str:
    """Formats as ISO 8601. Aware UTC times look as in JavaScript's `toISOString`, if milliseconds suffice."""
    if isinstance(value, datetime.datetime) and value.utcoffset() == datetime.timedelta(0):
        precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
        return f"{value.replace(tzinfo=None).isoformat(timespec=precision)}Z"
    return value.isoformat()


def duration(value: datetime.timedelta) -> str:
    """Formats as ISO 8601, in days, hours, minutes and seconds: `P1DT2H3M4.5S`."""
    sign = "-" if value < datetime.timedelta(0) else ""
    value = abs(value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{value.microseconds:06d}".rstrip("0") if value.microseconds else ""
    parts = [f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number]
    if seconds or fraction:
        parts.append(f"{seconds}{fraction}S")
    days = f"{value.days}D" if value.days else ""
    return f"{sign}P{days}{'T' if parts else ''}{''.join(parts)}" if days or parts else "PT0S"


def well_formed(text: str) -> str:
    """Replaces lone surrogates by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _members_of_error(error: BaseException) -> list[tuple[str, object]]:
    members: list[tuple[str, object]] = [("name", type(error).__name__), ("message", str(error))]
    if error.__cause__ is not None:
        members.append(("cause", error.__cause__))
    if isinstance(error, BaseExceptionGroup):
        members.append(("errors", cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return members


def _in_order(members: Set[Any]) -> Iterable[Any]:
    """Sorts strings and numbers, because the order of strings in a set differs between processes."""
    kinds = {cast("type[object]", type(member)) for member in members}
    if kinds == {str} or kinds <= {int, float, bool}:
        return sorted(members)
    return members


def unwrapped(value: Any) -> object:
    """Converts one level of a numpy, pandas, PIL or matplotlib value to the standard library, without importing these.

    A frame becomes its rows, a series or an array a list or a dict, a scalar its value, a missing-value marker
    None, a picture or a figure PNG bytes. Other values are returned unchanged.

    Raises:
        ValueError: the value has two members with the same name.
    """
    kind = cast("type[object]", type(value)).__name__
    if kind in _MISSING:
        return None
    if kind == "longdouble":
        return float(value)
    if callable(getattr(value, "savefig", None)):
        return _png(lambda file: value.savefig(file, format="png"))
    if type(value).__module__.startswith("PIL."):
        picture = value if value.mode in _MODES_OF_PNG else value.convert("RGBA")
        return _png(lambda file: picture.save(file, format="PNG"))
    if kind == "DataFrame":
        return _rows(value)
    dtype = str(getattr(value, "dtype", ""))
    if dtype == "str":
        value = value.astype("string")  # otherwise pandas has NaN for missing strings
    if kind == "Series" and not _is_counted(value.index):
        if value.index.nlevels > 1 or not value.index.is_unique:
            return _rows(value.to_frame("value" if value.name is None else value.name))
        return dict(zip(value.index.tolist(), value.tolist(), strict=True))
    if kind == "Timedelta":
        return value.to_pytimedelta()
    if _FINE_TIME.match(dtype) and type(value).__module__.startswith("numpy"):
        value = value.astype(f"{dtype[: dtype.index('[')]}[us]")  # otherwise they become integers
    if callable(getattr(value, "tolist", None)):
        content = cast("object", value.tolist())
        if type(content) is list or type(content) is not type(value):
            return cast("object", content)
    return str(value) if kind in ("Period", "Interval") else value


def _png(save: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def _rows(frame: Any) -> list[dict[Any, Any]]:
    """Returns a frame's rows by column, preceded by the index unless it only counts."""
    if not _is_counted(frame.index):
        frame = frame.reset_index(allow_duplicates=True)
    if not frame.columns.is_unique:
        raise ValueError("a DataFrame with two columns, or an index and a column, of the same name")
    texts = [name for name, dtype in frame.dtypes.items() if str(dtype) == "str"]
    return cast("list[dict[Any, Any]]", frame.astype(dict.fromkeys(texts, "string")).to_dict("records"))


def is_science(value: object) -> bool:
    """True if the type comes from numpy, pandas, PIL or matplotlib."""
    return type(value).__module__.partition(".")[0] in _SCIENCE


def _is_counted(index: Any) -> TypeGuard[Any]:
    """True if rows are only counted from 0."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
