"""Reading programs of any language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from corral.errors import ProgramRejected
from corral.programs.encoded import decodings, program_in_json
from corral.programs.python import TypedPython, prepare_python, typed_python
from corral.programs.typescript.prepare import TypedProgram, prepare_typescript, typed_typescript
from corral.texts import TypedText
from corral.types import Diagnostic, Language, Program

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
    return _recently(source, language) if len(source) <= _REMEMBERED_CHARS else _prepared(source, language)


@lru_cache(maxsize=8)
def _recently(source: str, language: Language) -> Program:
    """Prepares a program that may soon be asked for again, as after `Corral.check`."""
    return _prepared(source, language)


def _prepared(source: str, language: Language) -> Program:
    """Prepares a program, decoded if it makes sense only so."""
    prepare = _PREPARE[language]
    inner = program_in_json(source)
    if inner is not None:
        return _decoded(prepare(inner), "a JSON text")
    try:
        program = prepare(source)
    except ProgramRejected:
        if (decoded := _first_that_parses(source, prepare)) is None:
            raise
        return decoded
    return program if program.typed is not None else _first_that_parses(source, prepare) or program


def _first_that_parses(source: str, prepare: Callable[[str], Program]) -> Program | None:
    for text in decodings(source):
        with suppress(ProgramRejected):
            program = prepare(text)
            if program.typed is not None:
                return _decoded(program, "text with escapes")
    return None


def _decoded(program: Program, form: str) -> Program:
    message = f"The source came as {form}, and was decoded. Send the program as it is."
    remark = Diagnostic(severity="warning", code="encoded_source", message=message)
    return replace(program, diagnostics=(remark, *program.diagnostics))


def read_types(program: Program) -> TypedProgram | TypedPython | None:
    """Returns the tree of a program that was read, for a type checker; None if it does not parse as a whole.

    Raises:
        TooLongToParse: parsing takes longer than `parsing_within` allows.
    """
    return None if program.typed is None else _TYPED[program.language](program.typed)
