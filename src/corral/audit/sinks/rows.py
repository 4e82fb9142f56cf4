"""Events as rows of a table: a column for each field, `arguments` as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import from_json

from corral.audit.events import AuditEvent
from corral.rendering.preview import json_text

INDEXED = ("time", "organization_id", "user_id", "execution_id", "tool", "outcome")
_LATER = ("decision", "decided_by")
"""Text columns missing in tables of earlier versions."""
_ARGUMENTS = AuditEvent._fields.index("arguments")
_CONSTRAINTS = {
    **dict.fromkeys(("time", "kind", "outcome", "duration_ms", "protocol"), " NOT NULL"),
    "id": " NOT NULL UNIQUE",
}


def columns(*, integer: str, real: str, json: str) -> str:
    """Returns column definitions with a database's types, without `position`. Other columns are text."""
    types = {"time": real, "duration_ms": real, "sequence": integer, "calls": integer, "arguments": json}
    return ", ".join(f"{name} {types.get(name, 'text')}{_CONSTRAINTS.get(name, '')}" for name in AuditEvent._fields)


def missing_columns(columns: Iterable[str]) -> list[str]:
    """Returns the columns missing in a table because an earlier version created it."""
    there = set(columns)
    return [column for column in _LATER if column not in there]


def selected(columns: Iterable[str]) -> str:
    """Returns the list of a SELECT for `event_of`, with NULL for columns missing in a table of an earlier version."""
    missing = missing_columns(columns)
    return ", ".join("NULL" if field in missing else field for field in AuditEvent._fields)


def row_of(event: AuditEvent) -> tuple[object, ...]:
    """Returns an event's values in the order of its fields."""
    arguments = None if event.arguments is None else json_text(event.arguments)
    return (*event[:_ARGUMENTS], arguments, *event[_ARGUMENTS + 1 :])


def event_of(row: Sequence[Any]) -> AuditEvent:
    """Inverse of `row_of`."""
    arguments = row[_ARGUMENTS]
    return AuditEvent._make(row)._replace(arguments=None if arguments is None else from_json(arguments))
