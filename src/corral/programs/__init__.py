"""Source to Program: what a model wrote, made runnable."""

from corral.programs.python import TypedPython, prepare_python, typed_python
from corral.programs.strip import strip_types
from corral.programs.typescript import TypedProgram, prepare_typescript, typed_typescript

__all__ = [
    "TypedProgram",
    "TypedPython",
    "prepare_python",
    "prepare_typescript",
    "strip_types",
    "typed_python",
    "typed_typescript",
]
