"""Inputs that a TypeScript program writes out, beside the schema of the tool: what is missing, whatever else is given.

The compiler speaks of one thing at a time, and of a misspelt member rather than of the one that is missing for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from tree_sitter import Node

from corral.checking.findings import near
from corral.json_schema.closed_objects import resolved
from corral.programs.syntax.typescript import text_of, unwrapped

__all__ = ["Flaw", "flaws"]

_MAX_HOPS = 20
_MAX_FLAWS = 20
_NAMES = frozenset({"property_identifier", "string", "number"})


class Flaw(NamedTuple):
    """Something that is wrong with an input, at a node of it."""

    node: Node
    message: str
    hint: str | None
    names: tuple[str, ...] = ()
    """Members that are missing."""


def flaws(schema: Mapping[str, Any], literal: Node) -> Iterator[Flaw]:
    """What is wrong with an input that is written out, at any depth."""
    waiting: list[tuple[object, Node, str]] = [(schema, literal, "")]
    found = 0
    while waiting and found < _MAX_FLAWS:
        given, node, path = waiting.pop()
        wanted, value = _single(schema, given), unwrapped(node)
        if wanted is None:
            continue
        if value.type == "array" and wanted.get("type") == "object":
            found += 1
            yield Flaw(value, f"{path or 'The input'} is an object, not an array", None)
        elif value.type == "array":
            elements = (each for each in value.named_children if each.type in ("object", "array"))
            waiting += ((wanted.get("items"), each, f"{path}[]") for each in elements)
        elif value.type == "object" and isinstance(properties := wanted.get("properties"), Mapping):
            members = _members(value)
            known = cast("Mapping[str, object]", properties)
            if (flaw := _incomplete(value, members, wanted, known, path)) is not None:
                found += 1
                yield flaw
            waiting += (
                (known[name], inner, f"{path}.{name}" if path else name)
                for name, (_, inner) in (members or _members(value, partly=True) or {}).items()
                if name in known and inner is not None
            )


def _incomplete(
    literal: Node,
    members: Mapping[str, tuple[Node, Node | None]] | None,
    wanted: Mapping[str, Any],
    known: Mapping[str, object],
    path: str,
) -> Flaw | None:
    """What an object lacks that it must have."""
    required = wanted.get("required")
    if members is None or not isinstance(required, list):
        return None
    missing = [
        name
        for name in cast("list[object]", required)
        if isinstance(name, str) and name not in members and not _has_default(known.get(name))
    ]
    if not missing:
        return None
    others = {name: key for name, (key, _) in members.items() if name not in known}
    node, hints = literal, list[str]()
    for name in missing:
        question = near(name, others) if others else None
        meant = question[len("Did you mean '") : -len("'?")] if question else None
        if meant is None and len(missing) == len(others) == 1:
            meant = next(iter(others))
        if meant is not None:
            node = others.pop(meant)
            hints.append(f"Did you mean {name!r}, where it says {meant!r}?")
    names = ", ".join(map(repr, missing))
    where = f" in {path}" if path else " in the input"
    return Flaw(
        node, f"{names} {'is' if len(missing) == 1 else 'are'} missing{where}", " ".join(hints) or None, tuple(missing)
    )


def _has_default(schema: object) -> bool:
    return isinstance(schema, Mapping) and "default" in schema


def _members(literal: Node, *, partly: bool = False) -> dict[str, tuple[Node, Node | None]] | None:
    """The members of an object by name: key and value. None: it may have others, unless `partly` known is enough."""
    members: dict[str, tuple[Node, Node | None]] = {}
    for member in literal.named_children:
        key, value = member.child_by_field_name("key"), member.child_by_field_name("value")
        if member.type == "shorthand_property_identifier":
            members[text_of(member)] = member, None
        elif member.type == "pair" and key is not None and key.type in _NAMES:
            if value is None or text_of(value) != "undefined":
                members[text_of(key).strip("\"'")] = key, value
        elif member.type != "comment" and not partly:
            return None
    return members


def _single(root: Mapping[str, Any], schema: object) -> Mapping[str, Any] | None:
    """The one schema that a value must be of if it is not null; None: there are several, or none is known."""
    for _ in range(_MAX_HOPS):
        if not isinstance(schema, Mapping):
            return None
        node = cast("Mapping[str, Any]", schema)
        members: object = node.get("anyOf") or node.get("oneOf")
        if isinstance(reference := node.get("$ref"), str) and "properties" not in node:
            schema = resolved(root, reference)
        elif isinstance(members, list):
            if "properties" in node:
                return None
            others = [each for each in cast("list[object]", members) if each != {"type": "null"}]
            schema = others[0] if len(others) == 1 else None
        else:
            return None if "allOf" in node or "if" in node else node
    return None
