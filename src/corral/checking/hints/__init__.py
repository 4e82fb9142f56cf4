"""Substitutes for names and methods that other languages and surroundings have."""

from __future__ import annotations

__all__: list[str] = []
