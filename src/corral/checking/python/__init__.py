"""The check of Python programs."""

from __future__ import annotations

__all__: list[str] = []
