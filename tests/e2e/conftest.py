"""Fixtures of more than one file here."""

from tests.e2e.python_engines import cpython, python

__all__ = ["cpython", "python"]
