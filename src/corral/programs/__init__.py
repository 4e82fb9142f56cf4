"""Source to Program: what a model wrote, made runnable."""

from corral.programs.strip import strip_types
from corral.programs.typescript import prepare_typescript

__all__ = ["prepare_typescript", "strip_types"]
