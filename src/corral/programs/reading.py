"""Reads programs of any language."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from pydantic_core import from_json

from corral.errors import ProgramRejected
from corral.programs.python.prepare import TypedPython, prepare_python, typed_python
from corral.programs.typescript.prepare import TypedProgram, prepare_typescript, typed_typescript
from corral.texts import TypedText
from corral.types import Diagnostic, Language, Program

_PREPARE: Mapping[Language, Callable[[str, frozenset[str] | None], Program]] = {
    "typescript": prepare_typescript,
    "python": prepare_python,
}
_TYPED: Mapping[Language, Callable[[TypedText], TypedProgram | TypedPython]] = {
    "typescript": typed_typescript,
    "python": typed_python,
}
_REMEMBERED_CHARS = 8_000
_MOST_CHARS = 200_000
_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", re.DOTALL)
_KEYS = ("code", "program", "source", "script", "typescript", "javascript", "python")
_AROUND = ("arguments", "input", "parameters")
"""Members of a complete tool call that contain its arguments."""
_SIGNS = re.compile(r"\b(?:tools|codemode|await|return)\b|\bconsole\.log\b|\bprint\s*\(")
"""Words that occur in programs."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrt\"'`\\]))")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_ENTITY = re.compile(r"&(?:[lg]t|amp|quot|apos|#0*39|#x0*27);")


def read_program(source: str, language: Language, bound: frozenset[str] | None = None) -> Program:
    """Returns the program in a model's answer, prepared to run. Also runs in workers.

    `bound`: it is a notebook's cell, and these are the variables of earlier ones.

    Raises:
        ProgramRejected: the answer cannot be a program, or takes too long to parse.
    """
    read = _recently if len(source) <= _REMEMBERED_CHARS else _prepared
    return read(source, language, bound)


@lru_cache(maxsize=8)
def _recently(source: str, language: Language, bound: frozenset[str] | None) -> Program:
    """Prepares a program and caches it, for a run soon after `Corral.check`."""
    return _prepared(source, language, bound)


def _prepared(source: str, language: Language, bound: frozenset[str] | None) -> Program:
    """Prepares a program; decodes it first if only the decoded text is a program."""

    def prepare(source: str) -> Program:
        return _PREPARE[language](source, bound)

    inner = _program_in_json(source)
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
    for text in _decodings(source):
        with suppress(ProgramRejected):
            program = prepare(text)
            if program.typed is not None:
                return _decoded(program, "text with escapes")
    return None


def _decoded(program: Program, form: str) -> Program:
    message = f"The source was sent as {form} and was decoded. Send the program itself."
    remark = Diagnostic(severity="warning", code="encoded_source", message=message)
    return replace(program, diagnostics=(remark, *program.diagnostics))


def read_types(program: Program) -> TypedProgram | TypedPython | None:
    """Returns the tree of a prepared program, for a type checker; None if it does not parse completely.

    Raises:
        TooLongToParse: parsing takes longer than `parsing_within` allows.
    """
    return None if program.typed is None else _TYPED[program.language](program.typed)


def _program_in_json(source: str) -> str | None:
    """Returns the program in a JSON string or in a tool call's JSON object; None if the source is neither."""
    text = source.strip() if len(source) <= _MOST_CHARS else ""
    if text.startswith("`") and (fenced := _FENCED.fullmatch(source)) is not None:
        text = fenced[1].strip()
    if not (text.startswith(("{", '"')) and text.endswith(("}", '"'))):
        return None
    try:
        value: object = from_json(text)
    except ValueError:
        return None
    for _ in range(2):
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            value = next((members[key] for key in (*_KEYS, *_AROUND) if key in members), None)
    return value if isinstance(value, str) and _SIGNS.search(value) else None


def _decodings(source: str) -> Iterator[str]:
    """Yields decoded versions of a source that is not a program."""
    if len(source) > _MOST_CHARS:
        return
    if "\\n" in source and "\n" not in source.strip():
        yield _ESCAPE.sub(_unescaped, source)
    if _ENTITY.search(source):
        yield html.unescape(source)


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _ESCAPES.get(escape[2], escape[2])
