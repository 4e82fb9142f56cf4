"""Language servers: where they are found, how they are started, and how they are asked."""

from __future__ import annotations

__all__: list[str] = []
