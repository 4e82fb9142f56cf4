"""The check of Python programs."""
