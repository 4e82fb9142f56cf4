"""Check of Python programs."""
