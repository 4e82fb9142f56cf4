"""What tools do that are only looked for."""

from __future__ import annotations

from typing import Any

__all__ = ["anything"]


def anything(input: Any) -> Any:
    return input
