"""Turns a model's source into a runnable Program."""

from corral.programs.cells import EarlierCell, earlier_cell, joined, without_old_texts
from corral.programs.python.prepare import TypedPython, prepare_python, typed_python
from corral.programs.reading import read_program, read_types
from corral.programs.syntax.parsing import TooLongToParse, parsing_within
from corral.programs.typescript.prepare import TypedProgram, prepare_typescript, typed_typescript
from corral.programs.typescript.strip import strip_types

__all__ = [
    "EarlierCell",
    "TooLongToParse",
    "TypedProgram",
    "TypedPython",
    "earlier_cell",
    "joined",
    "parsing_within",
    "prepare_python",
    "prepare_typescript",
    "read_program",
    "read_types",
    "strip_types",
    "typed_python",
    "typed_typescript",
    "without_old_texts",
]
