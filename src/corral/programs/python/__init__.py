"""Makes Python from models runnable."""

from corral.programs.python.prepare import TypedPython, prepare_python, typed_python

__all__ = ["TypedPython", "prepare_python", "typed_python"]
