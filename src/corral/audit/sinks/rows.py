"""Events as rows of a table: a column for each field, `arguments` as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import from_json

from corral.audit.events import AuditEvent
from corral.rendering.preview import json_text

INDEXED = ("time", "organization_id", "user_id", "execution_id", "tool", "outcome")
_LATER = ("decision", "decided_by")
"""Columns of text that tables of earlier versions lack."""
_ARGUMENTS = AuditEvent._fields.index("arguments")
_CONSTRAINTS = {
    **dict.fromkeys(("time", "kind", "outcome", "duration_ms", "protocol"), " NOT NULL"),
    "id": " NOT NULL UNIQUE",
}


def columns(*, integer: str, real: str, json: str) -> str:
    """The columns of a table with these types of the database; `position` is not among them. The rest is text."""
    types = {"time": real, "duration_ms": real, "sequence": integer, "calls": integer, "arguments": json}
    return ", ".join(f"{name} {types.get(name, 'text')}{_CONSTRAINTS.get(name, '')}" for name in AuditEvent._fields)


def missing_columns(columns: Iterable[str]) -> list[str]:
    """Columns that a table with these lacks because an earlier version made it."""
    there = set(columns)
    return [column for column in _LATER if column not in there]


def selected(columns: Iterable[str]) -> str:
    """The list of a SELECT for `event_of`; NULL stands for the columns that an earlier version did not make."""
    missing = missing_columns(columns)
    return ", ".join("NULL" if field in missing else field for field in AuditEvent._fields)


def row_of(event: AuditEvent) -> tuple[object, ...]:
    """The values of an event in the order of its fields."""
    arguments = None if event.arguments is None else json_text(event.arguments)
    return (*event[:_ARGUMENTS], arguments, *event[_ARGUMENTS + 1 :])


def event_of(row: Sequence[Any]) -> AuditEvent:
    """The inverse of `row_of`."""
    arguments = row[_ARGUMENTS]
    return AuditEvent._make(row)._replace(arguments=None if arguments is None else from_json(arguments))
