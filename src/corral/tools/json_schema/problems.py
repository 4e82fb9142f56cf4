"""Problems of a value, worded so that a model can fix them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence, Sized
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, cast

from corral.rendering.suggestions import NearNames
from corral.types import JsonSchema

Path: TypeAlias = tuple[str | int, ...]

MAX_PROBLEMS = 20
_MAX_VALUE_CHARACTERS = 60
_MAX_PATH_CHARACTERS = 200
_MAX_NUMBER_BITS = 256
LEAVES = frozenset({bool, float, int, str, type(None)})
_MAX_STEPS = 5_000
_MOST_MEANT = 500
"""Maximum number of fields that are searched for the intended one."""

UNEXPECTED = "unexpected field"
ABSENT: Any = object()
"""Placeholder for a missing value."""

_ONE_OF_MANY = re.compile(r"\A(expected at (?:least|most) 1 (?:item|character|field))s")
"""Units in the singular, for bounds of one."""


class Problem(NamedTuple):
    """One violation. `text` states the expectation without quoting data; `detail` and `value` can be secret."""

    path: Path
    text: str
    detail: str | None = None
    value: object = ABSENT

    def public(self) -> str:
        """Describes the problem to the model that sent the value."""
        text, value = self.detail or self.text, self.value
        if value is ABSENT:
            return self._locate(text)
        is_counted = text.endswith((" items", " fields"))
        got = len(value) if is_counted and isinstance(value, Sized) else _describe(value)
        return self._locate(f"{text}, got {got}")

    def discreet(self) -> str:
        """Describes the problem without the value, for readers that must not see it."""
        return self._locate(self.text)

    def _locate(self, text: str) -> str:
        text = _ONE_OF_MANY.sub(r"\1", text, count=1)
        return f"{format_path(self.path)}: {text}" if self.path else text


class SchemaMismatch(Exception):
    """A value does not match a schema. `problems` has at least one entry, and all of them if `complete`."""

    def __init__(self, problems: Iterable[Problem], *, complete: bool = True) -> None:
        self.problems = list(problems)
        self.complete = complete
        super().__init__(self.discreet())

    def public(self, absent: Collection[str]) -> str:
        """Describes the first problems, with values. `absent` are fields that an unexpected one can misspell."""
        names = NearNames(islice(absent, _MOST_MEANT))
        return self._join(lambda problem: problem.public() + _suggestion(problem, names))

    def discreet(self) -> str:
        """Describes the first problems without any value."""
        return self._join(Problem.discreet)

    def _join(self, describe: Callable[[Problem], str]) -> str:
        count = len(self.problems)
        shown = "; ".join(map(describe, self.problems[:MAX_PROBLEMS]))
        more = count - MAX_PROBLEMS
        if not self.complete:
            heading = f"at least {count} problem{'s' if count > 1 else ''}: "
            return f"{heading}{shown}; and more" if more > 0 else f"{heading}{shown}"
        heading = f"{count} problems: " if count > 1 else ""
        return f"{heading}{shown}; and {more} more" if more > 0 else f"{heading}{shown}"


def _suggestion(problem: Problem, absent: NearNames) -> str:
    if problem.text != UNEXPECTED or len(problem.path) != 1:
        return ""
    near = absent.of(str(problem.path[0]))
    return f"; did you mean {near[0]}?" if near else ""


# --- values and paths in messages -----------------------------------------------------------------------------


def cut(text: str, characters: int = _MAX_VALUE_CHARACTERS) -> str:
    """Shortens `text` to at most `characters` and an ellipsis."""
    return text if len(text) <= characters else f"{text[:characters]}…"


def quoted(text: str) -> str:
    """Returns `text` shortened and in quotes, with control characters and lone surrogates escaped."""
    return json.dumps(cut(text).encode(errors="replace").decode(), ensure_ascii=False)


def format_path(path: Path) -> str:
    """Formats a path: `("a", 0, "b c")` becomes `a[0]["b c"]`. Long paths are cut."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        elif re.fullmatch(r"[A-Za-z_$][\w$]*", step) and len(step) <= _MAX_VALUE_CHARACTERS:
            written += f".{step}" if written else step
        else:
            written += f"[{quoted(step)}]"
    return cut(written, _MAX_PATH_CHARACTERS)


def _type_name(value: object) -> str:
    """Returns the name of a value's type in JSON Schema, or of its class if JSON Schema has no such type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case bytes():
            return "bytes"
        case list() | tuple() | set() | frozenset():
            return "array"
        case dict():
            return "object"
        case _:
            return type(value).__name__


def _describe(value: object) -> str:
    match value:
        case int() if not isinstance(value, bool) and value.bit_length() > _MAX_NUMBER_BITS:
            return "a huge number"
        case bool() | int() | float():
            return f"{_type_name(value)} {json.dumps(value)}"
        case str():
            return f"string {quoted(value)}"
        case _:
            return _type_name(value)


# --- problems and data ---------------------------------------------------------------------------------------


def either(first: Problem, second: Problem) -> Problem:
    """Merges two problems of one value into one."""
    prefix = "expected "
    if first.text == second.text and first.detail == second.detail:
        return first
    if first.text.startswith(prefix) and second.text.startswith(prefix):
        return first._replace(text=f"{first.text} or {second.text.removeprefix(prefix)}")
    details = f"{first.detail or first.text}, or {second.detail or second.text}"
    return first._replace(text=f"{first.text}, or {second.text}", detail=details)


def child(value: object, step: str | int) -> object:
    """Returns the value at `step` in a dict, list or tuple, or ABSENT."""
    match value:
        case dict():
            return cast("dict[object, object]", value).get(step, ABSENT)
        case list() | tuple() if isinstance(step, int) and step < len(cast("Sequence[object]", value)):
            return cast("Sequence[object]", value)[step]
        case _:
            return ABSENT


def is_large(value: object) -> bool:
    """True if finding all possible problems of plain data would take too long.

    Validators take time in proportion to the lengths of the paths of all parts, which are added up here.
    """
    if type(value) in LEAVES:  # most results
        return False
    waiting, depth, steps = [value], 0, 0
    while waiting:
        depth += 1
        inner: list[object] = []
        for each in waiting:
            match each:
                case dict():
                    items: Collection[object] = cast("dict[object, object]", each).values()
                case list() | tuple() | set() | frozenset():
                    items = cast("Collection[object]", each)
                case _:
                    continue
            steps += len(items) * depth
            if steps > _MAX_STEPS:
                return True
            inner.extend(items)
        waiting = inner
    return False


def field_names(schema: JsonSchema | None) -> list[str]:
    """Returns the names of the fields that an object schema declares."""
    return list((schema or {}).get("properties", ()))
