"""Replacements for names and methods from other languages and environments."""
