"""Checks of this machine: isolation in force, and working language servers."""
