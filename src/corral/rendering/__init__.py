"""Values and texts as people and models see them: shortened, escaped, without secrets."""

from __future__ import annotations

__all__: list[str] = []
