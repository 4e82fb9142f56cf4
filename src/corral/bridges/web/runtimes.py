"""Paths of the runtimes that a bridge over HTTP serves."""

from __future__ import annotations

from collections.abc import Mapping

from corral.types import Language

RUNTIMES: Mapping[str, tuple[Language, str]] = {
    "/corral.mjs": ("typescript", "text/javascript; charset=utf-8"),
    "/corral_tools.py": ("python", "text/x-python; charset=utf-8"),
}
"""Language and media type of each path."""
