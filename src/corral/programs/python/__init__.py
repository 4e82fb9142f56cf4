"""Python as models write it, made runnable."""

from corral.programs.python.prepare import prepare_python

__all__ = ["prepare_python"]
