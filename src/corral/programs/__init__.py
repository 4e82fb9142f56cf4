"""Source to Program: what a model wrote, made runnable."""

from corral.programs.python import prepare_python
from corral.programs.strip import strip_types
from corral.programs.typescript import prepare_typescript

__all__ = ["prepare_python", "prepare_typescript", "strip_types"]
