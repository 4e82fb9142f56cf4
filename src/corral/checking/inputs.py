"""Checks literal inputs of calls against the tools' schemas.

A part that is not a literal is a hole, which fits every schema. Literal parts are validated as in a call, unless that
would run the tool author's code or need a worker.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from tree_sitter import Node

from corral.checking.findings import near
from corral.rendering.lists import both, either
from corral.tools.json_schema.document_schema import PendingValidation
from corral.tools.json_schema.keywords import alternatives, listing, mapping, resolved, unconditional
from corral.tools.json_schema.problems import ABSENT, UNEXPECTED, Path, Problem, SchemaMismatch, cut
from corral.tools.schema import InputSchema

_MAX_DEPTH = 60
_MAX_STEPS = 4_000
"""Maximum number of schemas applied for one program. Each takes about 3 µs. Beyond it, inputs count as valid."""
_NEAR_STEPS = 20
"""Cost of a search for a similar name, in applied schemas."""
_MAX_FLAWS = 20
_MAX_PROBLEMS = 100
_MAX_LISTED = 20
_MAX_NAMED = 8
_MAX_NAMED_CHARS = 200
_KINDS: Mapping[str, str] = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_HARD_TO_SAY = frozenset({"patternProperties", "if", "dependentSchemas"})
_VALIDATION_SECONDS = 0.01
"""Processor seconds for validating the inputs of one program. Beyond it, inputs count as valid."""
_ABOUT_NAMES = frozenset({"field required", UNEXPECTED})
_SPELT = re.compile(r"[+-]?\d+(?:\.\d+)?|true|false", re.ASCII | re.IGNORECASE)
_SPELLING = "1"
"""Placeholder for an unknown string, which can be numeric or boolean."""


class Written(NamedTuple):
    """Literal parts of an expression."""

    node: Node
    kinds: frozenset[str] = frozenset()
    """JSON types that the value can have; empty if nothing is known."""
    value: object = ABSENT
    """Value of a known scalar."""
    members: Mapping[str, tuple[Node, Node | None]] = {}
    """Key node and value node by name. The value node is None if the value can be overwritten."""
    elements: Sequence[Node] = ()
    complete: bool = True
    """True if there are no further members or elements."""
    asserted: bool = False
    """True if the program asserts its type, as by `as any`. Then only missing members are reported."""


Read = Callable[[Node], Written]


class Flaw(NamedTuple):
    """Problem in an input, at one of its nodes."""

    node: Node
    message: str
    hint: str | None = None
    expected: tuple[str, ...] = ()
    """Values or types that are allowed there."""
    of_value: bool = False
    """True if the type is allowed, but the value is not."""


class _Literal:
    """Literal parts of an input, for a validator. Holes become null or a numeric string."""

    def __init__(self, read: Read, written: Written, most: int) -> None:
        self._read = read
        self._left = most
        self.nodes: dict[Path, Node] = {}
        self.keys: dict[Path, Node] = {}
        self.partial: set[Path] = set()
        """Paths of holes, and of the values that contain them."""
        self.texts: set[Path] = set()
        """Paths of unknown strings."""
        self.value = self._value_of(written, ())

    def _value_of(self, written: Written, path: Path) -> object:
        self.nodes[path] = written.node
        self._left -= 1
        is_known = not written.asserted and self._left > 0 and len(path) < _MAX_DEPTH
        if is_known and "object" in written.kinds:
            members = dict[str, object]()
            for name, (key, inner) in written.members.items():
                where = (*path, name)
                self.keys[where] = key
                value = Written(key) if inner is None else self._read(inner)
                members[name] = self._value_of(value, where)
                if where in self.partial:
                    self.partial.add(path)
            if not written.complete:
                self.partial.add(path)
            return members
        if is_known and "array" in written.kinds and written.complete:
            items = [self._value_of(self._read(each), (*path, index)) for index, each in enumerate(written.elements)]
            if any((*path, index) in self.partial for index in range(len(items))):
                self.partial.add(path)
            return items
        value = written.value
        if is_known and value is not ABSENT and not (isinstance(value, float) and not math.isfinite(value)):
            return value
        self.partial.add(path)
        if written.kinds == frozenset({"string"}):
            self.texts.add(path)
            return _SPELLING
        return None


class Inputs:
    """Checks the inputs in one program. Once a limit is reached, the remaining inputs count as valid."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._left = _MAX_STEPS
        self._root: Mapping[str, Any] = {}
        self._ignores_siblings = False
        self._seconds = _VALIDATION_SECONDS

    def flaws(self, schema: Mapping[str, Any], written: Written, called: InputSchema | None = None) -> list[Flaw]:
        """Returns the problems of an input, at any depth. `called` is the schema that validates it in a call."""
        self._root = schema
        self._ignores_siblings = "draft-0" in str(schema.get("$schema", ""))
        matches = self._of(schema, written, "", 0)
        if called is not None and written.kinds:
            literal = _Literal(self._read, written, max(self._left, 0))
            self._left -= len(literal.nodes)
            if (problems := self._problems(called, literal)) is not None:
                matches = [each for each in matches if not self._is_accepted(each, literal, problems)]
                matches += self._violations(literal, problems, matches)
        return list({(each.node.start_byte, each.message): each for each in matches}.values())[:_MAX_FLAWS]

    def accepts_text(self, schema: Mapping[str, Any], written: Written, called: InputSchema, part: Node) -> bool:
        """True if a call accepts a numeric string for a part of an input."""
        self._root = schema
        text = Written(part, frozenset({"string"}))
        literal = _Literal(lambda node: text if node == part else self._read(node), written, max(self._left, 0))
        problems = self._problems(called, literal)
        path = next((path for path, node in literal.nodes.items() if node == part), None)
        if problems is None or path is None or not self._leads_plainly(path, literal.partial):
            return False
        return all(each.path != path for each in problems)

    def _problems(self, called: InputSchema, literal: _Literal) -> list[Problem] | None:
        """Returns the problems that a call would report; None if they cannot be known here."""
        if self._seconds < 0 or self._left < 0 or called.runs_code:
            return None
        before = time.thread_time()
        try:
            loaded = called.load(literal.value)
            if type(loaded) is PendingValidation:
                return loaded.problems_here()
        except SchemaMismatch as mismatch:
            return mismatch.problems
        except Exception:  # a library cannot read the value
            return None
        finally:
            self._seconds -= time.thread_time() - before
        return []

    def _is_accepted(self, flaw: Flaw, literal: _Literal, problems: Sequence[Problem]) -> bool:
        """True if a call accepts a value of a type other than the schema's, such as a string for a number."""
        path = (
            next((path for path, node in literal.nodes.items() if node == flaw.node), None) if flaw.expected else None
        )
        if path is None or (path in literal.partial and path not in literal.texts):
            return False
        is_wrong = any(each.path == path[: len(each.path)] or each.path[: len(path)] == path for each in problems)
        return not is_wrong and self._leads_plainly(path, literal.partial)

    def _violations(self, literal: _Literal, problems: Iterable[Problem], flaws: Sequence[Flaw]) -> Iterator[Flaw]:
        """Yields the problems of literal parts, except those that are already reported."""
        reported = {each.node.id for each in flaws}
        for problem in islice(problems, _MAX_PROBLEMS):
            path = problem.path
            is_of_name = problem.text in _ABOUT_NAMES
            node = literal.keys.get(path) if problem.text == UNEXPECTED else literal.nodes.get(path)
            if is_of_name and node is None:
                path, node = path[:-1], literal.nodes.get(path[:-1])
            is_known = node is not None and (problem.text == UNEXPECTED or path not in literal.partial)
            if node is None or not is_known or not self._leads_plainly(path, literal.partial):
                continue
            keys = literal.keys.items() if is_of_name else ()
            if reported.isdisjoint((node.id, *(key.id for where, key in keys if where[:-1] == path))):
                yield Flaw(node, problem.public(), of_value=True)

    def _leads_plainly(self, path: Path, partial: Iterable[Path]) -> bool:
        """True if the schema of the value at a path does not depend on a hole next to it."""
        schema: object = self._root
        for number, step in enumerate(path):
            if path[:number] not in partial:
                return True
            known = unconditional(self._root, schema)
            if known is None:
                return False
            schema = mapping(known.get("properties")).get(step) if isinstance(step, str) else known.get("items")
        return schema is not None

    def is_whole(self, value: Node) -> bool:
        """True if a value contains no hole."""
        waiting = [value]
        for _ in range(_MAX_STEPS):
            if not waiting:
                return True
            each = self._read(waiting.pop())
            values = [inner for _, inner in each.members.values() if inner is not None]
            if not each.kinds or not each.complete or len(values) < len(each.members):
                return False
            waiting += [*values, *each.elements]
        return False

    def _near(self, name: str, known: Iterable[str]) -> str | None:
        self._left -= _NEAR_STEPS
        return near(name, known) if self._left > 0 else None

    def _of(self, schema: object, value: Written, path: str, depth: int) -> list[Flaw]:
        known = mapping(schema)
        self._left -= 1 + (len(listing(known.get("enum"))) + len(listing(known.get("required")))) // 50
        if not value.kinds or self._left < 0 or depth > _MAX_DEPTH:
            return []
        if depth and "$id" in known:
            return []  # its references are relative to another document
        flaws: list[Flaw] = []
        if isinstance(reference := known.get("$ref"), str):
            flaws += self._of(resolved(self._root, reference), value, path, depth + 1)
            if self._ignores_siblings:
                return flaws
        for each in listing(known.get("allOf")):
            flaws += self._of(each, value, path, depth + 1)
        for word in ("anyOf", "oneOf"):
            flaws += self._of_alternatives(listing(known.get(word)), value, path, depth)
        if not value.asserted and (expected := _misfit(known, value)) is not None:
            return [*flaws, self._flaw(value, path, expected)]
        if "object" in value.kinds:
            flaws += self._of_object(known, value, path, depth)
        elif "array" in value.kinds:
            flaws += self._of_array(known, value, path, depth)
        return flaws

    def _of_alternatives(self, schemas: Sequence[object], value: Written, path: str, depth: int) -> list[Flaw]:
        """Returns the problems of the closest alternative; if no type fits, the expectations of all alternatives."""
        options = [self._of(each, value, path, depth + 1) for each in schemas]
        if not options or not all(options):
            return []
        within = [each for each in options if not (len(each) == 1 and each[0].expected and each[0].node == value.node)]
        if within:
            return min(within, key=len)
        return [self._flaw(value, path, [name for each in options for name in each[0].expected])]

    def _of_array(self, schema: Mapping[str, Any], value: Written, path: str, depth: int) -> list[Flaw]:
        items: object = schema.get("items")
        first = listing(schema.get("prefixItems") or items)
        if first and not value.complete:
            return []
        rest = None if isinstance(items, list) else items
        schemas = [*first, *([rest] * max(len(value.elements) - len(first), 0))]
        return [
            flaw
            for each, inner in zip(schemas, value.elements, strict=False)
            if isinstance(each, Mapping) and self._left > 0
            for flaw in self._of(cast("object", each), self._read(inner), f"{path}[]", depth + 1)
        ]

    def _of_object(self, schema: Mapping[str, Any], value: Written, path: str, depth: int) -> list[Flaw]:
        properties = mapping(schema.get("properties"))
        flaws = list(self._of_names(schema, properties, value, path))
        others = None if "patternProperties" in schema else schema.get("additionalProperties")
        for name, (_, inner) in value.members.items():
            if inner is not None and self._left > 0:
                where = f"{path}.{name}" if path else name
                flaws += self._of(properties.get(name, others), self._read(inner), where, depth + 1)
        return flaws

    def _of_names(
        self, schema: Mapping[str, Any], properties: Mapping[str, object], value: Written, path: str
    ) -> Iterator[Flaw]:
        """Yields missing and unexpected members."""
        required = [each for each in listing(schema.get("required")) if isinstance(each, str)]
        missing = [
            name
            for name in required
            if value.complete and name not in value.members and not _has_default(properties.get(name))
        ]
        others = {name: key for name, (key, _) in value.members.items() if name not in properties}
        node, hints = value.node, list[str]()
        for name in missing:
            inner = self._members(properties.get(name)) if others else frozenset[str]()
            if nested := [each for each in others if each in inner]:
                node = others[nested[0]]
                others = {each: key for each, key in others.items() if each not in nested}
                hints.append(f"Put {both([repr(each) for each in nested])} into {name!r}.")
                continue
            question = self._near(name, others) if others else None
            match = question[len("Did you mean '") : -len("'?")] if question else None
            if match is None and len(missing) == len(others) == 1:
                match = next(iter(others))
            if match is not None:
                node = others.pop(match)
                hints.append(f"Did you mean {name!r} instead of {match!r}?")
        if missing:
            names = ", ".join(map(repr, missing))
            where = f" in {path}" if path else " in the input"
            message = f"{names} {'is' if len(missing) == 1 else 'are'} missing{where}"
            yield Flaw(node, message, " ".join(hints) or None)
        if others and not value.asserted and (known := self._only(schema)) is not None:
            for name in [each for each in others if each not in known][:_MAX_FLAWS]:
                match = self._near(name, known - value.members.keys())
                yield Flaw(others[name], f"{path or 'The input'} has no member {name!r}", match)

    def _members(self, schema: object) -> frozenset[str]:
        return frozenset(
            name for each in alternatives(self._root, [schema]) for name in mapping(each.get("properties"))
        )

    def _only(self, schema: Mapping[str, Any]) -> frozenset[str] | None:
        """Returns the members that an object can have; None if any are allowed."""
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            return frozenset(mapping(schema.get("properties")))
        if schema.get("unevaluatedProperties") is not False:
            return None
        parts = alternatives(self._root, [schema])
        if any(_HARD_TO_SAY & each.keys() or each.get("additionalProperties") for each in parts):
            return None
        return frozenset(name for each in parts for name in mapping(each.get("properties")))

    def _flaw(self, value: Written, path: str, expected: Sequence[str]) -> Flaw:
        names = list(dict.fromkeys(expected))
        actual = (
            _KINDS[min(value.kinds - {"boolean"}, default="boolean")] if value.value is ABSENT else _json(value.value)
        )
        texts = [each.strip('"') for each in names if each.startswith('"')]
        hint = self._near(value.value, texts) if isinstance(value.value, str) else None
        return Flaw(value.node, f"{path or 'The input'} is {either(names)}, not {actual}", hint, tuple(names))


def _misfit(schema: Mapping[str, Any], value: Written) -> list[str] | None:
    """Returns the types or values that a schema expects, if the value is certainly none of them."""
    declared = schema.get("type")
    types = [declared] if isinstance(declared, str) else listing(declared)
    if types and all(each in _KINDS for each in types):
        names = [str(each) for each in types] + (["null"] if schema.get("nullable") is True else [])
        kinds = {"number" if each == "integer" else each for each in names}
        is_broken = isinstance(value.value, float) and not value.value.is_integer()
        if value.kinds.isdisjoint(kinds) or (is_broken and "integer" in names and "number" not in names):
            values = listing(schema.get("enum"))
            return [_json(each) for each in values[:_MAX_LISTED]] or [_described(each, schema) for each in names]
    values = [schema["const"]] if "const" in schema else listing(schema.get("enum"))
    is_scalar = value.kinds.isdisjoint({"array", "object"})
    may_be_null = schema.get("nullable") is True and "null" in value.kinds
    if not values or not is_scalar or value.value is ABSENT or value.value in values or may_be_null:
        return None
    return [_json(each) for each in values[:_MAX_LISTED]]


def _described(kind: str, schema: Mapping[str, Any]) -> str:
    members = list(mapping(schema.get("properties")) if kind == "object" else ())
    listed = ", ".join(members[:_MAX_NAMED]) + (", ..." if len(members) > _MAX_NAMED else "")
    return f"{_KINDS[kind]} {{ {cut(listed, _MAX_NAMED_CHARS)} }}" if members else _KINDS[kind]


def _json(value: object) -> str:
    return cut(json.dumps(value, ensure_ascii=False, default=str))


def _has_default(schema: object) -> bool:
    return isinstance(schema, Mapping) and "default" in schema


def spells(text: str) -> bool:
    """True if a string has the form of a number or a boolean."""
    return len(text) <= _MAX_NAMED_CHARS and _SPELT.fullmatch(text) is not None
