"""Finds parameters with which a model would pass a secret. Hosts should inject secrets themselves."""

from __future__ import annotations

from collections import deque

from pydantic_core import to_json

from corral.rendering.secret_names import may_name_secrets, names_a_secret
from corral.tools.json_schema.indexed_schema import IndexedSchema, ReferenceScope
from corral.tools.json_schema.keywords import mapping, subschemas
from corral.types import JsonSchema


def secret_parameters(schema: JsonSchema | None) -> tuple[str, ...]:
    """Returns paths of properties that look like secrets, such as `auth.api_key`, `servers[].password`,
    `hosts.*.token`.

    Also searches references and unions. A definition that is used several times is searched once, under its shortest
    path.
    """
    if schema is None or not _may_name_secrets(schema):
        return ()
    document = IndexedSchema(schema)
    paths: dict[str, None] = {}
    seen: set[int] = set()
    waiting: deque[tuple[object, ReferenceScope, str]] = deque([(document.root, ReferenceScope(), "")])
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
                paths[inner] = None
            else:
                waiting.append((member, scope, inner))
    return tuple(paths)


def _may_name_secrets(schema: JsonSchema) -> bool:
    """True if the schema contains a name or format of a secret anywhere. Most schemas do not, and need no closer
    look."""
    try:
        return may_name_secrets(to_json(schema))
    except ValueError:  # the schema is nested too deeply
        return True


def _path(outer: str, keyword: str, name: str = "") -> str | None:
    """Returns the path of a subschema's values; None if it describes no values."""
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
    return names_a_secret(name) or keywords.get("format") == "password"
