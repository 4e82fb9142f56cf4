"""The commands of `corral`, one file each."""

from __future__ import annotations

__all__: list[str] = []
