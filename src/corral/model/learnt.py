"""Observed results of tools that declare no output, so that a model need not guess.

Only types are kept: no values, and no keys that look like data. They inform the reader only; neither programs nor
results are checked against them.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from corral.arguments import checked
from corral.errors import ConfigError
from corral.jail.temporary import write_whole
from corral.tools import Tool
from corral.tools.json_schema.plain_data import json_value
from corral.tools.schema import says_nothing
from corral.tools.signature import underlying_function
from corral.types import ExecutionContext, JsonSchema, Language, Owner, ToolName

LearntLevel: TypeAlias = Literal["off", "kinds", "shapes"]
"""`off` learns nothing; `kinds` distinguishes texts from JSON; `shapes` also learns members and items."""
_Kind: TypeAlias = Literal["text", "json", "integer", "number", "boolean", "null", "bytes", "object", "list", "unknown"]

_REMARK = "seen in results, not promised"
_MAX_REMARK = 200
"""Maximum characters about a tool's results that a model reads."""
_SHOWN_FROM, _EXECUTIONS, _REQUIRED_FROM = 5, 2, 10
"""Numbers of results and of distinct executions before a shape is shown, and of results before members are required."""
_RESTART_AFTER = 3
"""Number of consecutive results of another shape after which it replaces the known one."""

_MAX_KINDS = 3
_MAX_MEMBERS = 40
_MAX_DEPTH = 4
_MAX_PARTS = 150
"""Maximum number of positions in results that are remembered for one tool."""
_MAX_LOOKS = 150
"""Maximum number of values examined in one result."""
_ALL_LOOKED_AT, _ONE_OF = 30, 8
"""Number of first results that are all examined. Later, one out of this many is."""
_MAX_ITEMS = 8
"""Number of items of a list, or values of a dictionary, that are examined: a sample from all positions."""
_MAX_JSON_TEXTS, _MAX_JSON_CHARS = 5, 1_000
"""Maximum number of strings per result that are parsed as JSON, and maximum length of one."""
_MANY_ALIKE = 20
"""Number of members of one kind from which an object counts as a dictionary."""

_MAX_TOOLS = 1_000
_MAX_FILE_BYTES = 8_000_000

_WIDER: Mapping[_Kind, _Kind] = {"integer": "number", "json": "text"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_DIGITS = re.compile(r"[0-9]{3}|[0-9].*[a-zA-Z_].*[0-9]")
"""Matches the parts of member names that are numbers or hashes."""


class _KindForms(NamedTuple):
    """Ways to write a kind of values: as JSON Schema, in words, and in both languages."""

    schema: JsonSchema
    words: str
    typescript: str = ""
    python: str = ""


_FORMS: Mapping[_Kind, _KindForms] = {
    "object": _KindForms({}, "JSON object"),
    "list": _KindForms({}, "JSON list"),
    "text": _KindForms({"type": "string"}, "text", "string", "str"),
    "json": _KindForms(
        {"type": "string", "contentMediaType": "application/json"}, "text of JSON", "string (JSON)", "str (JSON)"
    ),
    "integer": _KindForms({"type": "integer"}, "number", "number", "int"),
    "number": _KindForms({"type": "number"}, "number", "number", "float"),
    "boolean": _KindForms({"type": "boolean"}, "true or false", "boolean", "bool"),
    "null": _KindForms({"type": "null"}, "null", "null", "None"),
    "bytes": _KindForms({"type": "string", "format": "binary"}, "bytes", "Uint8Array", "bytes"),
    "unknown": _KindForms({}, "", "unknown", "Any"),
}
"""Kinds in the order in which they are listed."""


class _Notation(NamedTuple):
    """Notation of a language for types in remarks."""

    kinds: Mapping[_Kind, str]
    list_of: str
    list_of_union: str
    dictionary: str
    object: str
    separator: str
    name: str
    elided: str


_NOTATIONS: Mapping[Language, _Notation] = {
    "typescript": _Notation(
        {kind: forms.typescript for kind, forms in _FORMS.items()},
        *("%s[]", "(%s)[]", "Record<string, %s>", "{ %s }", "; ", "%s", "…"),
    ),
    "python": _Notation(
        {kind: forms.python for kind, forms in _FORMS.items()},
        *("list[%s]", "list[%s]", "dict[str, %s]", "{%s}", ", ", '"%s"', "..."),
    ),
}
_ORDER = {kind: place for place, kind in enumerate(_FORMS)}
_KINDS: Mapping[type, _Kind] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
    dict: "object",
    **dict.fromkeys((bytes, bytearray), "bytes"),
    **dict.fromkeys((list, tuple, set, frozenset), "list"),
}


# --- observations -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Seen:
    """Types of the values at one position of results: the results themselves, a named member, or the items of a
    list."""

    times: int = 0
    """Number of values."""
    results: int = 0
    """Number of results that had any such value."""
    kinds: set[_Kind] = field(default_factory=set[_Kind])
    objects: int = 0
    """Number of values that are objects with `members`."""
    members: dict[Annotated[str, Field(pattern=f"^{_NAME.pattern}$")], Seen] = field(default_factory=dict[str, "Seen"])
    values: Seen | None = None
    """Observations of the values of dictionaries, objects whose keys are data. They have no `members`."""
    items: Seen | None = None


def look(value: object, depth: int = _MAX_DEPTH) -> Seen:
    """Examines a bounded sample of a value, to a depth of `depth` levels of objects and lists."""
    return _Look().at(value, depth)


class _Look:
    def __init__(self) -> None:
        self._left = _MAX_LOOKS
        self._json_texts = _MAX_JSON_TEXTS

    def at(self, value: object, depth: int) -> Seen:
        self._left -= 1
        if isinstance(value, Enum):
            value = value.value
        kind = _kind(value)
        seen = Seen(1, 1)
        if kind == "text" and self._is_json(value):
            kind = "json"
        seen.kinds.add(kind)
        if depth > 0 and kind == "object":
            self._look_into(cast("Mapping[object, object]", value), seen, depth - 1)
        elif depth > 0 and kind == "list":
            seen.items = self._each(_some(cast("list[object]", value)), depth - 1)
        return seen

    def _look_into(self, value: Mapping[object, object], seen: Seen, depth: int) -> None:
        some = list(islice(value.items(), _MAX_MEMBERS + 1))
        named = [(key, each) for key, each in some if isinstance(key, str) and _is_name(key)]
        nameless = len(some) - len(named)
        alike = len({_kind(each) for _, each in some} - {"null"}) < 2
        if len(some) > _MAX_MEMBERS or 2 * nameless > len(some) or (nameless and alike):
            seen.values = self._each([each for _, each in _some(some)], depth)
            return
        seen.objects = 1
        for key, each in named:
            if self._left <= 0:
                break
            seen.members[key] = self.at(each, depth)
        _tell_dictionary(seen)

    def _each(self, values: list[object], depth: int) -> Seen:
        seen = Seen()
        for each in values:
            if self._left <= 0:
                break
            widen(seen, self.at(each, depth), in_one=True)
        return seen

    def _is_json(self, text: object) -> bool:
        if not isinstance(text, str) or not 1 < len(text) <= _MAX_JSON_CHARS or text[0] not in "{[":
            return False
        self._json_texts -= 1
        return self._json_texts >= 0 and isinstance(json_value(text), dict | list)


def _kind(value: object) -> _Kind:
    """Returns the kind of a value as programs receive it: bridges write dates and the like as strings."""
    known: _Kind | None = _KINDS.get(type(value))
    if known is None:
        known = next((kind for each, kind in _KINDS.items() if isinstance(value, each)), None)
    return "text" if known is None else known


def _is_name(key: str) -> bool:
    return _NAME.fullmatch(key) is not None and _DIGITS.search(key) is None


def _some(values: Any) -> list[Any]:
    """Returns the first and the last value, and a sample of the others, without visiting all."""
    if not isinstance(values, list | tuple):
        return list(islice(values, _MAX_ITEMS))
    some = cast("list[Any]", values)
    if len(some) <= _MAX_ITEMS:
        return list(some)
    return [some[place * (len(some) - 1) // (_MAX_ITEMS - 1)] for place in range(_MAX_ITEMS)]


def widen(seen: Seen, more: Seen, *, in_one: bool = False) -> None:
    """Merges further observations of a position. With `in_one`, they come from the same result."""
    seen.times += more.times
    seen.results = max(seen.results, more.results) if in_one else seen.results + more.results
    kinds = seen.kinds | more.kinds
    for narrow, wide in _WIDER.items():
        if wide in kinds:
            kinds.discard(narrow)
    if len(kinds) > _MAX_KINDS or "unknown" in kinds:
        seen.kinds, seen.members, seen.values, seen.items = {"unknown"}, {}, None, None
        return
    seen.kinds = kinds
    if more.items is not None:
        seen.items = seen.items or Seen()
        widen(seen.items, more.items, in_one=in_one)
    if seen.values is None and more.values is None:
        seen.objects += more.objects
        for name, member in more.members.items():
            widen(seen.members.setdefault(name, Seen()), member, in_one=in_one)
        _tell_dictionary(seen)
    else:
        widen(_as_dictionary(seen), more.values or _unite(more.members), in_one=in_one)


def _as_dictionary(seen: Seen) -> Seen:
    """Makes an object a dictionary, and returns its values."""
    if seen.values is None:
        seen.values = _unite(seen.members)
        seen.members, seen.objects = {}, 0
    return seen.values


def _unite(members: Mapping[str, Seen]) -> Seen:
    united = Seen()
    for each in members.values():
        widen(united, each, in_one=True)
    return united


def _tell_dictionary(seen: Seen) -> None:
    """Makes an object a dictionary if its names are data: there are many, most occur once, or all have the same
    kind."""
    members = list(seen.members.values())
    once = sum(each.results == 1 for each in members)
    kinds = {kind for each in members for kind in each.kinds} - {"null"}
    if (
        len(members) > _MAX_MEMBERS
        or (len(members) > _MANY_ALIKE and len(kinds) == 1)
        or (len(members) > 1 and kinds in ({"object"}, {"list"}) and len(set(map(_outline, members))) == 1)
        or (seen.results >= _RESTART_AFTER <= once and 2 * once > len(members))
    ):
        _as_dictionary(seen)


def _outline(seen: Seen) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the member names of a value and of its items."""
    return frozenset(seen.members), frozenset(seen.items.members if seen.items else ())


def _is_alike(seen: Seen, new: Seen) -> bool:
    """True if a result has only known kinds, and at least half of its members are known."""
    if "unknown" in seen.kinds or seen.kinds <= {"null"}:
        return True
    known: set[_Kind] = {*seen.kinds, "null"}
    for narrow, wide in _WIDER.items():
        known |= {narrow, wide} if known & {narrow, wide} else set[_Kind]()
    if not new.kinds <= known:
        return False
    if seen.items is not None and new.items is not None and not _is_alike(seen.items, new.items):
        return False
    if seen.values is not None:
        new_values = [*new.members.values(), *([] if new.values is None else [new.values])]
        return all(_is_alike(seen.values, each) for each in new_values)
    common = seen.members.keys() & new.members.keys()
    if seen.members and 2 * len(common) < len(new.members):
        return False
    return all(_is_alike(seen.members[name], new.members[name]) for name in common)


def _parts(seen: Seen) -> Iterator[Seen]:
    yield from (each for each in (seen.items, seen.values, *seen.members.values()) if each is not None)


def _count(seen: Seen) -> int:
    return 1 + sum(map(_count, _parts(seen)))


def _cut(seen: Seen, depth: int) -> None:
    """Forgets deeper levels."""
    if depth == 0:
        seen.members, seen.values, seen.items, seen.objects = {}, None, None, 0
    for each in _parts(seen):
        _cut(each, depth - 1)


def _bound(seen: Seen) -> None:
    """Forgets the deepest levels until the observations are small enough."""
    for depth in reversed(range(_MAX_DEPTH)):
        if _count(seen) <= _MAX_PARTS:
            return
        _cut(seen, depth)


def _is_shown(member: Seen) -> bool:
    """False if a name occurred in only one result, so that it may be data instead of a field."""
    return member.results > 1


def _is_required(member: Seen, owner: Seen) -> bool:
    return member.times == owner.objects and member.results >= _REQUIRED_FROM


def json_schema(seen: Seen) -> JsonSchema:
    """Returns an open JSON Schema of the observations."""
    alternatives = [_schema_of(kind, seen) for kind in sorted(seen.kinds, key=_ORDER.__getitem__)]
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives} if alternatives else {}


def _schema_of(kind: _Kind, seen: Seen) -> JsonSchema:
    if kind == "list":
        return {"type": "array"} if seen.items is None else {"type": "array", "items": json_schema(seen.items)}
    if kind != "object":
        return dict(_FORMS[kind].schema)
    if seen.values is not None:
        return {"type": "object", "additionalProperties": json_schema(seen.values)}
    shown = {name: member for name, member in seen.members.items() if _is_shown(member)}
    schema: JsonSchema = {"type": "object"}
    if shown:
        schema["properties"] = {name: json_schema(member) for name, member in shown.items()}
    if required := [name for name, member in shown.items() if _is_required(member, seen)]:
        schema["required"] = required
    return schema


def _type_text(seen: Seen, language: Language, characters: int) -> str:
    """Prints the observed type on one line, with as many levels and members as fit."""
    forms = [*((depth, _MAX_MEMBERS) for depth in range(_MAX_DEPTH, 0, -1)), *((1, most) for most in range(16, 1, -1))]
    texts = (_type(seen, _NOTATIONS[language], depth, members) for depth, members in forms)
    return next((text for text in texts if len(text) <= characters), _words(seen))


def _type(seen: Seen, notation: _Notation, depth: int, most_members: int) -> str:
    def of(kind: _Kind) -> str:
        if kind == "list":
            item = seen.items or Seen()
            template = notation.list_of_union if len(item.kinds) > 1 else notation.list_of
            return template % _type(item, notation, depth, most_members)
        if kind != "object":
            return notation.kinds[kind]
        if seen.values is not None:
            return notation.dictionary % _type(seen.values, notation, depth, most_members)
        shown = [(name, member) for name, member in seen.members.items() if _is_shown(member)]
        if depth == 0 or not shown:
            return f"{{{notation.elided}}}"
        members = [
            f"{notation.name % name}{'' if _is_required(member, seen) else '?'}: "
            f"{_type(member, notation, depth - 1, most_members)}"
            for name, member in shown[:most_members]
        ]
        members += [notation.elided] if len(shown) > most_members else []
        return notation.object % notation.separator.join(members)

    kinds: list[_Kind] = sorted(seen.kinds, key=_ORDER.__getitem__) or ["unknown"]
    return " | ".join(dict.fromkeys(map(of, kinds)))


def _words(seen: Seen) -> str:
    """Names the kinds, without members."""
    words = dict.fromkeys(_FORMS[kind].words for kind in sorted(seen.kinds - {"unknown"}, key=_ORDER.__getitem__))
    parsed = ", parsed already" if seen.kinds & {"object", "list"} else ""
    return f"{' or '.join(words)}{parsed}" if words else ""


# --- learnt results ----------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Learnt:
    """Results of one version of a tool, as observed for one owner."""

    tool: str
    version: str
    organization_id: str | None
    user_id: str
    seen: Seen = field(default_factory=Seen)
    other: Seen | None = None
    """Observations of the latest results, if they have another shape."""
    executions: int = 0
    last_execution: str = ""

    def add(self, new: Seen, execution_id: str) -> None:
        if execution_id != self.last_execution:
            self.last_execution = execution_id
            self.executions += 1
        if _is_alike(self.seen, new):
            if self.other is not None:
                widen(self.seen, self.other)
                self.other = None
            widen(self.seen, new)
        else:
            self.other = self.other or Seen()
            widen(self.other, new)
            if self.other.results == _RESTART_AFTER:
                self.seen, self.other = self.other, None
        for seen in (self.seen, self.other):
            if seen is not None:
                _bound(seen)

    def whole(self) -> Seen:
        if self.other is None:
            return self.seen
        whole = Seen()
        widen(whole, self.seen)
        widen(whole, self.other)
        return whole


_ENTRY, _ENTRIES = TypeAdapter(_Learnt), TypeAdapter(list[_Learnt])


class LearntTool(NamedTuple):
    """Results of a tool, as observed for one user of an organization."""

    tool: str
    organization_id: str | None
    user_id: str
    results: int
    """Number of results observed."""
    schema: JsonSchema
    """JSON Schema of the results, for use as `output_schema=`."""


@checked
class LearntResults:
    """Learns the kinds or shapes of results of tools that declare none; never keeps a value.

    Observations are kept in memory, for each user of an organization and each version of a tool (its name, namespace,
    function, description and schemas). Models read them in `search`, `describe` and the feedback on failed programs;
    they also read shapes in the catalog. Nothing is checked against them.

    Args:
            level: `kinds` distinguishes texts from JSON; `shapes` adds members and items, which are shown after five
            results from two executions; `off` learns nothing. file: is read now, if it exists, and written by `save`,
            which closing the Corral calls.

    Raises:
        ConfigError: the file cannot be read, or does not contain learnt results.
    """

    def __init__(self, level: LearntLevel = "kinds", *, file: str | Path | None = None) -> None:
        self.level: LearntLevel = level
        self._file = None if file is None else Path(file)
        self._lock = threading.RLock()
        self._versions: WeakKeyDictionary[Tool, str] = WeakKeyDictionary()
        self._owners: dict[Owner, dict[str, _Learnt]] = {}
        self._size = 0
        self._is_changed = False
        if self._file is not None:
            self._read(self._file)

    def observe(self, tool: Tool, value: object, context: ExecutionContext, execution_id: str) -> None:
        """Learns from a result that a program has received, as plain data."""
        if self.level == "off" or tool.stream or not says_nothing(tool.output_schema):
            return
        with self._lock:
            self._is_changed = True
            learnt = self._learnt(tool, context.owner)
            seen = learnt.seen
            is_enough = self.level == "kinds" or (seen.results > _ALL_LOOKED_AT and seen.results % _ONE_OF)
            if is_enough and learnt.other is None and _kind(value) in seen.kinds:
                seen.results += 1
                return
            learnt.add(look(value, _MAX_DEPTH if self.level == "shapes" else 0), execution_id)

    def told(self, tool: Tool, context: ExecutionContext, language: Language, *, lasting: bool = False) -> str:
        """Describes the results of a tool for a model, in one line of at most 200 characters; empty if nothing is
        known.

        `lasting`: describe only shapes that were observed often enough, for texts that must not change later.
        """
        if not self._owners or tool.stream or not tool.has_schemas or not says_nothing(tool.output_schema):
            return ""
        with self._lock:
            of_owner = self._owners.get(context.owner)
            known = None if of_owner is None else of_owner.get(self._version(tool))
            if known is None:
                return ""
            seen = known.whole()
            is_ready = known.executions >= _EXECUTIONS and any(each.results >= _SHOWN_FROM for each in _parts(seen))
            if self.level == "shapes" and is_ready:
                text = _type_text(seen, language, _MAX_REMARK - len(_REMARK) - 2)
            else:
                text = "" if lasting else _words(seen)
        return text and f"{_REMARK}: {text}"

    def told_in_catalog(
        self, tools: Mapping[ToolName, Tool], context: ExecutionContext, language: Language
    ) -> Mapping[ToolName, str]:
        """Returns the lines for the catalog."""
        if self.level != "shapes" or not self._owners:
            return {}
        lines = {name: self.told(tool, context, language, lasting=True) for name, tool in tools.items()}
        return {name: text for name, text in lines.items() if text}

    def tools(self, context: ExecutionContext | None = None) -> tuple[LearntTool, ...]:
        """Returns all learnt tools; with a context, only those learnt from its owner's own results."""
        with self._lock:
            return tuple(
                LearntTool(learnt.tool, owner.organization_id, owner.user_id, seen.results, json_schema(seen))
                for owner, of_owner in self._owners.items()
                if context is None or owner == context.owner
                for learnt in of_owner.values()
                for seen in [learnt.whole()]
            )

    def forget(self, tool: str | None = None, context: ExecutionContext | None = None) -> None:
        """Forgets all versions of one tool or of all tools, for one user or for all users."""
        with self._lock:
            self._is_changed = True
            for owner, of_owner in list(self._owners.items()):
                if context is None or owner == context.owner:
                    for version in [each for each, learnt in of_owner.items() if tool in (None, learnt.tool)]:
                        self._drop(owner, version)

    def save(self) -> None:
        """Writes the file, if one was named and something has changed. It is replaced as a whole, and only its owner
        can read it.

        The most recent tools are written first, up to 8 MB.

        Raises:
            ConfigError: the file cannot be written.
        """
        if self._file is None or not self._is_changed:
            return
        self._is_changed = False
        with self._lock:
            every = [learnt for of_owner in self._owners.values() for learnt in of_owner.values()]
        texts: list[bytes] = []
        room = _MAX_FILE_BYTES - 2
        for learnt in reversed(every):
            with self._lock:
                texts.append(_ENTRY.dump_json(learnt, exclude_defaults=True, exclude={"last_execution"}))
            room -= len(texts[-1]) + 1
            if room < 0:
                texts.pop()
                break
        try:
            write_whole(self._file, f"[{b','.join(reversed(texts)).decode()}]")
        except OSError as error:
            raise ConfigError(f"{self._file}: learnt results cannot be written: {error.strerror}") from error

    def _read(self, file: Path) -> None:
        try:
            with file.open("rb") as opened:
                text = opened.read(_MAX_FILE_BYTES + 1)
            every = _ENTRIES.validate_json(text[:_MAX_FILE_BYTES]) if text else []
        except FileNotFoundError:
            return
        except (OSError, ValidationError) as error:
            reason = error.strerror if isinstance(error, OSError) else "LearntResults did not write it"
            raise ConfigError(f"{file} has no learnt results: {reason}; delete it, or name another file") from error
        for learnt in every:
            for seen in (learnt.seen, learnt.other):
                if seen is not None:
                    _cut(seen, _MAX_DEPTH)
                    _bound(seen)
            self._keep(learnt)

    def _learnt(self, tool: Tool, owner: Owner) -> _Learnt:
        version = self._version(tool)
        of_owner = self._owners.get(owner, {})
        if (known := of_owner.get(version)) is not None:
            return known
        return self._keep(_Learnt(tool=tool.label, version=version, **owner._asdict()))

    def _keep(self, learnt: _Learnt) -> _Learnt:
        """Stores the results of a tool. Beyond the maximum, drops the oldest of the owner who has the most."""
        of_owner = self._owners.setdefault(Owner(learnt.organization_id, learnt.user_id), {})
        self._size += learnt.version not in of_owner
        of_owner[learnt.version] = learnt
        if self._size > _MAX_TOOLS:
            owner = max(self._owners, key=lambda each: len(self._owners[each]))
            self._drop(owner, next(iter(self._owners[owner])))
        return learnt

    def _drop(self, owner: Owner, version: str) -> None:
        del self._owners[owner][version]
        self._size -= 1
        if not self._owners[owner]:
            del self._owners[owner]

    def _version(self, tool: Tool) -> str:
        known = self._versions.get(tool)
        if known is None:
            function = underlying_function(tool.function)
            source = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
            named = (tool.namespace, tool.name, *source, tool.description)
            try:
                written = to_json((named, tool.input_schema, tool.output_schema))
            except ValueError:  # the schema is nested too deeply
                written = to_json(named)
            known = self._versions[tool] = hashlib.sha256(written).hexdigest()
        return known
