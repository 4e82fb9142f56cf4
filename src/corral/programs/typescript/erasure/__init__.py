"""TypeScript to JavaScript in place: types erased, run-time syntax lowered."""

from __future__ import annotations

__all__: list[str] = []
