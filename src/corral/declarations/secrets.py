"""Finds parameters that look as if a model were to pass a secret: a host should inject those itself."""

from __future__ import annotations

import re
from collections import deque

from corral.declarations.documents import Document, Scope, mapping, subschemas
from corral.types import JsonSchema

__all__ = ["secret_parameters"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = re.compile(
    "credentials?|jwt|pass(code|phrase|wd|word|words)|pwd|secrets?|authorization"
    "|(access|api|private|secret)key|(access|api|auth)token|clientsecret"
)
_SECRET_KEYS = re.compile("access|account|api|auth|encryption|license|master|private|secret|signing|ssh")
_SECRET_TOKENS = re.compile("access|api|auth|bearer|refresh|secret|session")
_CURSORS = re.compile("continuation|cursor|end|next|page|pagination|resume|start|sync")
_AFTERTHOUGHTS = re.compile("again|confirm|confirmation|repeat|value")


def secret_parameters(schema: JsonSchema | None) -> tuple[str, ...]:
    """Paths of the properties that look like secrets, such as `auth.api_key`, `servers[].password` or `hosts.*.token`.

    They are found behind references and in unions too, once each. A definition that is used in several places is
    looked through once, under the shortest path that leads to it.
    """
    if schema is None:
        return ()
    document = Document(schema)
    found: dict[str, None] = {}
    seen: set[int] = set()
    waiting: deque[tuple[object, Scope, str]] = deque([(document.root, Scope(), "")])
    while waiting:
        node, outer, path = waiting.popleft()
        if id(node) in seen:
            continue
        seen.add(id(node))
        scope = document.enter(node, outer)
        for target in document.references(node, scope):
            if target is not None:
                waiting.append((document.at(target.pointer), target.scope, path))
        for (keyword, *names), member in subschemas(node):
            inner = _path(path, keyword, *names)
            if inner is None:
                continue
            if keyword == "properties" and _looks_secret(names[0], mapping(member)):
                found[inner] = None
            else:
                waiting.append((member, scope, inner))
    return tuple(found)


def _path(outer: str, keyword: str, name: str = "") -> str | None:
    """Where a subschema's values are; None if it does not describe any."""
    match keyword:
        case "properties":
            return f"{outer}.{name}" if outer else name
        case "additionalProperties" | "patternProperties" | "unevaluatedProperties":
            return f"{outer}.*" if outer else "*"
        case "items" | "prefixItems" | "additionalItems" | "unevaluatedItems" | "contains":
            return f"{outer}[]"
        case "$defs" | "definitions" | "not" | "propertyNames" | "contentSchema":
            return None
        case _:
            return outer


def _looks_secret(name: str, keywords: dict[str, object]) -> bool:
    if keywords.get("type") in ("boolean", "integer", "number"):
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and _AFTERTHOUGHTS.fullmatch(words[-1]):
        words.pop()
    before, last = ("", "", *words)[-2:]
    match last:
        case "key" | "keys":
            is_named = _SECRET_KEYS.fullmatch(before)
        case "token":
            is_named = not _CURSORS.fullmatch(before)
        case "tokens":
            is_named = _SECRET_TOKENS.fullmatch(before)
        case _:
            is_named = _SECRETS.fullmatch(last)
    return bool(is_named) or keywords.get("format") == "password"
