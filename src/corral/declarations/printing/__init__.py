"""Shapes printed as TypeScript and as Python, whole and shortened."""

from __future__ import annotations

__all__: list[str] = []
