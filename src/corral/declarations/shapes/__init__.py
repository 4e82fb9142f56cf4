"""JSON Schema read into shapes: one representation from which declarations in any language are printed."""

from __future__ import annotations

__all__: list[str] = []
