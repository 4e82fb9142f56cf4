"""Programs in languages that a compiler of the host's turns into JavaScript."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple, cast

from pydantic_core import from_json

from corral.errors import ProgramRejected
from corral.programs.recover import Dialect, recover
from corral.texts import Position
from corral.types import Diagnostic, Program, ToolReference

__all__ = ["CompiledProgram", "Compiler", "SourceMap", "compiled_code", "with_source"]

_BASE64 = {letter: value for value, letter in enumerate(f"{ascii_uppercase}{ascii_lowercase}{digits}+/")}
_MAX_SEGMENTS = 500_000
_END = 1 << 31


class CompiledProgram(NamedTuple):
    """JavaScript, and its source map (version 3, as JSON) if the compiler has one.

    Without a map, places are those of the JavaScript.
    """

    code: str
    source_map: str | None = None


class Compiler(ABC):
    """Compiler of one language into JavaScript: statements, or a module with a default export."""

    labels: frozenset[str] = frozenset()
    """Names of the language on a Markdown fence, in lower case, besides that under which a Corral has the compiler."""

    @abstractmethod
    async def compile(self, source: str) -> CompiledProgram:
        """Compiles a program, which models write: it is hostile.

        Raises:
            ProgramRejected: it is not in this language, or too large; `line` and `column` are those of `source`.
        """

    async def open(self) -> None:
        """Called by each Corral that has the compiler, when it opens. Programs may be compiled without."""

    async def aclose(self) -> None:
        """Called by each of them when it closes."""


class _Segment(NamedTuple):
    column: int
    source_line: int
    source_column: int


@dataclass(frozen=True)
class SourceMap:
    """Takes a line and column of compiled code back to the source. Plain data, which can be pickled."""

    lines: tuple[tuple[_Segment, ...], ...]
    margin: int = 0
    """Columns that the source was moved to the left before it was compiled."""

    @classmethod
    def parse(cls, text: str, *, margin: int = 0) -> SourceMap:
        """Reads a source map of one source.

        Raises:
            ValueError: it is none, or too large.
        """
        found = from_json(text)
        mappings = cast("dict[str, object]", found).get("mappings") if isinstance(found, dict) else None
        if not isinstance(mappings, str):
            raise ValueError("it has no mappings")
        if len(mappings) > 8 * _MAX_SEGMENTS:
            raise ValueError("the source map is too large")
        lines: list[tuple[_Segment, ...]] = []
        source_line = source_column = 0
        for line in mappings.split(";"):
            segments: list[_Segment] = []
            column = 0
            for encoded in filter(None, line.split(",")):
                numbers = list(_numbers(encoded))
                column += numbers[0]
                if len(numbers) >= 4:
                    source_line += numbers[2]
                    source_column += numbers[3]
                    segments.append(_Segment(column, source_line, source_column))
            lines.append(tuple(segments))
        return cls(tuple(lines), margin)

    def __call__(self, line: int, column: int) -> Position:
        """The place in the source of a place in the code; added code belongs to what stands before it."""
        for number in range(min(line, len(self.lines)) - 1, -1, -1):
            segments = self.lines[number]
            before = column - 1 if number == line - 1 else _END
            index = bisect_right(segments, before, key=lambda each: each.column)
            if index or (segments and number == line - 1):
                found = segments[max(index - 1, 0)]
                return Position(line=found.source_line + 1, column=found.source_column + 1 + self.margin)
        return Position(line=1, column=1)


def _numbers(encoded: str) -> Iterator[int]:
    """Decodes the base64 VLQ of one segment."""
    number = shift = 0
    for letter in encoded:
        digit = _BASE64.get(letter)
        if digit is None or shift > 30:
            raise ValueError("the source map has a wrong mapping")
        number += (digit & 31) << shift
        shift += 5
        if not digit & 32:
            yield -(number >> 1) if number & 1 else number >> 1
            number = shift = 0


class _Found(NamedTuple):
    text: str
    margin: int


def _found(source: str, dialect: Dialect) -> _Found:
    """The program in a model's answer: what is in its fences, or all of it."""
    text = recover(source.replace("\r\n", "\n"), dialect).text.rstrip()
    dedented = textwrap.dedent(text)
    first = next((number for number, line in enumerate(dedented.split("\n")) if line.strip()), 0)
    return _Found(dedented, len(text.split("\n")[first]) - len(dedented.split("\n")[first]))


async def compiled_code(source: str, name: str, compiler: Compiler) -> tuple[str, SourceMap | None]:
    """Compiles the program in a model's answer. Returns the code, and the way from it back to the answer.

    Raises:
        ProgramRejected: the answer has no program of the language.
    """
    dialect = Dialect(
        labels=compiler.labels | {name}, label=name, parses=lambda text: "```" not in text and "~~~" not in text
    )
    found = _found(source, dialect)
    try:
        compiled = await compiler.compile(found.text)
    except ProgramRejected as error:
        column = None if error.column is None else error.column + found.margin
        raise ProgramRejected(str(error), line=error.line, column=column) from error
    if compiled.source_map is None:
        return compiled.code, None
    try:
        return compiled.code, SourceMap.parse(compiled.source_map, margin=found.margin)
    except ValueError as error:
        raise ProgramRejected(f"the compiler {name!r} gave a source map that cannot be read: {error}") from error


def with_source(program: Program, source: str, way: SourceMap | None) -> Program:
    """Returns a prepared program of compiled code with its source's text and places; it is not type-checked."""
    remarks = tuple(_placed(each, way) for each in program.diagnostics)
    references = program.references
    if references is not None and way is not None:
        references = references._replace(named=tuple(_moved(each, way) for each in references.named))
    return replace(
        program,
        source=source,
        positions=program.positions if way is None else (*program.positions, way),
        diagnostics=remarks,
        references=references,
        typed=None,
    )


def _moved(reference: ToolReference, way: SourceMap) -> ToolReference:
    place = way(reference.line, reference.column)
    return reference._replace(line=place.line, column=place.column)


def _placed(remark: Diagnostic, way: SourceMap | None) -> Diagnostic:
    if way is None or remark.line is None:
        return remark
    place = way(remark.line, remark.column or 1)
    return replace(remark, line=place.line, column=place.column)
