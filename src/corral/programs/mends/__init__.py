"""Repairs of programs that are certain given the names of the tools."""

from corral.programs.mends.names import ToolNames
from corral.programs.mends.reading import read_meant

__all__ = ["ToolNames", "read_meant"]
