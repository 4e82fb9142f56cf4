"""The check of TypeScript programs."""

from __future__ import annotations

__all__: list[str] = []
