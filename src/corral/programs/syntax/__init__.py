"""Parsing within a budget of time, and the grammars of TypeScript and Python."""
