"""Events for tests, and reading them back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corral.audit import AuditEvent, AuditFilter, new_event_id, open_audit

__all__ = ["POISON", "event", "read"]

POISON: dict[str, Any] = {
    "a lone surrogate": {"tool": "\ud800"},
    "a NUL character": {"tool": "a\0b", "user_id": "\0", "arguments": {"\0": "\0"}},
    "a huge integer": {"sequence": 2**80, "arguments": {"n": 10**5000}},
    "numbers that are none": {"duration_ms": float("nan"), "time": float("inf"), "arguments": [float("-inf")]},
    "a long text": {"tool": "x" * 1_000_000},
    "control characters": {"tool": "\x1b[2J\r\n\u2028\u202e", "reason": "\x9b31m"},
    "any object": {"arguments": object()},
    "bytes": {"arguments": {"b": b"\xff\0"}},
    "deep nesting": {"arguments": eval("[" * 80 + "]" * 80)},  # noqa: S307 - brackets
}


def event(**fields: Any) -> AuditEvent:
    """A call's event, with these fields."""
    now = time.time()
    usual: dict[str, Any] = {"id": new_event_id(now), "time": now, "kind": "call", "outcome": "succeeded"}
    usual |= {"duration_ms": 1.5, "protocol": "pipe", "tool": "add"}
    usual.update(fields)
    return AuditEvent(**usual)


async def read(source: str | Path, limit: int = 1_000_000, **wanted: Any) -> Sequence[AuditEvent]:
    """The events of a log."""
    reader = open_audit(str(source))
    try:
        return await reader.read(AuditFilter(**wanted), limit)
    finally:
        await reader.aclose()
