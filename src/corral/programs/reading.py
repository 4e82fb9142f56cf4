"""Reading programs of any language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from corral.programs.python import TypedPython, prepare_python, typed_python
from corral.programs.typescript.prepare import TypedProgram, prepare_typescript, typed_typescript
from corral.texts import TypedText
from corral.types import Language, Program

__all__ = ["read_program", "read_types"]

_PREPARE: Mapping[Language, Callable[[str], Program]] = {"typescript": prepare_typescript, "python": prepare_python}
_TYPED: Mapping[Language, Callable[[TypedText], TypedProgram | TypedPython]] = {
    "typescript": typed_typescript,
    "python": typed_python,
}
_REMEMBERED_CHARS = 8_000


def read_program(source: str, language: Language) -> Program:
    """Returns the program in a model's answer, prepared to run. A worker can call it too.

    Raises:
        ProgramRejected: it cannot be a program, or takes too long to parse.
    """
    return _recently(source, language) if len(source) <= _REMEMBERED_CHARS else _PREPARE[language](source)


@lru_cache(maxsize=8)
def _recently(source: str, language: Language) -> Program:
    """Prepares a program that may soon be asked for again, as after `Corral.check`."""
    return _PREPARE[language](source)


def read_types(program: Program) -> TypedProgram | TypedPython | None:
    """Returns the tree of a program that was read, for a type checker; None if it does not parse as a whole.

    Raises:
        TooLongToParse: parsing takes longer than `parsing_within` allows.
    """
    return None if program.typed is None else _TYPED[program.language](program.typed)
