"""Checks of this machine: the isolation that is really in force, and the language servers that start."""
