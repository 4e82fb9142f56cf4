"""TypeScript as models write it, made runnable."""

from __future__ import annotations

__all__: list[str] = []
