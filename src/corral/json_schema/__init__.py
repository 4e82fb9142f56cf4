"""JSON Schema: references, validation, its cost, and what is wrong with a value."""

from __future__ import annotations

__all__: list[str] = []
