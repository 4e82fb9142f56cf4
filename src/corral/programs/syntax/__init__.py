"""Parsing within a time budget, and the grammars of TypeScript and Python."""
