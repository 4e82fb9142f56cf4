"""Reading programs of any language."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from corral.programs.python import TypedPython, prepare_python, typed_python
from corral.programs.typescript.prepare import TypedProgram, prepare_typescript, typed_typescript
from corral.types import Language, Program

__all__ = ["read_program", "read_types"]

_PREPARE: Mapping[Language, Callable[[str], Program]] = {"typescript": prepare_typescript, "python": prepare_python}
_TYPED: Mapping[Language, Callable[[str], TypedProgram | TypedPython | None]] = {
    "typescript": typed_typescript,
    "python": typed_python,
}


def read_program(source: str, language: Language) -> Program:
    """Returns the program in a model's answer, prepared to run. A worker can call it too.

    Raises:
        ProgramRejected: it cannot be a program, or takes too long to parse.
    """
    return _PREPARE[language](source)


def read_types(source: str, language: Language) -> TypedProgram | TypedPython | None:
    """Returns the program as a type checker reads it; None if it does not parse.

    Raises:
        ProgramRejected: as `read_program`.
    """
    return _TYPED[language](source)
