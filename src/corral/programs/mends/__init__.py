"""Mends of programs that the names of the tools make certain."""

from corral.programs.mends.names import ToolNames
from corral.programs.mends.reading import read_meant

__all__ = ["ToolNames", "read_meant"]
