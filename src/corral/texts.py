"""Program texts: edits, positions, and maps from the code that runs back to the source.

Offsets are in bytes of UTF-8, as the parser counts; columns are in UTF-16 units, as engines count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from string import ascii_lowercase, ascii_uppercase, digits
from typing import NamedTuple, TypeAlias, cast

from pydantic_core import from_json

from corral.concurrency.cached_property import cached_property

LINE_END = rb"\r\n|\r|\n|\xe2\x80[\xa8\xa9]"
"""Regular expression for JavaScript's line terminators."""
_BASE64 = {letter: value for value, letter in enumerate(f"{ascii_uppercase}{ascii_lowercase}{digits}+/")}
_MAX_MAPPINGS = 1_000_000
_MAX_LINES = 100_000
_SEGMENT = 3
_END = 1 << 31
_WIDE = re.compile(rb"[\xc0-\xff][\x80-\xbf]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Position in the model's source. Lines and columns count from 1, columns in UTF-16 units."""

    line: int
    column: int


class Edit(NamedTuple):
    """One edit of a text: `text` replaces the span from `start` to `end`."""

    start: int
    rank: int
    nesting: int
    order: int
    end: int
    text: bytes


class Piece(NamedTuple):
    """Changed span of the source, and the span of the output that replaces it."""

    output_start: int
    output_end: int
    source_start: int
    source_end: int


class TextIndex:
    """Index of a text, built in one pass. Lines, columns and offsets are found by bisection."""

    def __init__(self, text: bytes, line_end: bytes = LINE_END) -> None:
        self._length = len(text)
        self._lines = [0, *(match.end() for match in re.finditer(line_end, text))]
        # ends of the multi-byte characters, in bytes and in UTF-16 units
        self._bytes, self._units = [0], [0]
        for match in () if text.isascii() else _WIDE.finditer(text):
            start, end = match.span()
            self._units.append(self.units(start) + (2 if end - start == 4 else 1))
            self._bytes.append(end)

    def units(self, offset: int) -> int:
        """Returns the number of UTF-16 units before an offset."""
        wide = bisect_right(self._bytes, offset) - 1
        return self._units[wide] + offset - self._bytes[wide]

    def offset_of(self, units: int) -> int:
        """Returns the offset of a position in UTF-16 units."""
        wide = bisect_right(self._units, units) - 1
        return self._bytes[wide] + units - self._units[wide]

    def position(self, offset: int) -> Position:
        """Returns the line and column of an offset."""
        line = bisect_right(self._lines, offset)
        return Position(line=line, column=self.units(offset) - self.units(self._lines[line - 1]) + 1)

    def offset(self, line: int, column: int) -> int:
        """Returns the offset of a line and column. Beyond the end of a line or of the text, returns that end."""
        if line > len(self._lines):
            return self._length
        start = self._lines[max(line, 1) - 1]
        end = self._lines[line] if line < len(self._lines) else self._length
        return min(self.offset_of(self.units(start) + max(column - 1, 0)), end)


@dataclass(frozen=True)
class PositionMap:
    """Maps a line and column of an edited text back to the source. It can be pickled."""

    source: bytes
    output: bytes
    prefix_length: int
    pieces: tuple[Piece, ...]
    line_end: bytes = LINE_END

    def __call__(self, line: int, column: int) -> Position:
        """Returns the position in the source. A position in added text maps to the source next to it."""
        return self._source.position(self.source_offset(self._output.offset(line, column)))

    def __getstate__(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def output_offset(self, offset: int) -> int | None:
        """Returns the output offset of a byte of the source; None if the byte was replaced."""
        index = bisect_right(self.pieces, offset, key=lambda piece: piece.source_start) - 1
        if index < 0:
            return self.prefix_length + offset
        piece = self.pieces[index]
        return piece.output_end + offset - piece.source_end if offset >= piece.source_end else None

    @cached_property
    def _source(self) -> TextIndex:
        return TextIndex(self.source, self.line_end)

    @cached_property
    def _output(self) -> TextIndex:
        return TextIndex(self.output, self.line_end)

    def source_offset(self, offset: int) -> int:
        """Returns the source offset of a byte of the output."""
        index = bisect_right(self.pieces, offset, key=lambda piece: piece.output_start) - 1
        if index < 0:
            return max(offset - self.prefix_length, 0)
        piece = self.pieces[index]
        if offset < piece.output_end:
            into = self._output.units(offset) - self._output.units(piece.output_start)
            return min(self._source.offset_of(self._source.units(piece.source_start) + into), piece.source_end)
        return min(piece.source_end + offset - piece.output_end, len(self.source))


@dataclass(frozen=True)
class SourceMap:
    """Maps a line and column of compiled code back to the source. It can be pickled."""

    lines: tuple[tuple[int, ...], ...]
    """Segments of all lines of the code, concatenated: a column, and the source's line and column, from 0."""
    margin: int = 0
    """Columns of indentation removed from the source before it was compiled."""

    def __call__(self, line: int, column: int) -> Position:
        """Returns the source position of a position in the code. Added code maps to the code before it."""
        for number in range(min(line, len(self.lines)) - 1, -1, -1):
            segments = self.lines[number]
            before = column - 1 if number == line - 1 else _END
            index = bisect_right(range(0, len(segments), _SEGMENT), before, key=lambda start: segments[start])
            if index or (segments and number == line - 1):
                _, source_line, source_column = segments[max(index - 1, 0) * _SEGMENT :][:_SEGMENT]
                return Position(line=source_line + 1, column=source_column + 1 + self.margin)
        return Position(line=1, column=1)


def read_source_map(text: str, margin: int = 0) -> SourceMap:
    """Reads a source map that has a single source.

    Raises:
        ValueError: it is malformed or too large.
    """
    document = from_json(text)
    mappings = cast("dict[str, object]", document).get("mappings") if isinstance(document, dict) else None
    if not isinstance(mappings, str):
        raise ValueError("the source map has no mappings")
    if len(mappings) > _MAX_MAPPINGS or mappings.count(";") >= _MAX_LINES:
        raise ValueError("the source map is too large")
    lines: list[tuple[int, ...]] = []
    source_line = source_column = 0
    for line in mappings.split(";"):
        segments: list[int] = []
        column = 0
        for encoded in filter(None, line.split(",")):
            numbers = list(_numbers(encoded))
            column += numbers[0]
            if len(numbers) >= 4:
                source_line += numbers[2]
                source_column += numbers[3]
                segments += (column, source_line, source_column)
        lines.append(tuple(segments))
    return SourceMap(tuple(lines), margin)


def _numbers(encoded: str) -> Iterator[int]:
    """Decodes the base64 VLQ numbers of one segment."""
    number = shift = 0
    for letter in encoded:
        digit = _BASE64.get(letter)
        if digit is None or shift > 30:
            raise ValueError("the source map has an invalid mapping")
        number += (digit & 31) << shift
        shift += 5
        if not digit & 32:
            yield -(number >> 1) if number & 1 else number >> 1
            number = shift = 0


Placing: TypeAlias = PositionMap | SourceMap
"""Function that maps a line and column of an edited text back to the text before the edit."""


def located(positions: Iterable[Placing], line: int, column: int) -> Position:
    """Maps a line and column back through several edits, the last edit first."""
    place = Position(line=line, column=column)
    for each in positions:
        place = each(place.line, place.column)
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedText:
    """Program for a type checker: as recovered, with its types, without the code that captures its result.

    Offsets and spans are in bytes of `text`.
    """

    text: bytes
    parsed: bytes
    """Text to parse: `text`, changed where the parser would misread it. Offsets are the same."""
    edits: tuple[Edit, ...]
    """Edits that the checker always needs."""
    entered: tuple[tuple[int, int], ...]
    """Spans of the program's own functions that receive the tools as arguments."""
    positions: tuple[PositionMap, ...] = ()
    """Maps from `text` back to the source, the last change first."""
    types: tuple[tuple[int, int], ...] = ()
    """Spans of type annotations, which are removed before the program runs."""
    free: tuple[str, ...] = ()
    """Classes that a Python program imports from the tools, or uses outside annotations without binding them, as
    `tools.Name`."""
    commonjs: bool = False
    """True if the program exports in the style of CommonJS."""
    nodes: int = 0
    """Number of syntax tree nodes: the cost of reading it."""
    start: int = -1
    """Offset at which a notebook's cell begins, behind earlier ones; -1 for a program that is no cell."""
    unknown: tuple[str, ...] = ()
    """Variables of earlier cells that are not in `text`."""
