"""Parsing within a budget of time, and the grammars of TypeScript and Python."""

from __future__ import annotations

__all__: list[str] = []
