"""Reading a program of either language, which a worker can do too."""

from __future__ import annotations

from corral.programs.python import prepare_python
from corral.programs.typescript.prepare import prepare_typescript
from corral.types import Language, Program

__all__ = ["read_program"]


def read_program(source: str, language: Language) -> Program:
    """The program in a model's answer.

    Raises:
        ProgramRejected: it cannot be a program, or takes too long to parse.
    """
    return prepare_python(source) if language == "python" else prepare_typescript(source)
