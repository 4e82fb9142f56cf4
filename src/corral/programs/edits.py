"""Edits on a source text that keep its lines, and the way back from what runs to what was written.

No edit but `insert` adds or removes a line terminator, so as a rule only columns move. Offsets are in bytes of UTF-8,
as the parser counts; columns are in UTF-16 units, as engines count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, fields
from typing import NamedTuple

from corral.concurrency.cached_property import cached_property
from corral.types import Position

__all__ = ["Edits", "PositionMap", "TextIndex", "blanked", "position_at"]

_LINE_END = rb"\r\n|\r|\n|\xe2\x80[\xa8\xa9]"
_WIDE = re.compile(rb"[\xc0-\xff][\x80-\xbf]*")
_ASTRAL = re.compile(r"[\U00010000-\U0010ffff]")
_PRINTED = re.compile(r"[^\r\n\u2028\u2029]")

_CLOSING, _OPENING, _REPLACING = range(3)
"""Order of edits at one offset: what ends there, what begins there, then what takes the place of the text."""


class _Edit(NamedTuple):
    start: int
    rank: int
    nesting: int
    order: int
    end: int
    text: bytes


class _Piece(NamedTuple):
    """A changed stretch of the source, and the stretch of the output that replaces it."""

    output_start: int
    output_end: int
    source_start: int
    source_end: int


class TextIndex:
    """Reads a text once; from then on lines, columns and offsets are found by bisection, however long the lines."""

    def __init__(self, text: bytes, line_end: bytes = _LINE_END) -> None:
        self._length = len(text)
        self._lines = [0, *(found.end() for found in re.finditer(line_end, text))]
        # where each character of several bytes ends, in bytes and in UTF-16 units
        self._bytes, self._units = [0], [0]
        for found in () if text.isascii() else _WIDE.finditer(text):
            start, end = found.span()
            self._units.append(self.units(start) + (2 if end - start == 4 else 1))
            self._bytes.append(end)

    def units(self, offset: int) -> int:
        """The number of UTF-16 units before an offset."""
        wide = bisect_right(self._bytes, offset) - 1
        return self._units[wide] + offset - self._bytes[wide]

    def offset_of(self, units: int) -> int:
        """The offset that so many UTF-16 units stand before."""
        wide = bisect_right(self._units, units) - 1
        return self._bytes[wide] + units - self._units[wide]

    def position(self, offset: int) -> Position:
        """The line and column of an offset."""
        line = bisect_right(self._lines, offset)
        return Position(line=line, column=self.units(offset) - self.units(self._lines[line - 1]) + 1)

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and column, or the end of what is too short to have it."""
        if line > len(self._lines):
            return self._length
        start = self._lines[max(line, 1) - 1]
        end = self._lines[line] if line < len(self._lines) else self._length
        return min(self.offset_of(self.units(start) + max(column - 1, 0)), end)


class Edits:
    """Edits collected on one text. Of two that overlap, the one that starts first wins, or came first.

    `line_end` is a regular expression for what ends a line: by default for what does in JavaScript.
    """

    def __init__(self, text: bytes, line_end: bytes = _LINE_END) -> None:
        self.text = text
        self._line_end = line_end
        self._edits: list[_Edit] = []

    def copy(self) -> Edits:
        """The same edits, to which others may be added."""
        copied = Edits(self.text, self._line_end)
        copied._edits = list(self._edits)
        return copied

    def replace(self, start: int, end: int, new: bytes) -> None:
        """Puts `new` in the place of a stretch. Neither may contain a line terminator."""
        self._edits.append(_Edit(start, _REPLACING, 0, len(self._edits), end, new))

    def wrap(self, start: int, end: int, before: bytes, after: bytes) -> None:
        """Puts text around a stretch. Of two wraps of one stretch the later one is outside."""
        order = len(self._edits)
        self._edits.append(_Edit(start, _OPENING, -end, -order, start, before))
        self._edits.append(_Edit(end, _CLOSING, -start, order, end, after))

    def insert(self, at: int, new: bytes) -> None:
        """Puts `new` before everything that begins at an offset. It may hold whole lines."""
        self._edits.append(_Edit(at, _OPENING, -len(self.text) - 1, len(self._edits), at, new))

    def blank(self, start: int, end: int, *, first: bytes = b"", last: bytes = b"") -> None:
        """Puts spaces in the place of a stretch, its lines kept; `first` and `last` stand at its two ends."""
        spaces = blanked(self.text[start:end].decode()).encode()
        self.replace(start, end, first + spaces[len(first) : len(spaces) - len(last)] + last)

    def replaced(self) -> list[tuple[int, int]]:
        """The stretches that are replaced or blanked, sorted and apart."""
        stretches: list[tuple[int, int]] = []
        for start, end in sorted((edit.start, edit.end) for edit in self._edits if edit.start < edit.end):
            if stretches and start < stretches[-1][1]:
                stretches[-1] = (stretches[-1][0], max(end, stretches[-1][1]))
            else:
                stretches.append((start, end))
        return stretches

    def apply(self, prefix: bytes = b"", suffix: bytes = b"") -> tuple[bytes, PositionMap]:
        """The edited text between `prefix` and `suffix`, and the map back from it."""
        output, length, taken = [prefix], len(prefix), 0
        pieces: list[_Piece] = []
        for edit in sorted(self._edits):
            if edit.start < taken:
                continue
            kept = self.text[taken : edit.start]
            output += (kept, edit.text)
            length += len(kept)
            pieces.append(_Piece(length, length + len(edit.text), edit.start, edit.end))
            length += len(edit.text)
            taken = edit.end
        output += (self.text[taken:], suffix)
        edited = b"".join(output)
        return edited, PositionMap(self.text, edited, len(prefix), tuple(pieces), self._line_end)


@dataclass(frozen=True)
class PositionMap:
    """Takes a line and column of an edited text back to the source. It can be pickled."""

    source: bytes
    output: bytes
    prefix_length: int
    pieces: tuple[_Piece, ...]
    line_end: bytes = _LINE_END

    def __call__(self, line: int, column: int) -> Position:
        """The place in the source; what lies in added text belongs to the source next to it."""
        return self._source.position(self.source_offset(self._output.offset(line, column)))

    def __getstate__(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def output_offset(self, offset: int) -> int | None:
        """The offset in the output of a byte of the source; None if the byte was replaced."""
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
        """The offset in the source that a byte of the output comes from."""
        index = bisect_right(self.pieces, offset, key=lambda piece: piece.output_start) - 1
        if index < 0:
            return max(offset - self.prefix_length, 0)
        piece = self.pieces[index]
        if offset < piece.output_end:
            into = self._output.units(offset) - self._output.units(piece.output_start)
            return min(self._source.offset_of(self._source.units(piece.source_start) + into), piece.source_end)
        return min(piece.source_end + offset - piece.output_end, len(self.source))


def blanked(text: str) -> str:
    """As many spaces as `text` has UTF-16 units, its line terminators kept."""
    return _PRINTED.sub(" ", text if text.isascii() else _ASTRAL.sub("  ", text))


def position_at(text: bytes, offset: int) -> Position:
    """The line and column of an offset. For many offsets of one text, keep a TextIndex."""
    return TextIndex(text[:offset]).position(offset)
