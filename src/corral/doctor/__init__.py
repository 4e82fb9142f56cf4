"""Checks of this machine: containment in force, and working language servers."""
