"""Fixtures of more than one file here."""

from tests.e2e.clocks import lasting_grace, wall_clock
from tests.e2e.python_engines import cpython, python

__all__ = ["cpython", "lasting_grace", "python", "wall_clock"]
