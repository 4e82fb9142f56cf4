"""Repairs of programs that are certain given the names of the tools."""
