"""Edits on a source text that preserve its lines: only `insert` can add line terminators."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, TypeVar

from corral.concurrency.cached_property import cached_property
from corral.errors import ProgramRejected
from corral.texts import LINE_END, Edit, Piece, Position, PositionMap, TextIndex, located
from corral.types import Diagnostic, Program, ToolReference

E = TypeVar("E", bound=ProgramRejected)

_ASTRAL = re.compile(r"[\U00010000-\U0010ffff]")
_PRINTED = re.compile(r"[^\r\n\u2028\u2029]")

_CLOSING, _OPENING, _REPLACING = range(3)
"""Order of edits at one offset: closing text, opening text, then replacements."""


class NotAwaited(ProgramRejected):
    """A call is not awaited, or an `await` is not in an async function."""

    program: Program | None = None
    """The program as it would run without a repair."""


class Edits:
    """Edits collected on one text. Of two that overlap, the one that starts first wins, then the older one.

    `line_end` is a regular expression for line terminators; the default is JavaScript's.
    """

    def __init__(self, text: bytes, line_end: bytes = LINE_END, made: Iterable[Edit] = ()) -> None:
        self.text = text
        self._line_end = line_end
        self._edits = list(made)

    @property
    def made(self) -> tuple[Edit, ...]:
        """The edits as data, in the order of their creation."""
        return tuple(self._edits)

    @property
    def _order(self) -> int:
        return abs(self._edits[-1].order) + 1 if self._edits else 0

    def copy(self) -> Edits:
        return Edits(self.text, self._line_end, self._edits)

    def replace(self, start: int, end: int, new: bytes) -> None:
        """Replaces a range with `new`. Neither may contain a line terminator."""
        self._edits.append(Edit(start, _REPLACING, 0, self._order, end, new))

    def wrap(self, start: int, end: int, before: bytes, after: bytes) -> None:
        """Puts text around a range. Of two wraps of the same range, the later one is outside."""
        order = self._order
        self._edits.append(Edit(start, _OPENING, -end, -order, start, before))
        self._edits.append(Edit(end, _CLOSING, -start, order, end, after))

    def insert(self, at: int, new: bytes) -> None:
        """Inserts `new` before everything that begins at an offset. It may contain whole lines."""
        self._edits.append(Edit(at, _OPENING, -len(self.text) - 1, self._order, at, new))

    def blank(self, start: int, end: int, *, first: bytes = b"", last: bytes = b"") -> None:
        """Replaces a range with spaces but keeps its lines. `first` and `last` are written at its ends."""
        spaces = blanked(self.text[start:end].decode()).encode()
        self.replace(start, end, first + spaces[len(first) : len(spaces) - len(last)] + last)

    def replaced(self) -> list[tuple[int, int]]:
        """Returns the replaced and blanked ranges, sorted and disjoint."""
        stretches: list[tuple[int, int]] = []
        for start, end in sorted((edit.start, edit.end) for edit in self._edits if edit.start < edit.end):
            if stretches and start < stretches[-1][1]:
                stretches[-1] = (stretches[-1][0], max(end, stretches[-1][1]))
            else:
                stretches.append((start, end))
        return stretches

    def apply(self, prefix: bytes = b"", suffix: bytes = b"") -> tuple[bytes, PositionMap]:
        """Returns the edited text between `prefix` and `suffix`, and the map back to the source."""
        output, length, taken = [prefix], len(prefix), 0
        pieces: list[Piece] = []
        for edit in sorted(self._edits):
            if edit.start < taken:
                continue
            kept = self.text[taken : edit.start]
            output += (kept, edit.text)
            length += len(kept)
            pieces.append(Piece(length, length + len(edit.text), edit.start, edit.end))
            length += len(edit.text)
            taken = edit.end
        output += (self.text[taken:], suffix)
        edited = b"".join(output)
        return edited, PositionMap(self.text, edited, len(prefix), tuple(pieces), self._line_end)


def blanked(text: str) -> str:
    """Replaces each UTF-16 unit of `text` with a space, keeping line terminators."""
    return _PRINTED.sub(" ", text if text.isascii() else _ASTRAL.sub("  ", text))


class Places:
    """Maps offsets of `text` to the source, through `positions`."""

    def __init__(self, text: bytes, positions: tuple[PositionMap, ...] = (), line_end: bytes = LINE_END) -> None:
        self._text = text
        self._positions = positions
        self._line_end = line_end

    @cached_property
    def _index(self) -> TextIndex:
        return TextIndex(self._text, self._line_end)

    def at(self, offset: int) -> Position:
        """Returns the line and column of an offset in the source."""
        place = self._index.position(offset)
        return located(self._positions, place.line, place.column)

    def not_awaited(self, message: str, offset: int) -> NotAwaited:
        """Returns an error as `rejected` does."""
        return self.rejected(message, offset, NotAwaited)

    def rejected(self, message: str, offset: int, kind: type[E] = ProgramRejected) -> E:
        """Returns an error at an offset; `{place}` in its message becomes the position."""
        place = self.at(offset)
        shown = message.replace("{place}", f"line {place.line}, column {place.column}")
        return kind(shown, line=place.line, column=place.column)

    def remark(self, severity: Literal["warning", "info"], code: str, message: str, offset: int) -> Diagnostic:
        place = self.at(offset)
        return Diagnostic(severity=severity, code=code, message=message, line=place.line, column=place.column)


def relocated(program: Program, place: Callable[[int, int], Position]) -> Program:
    """Returns the program with its diagnostics and references moved; `place` maps a line and column."""
    references = program.references
    if references is not None:
        named = ((each.path, place(each.line, each.column)) for each in references.named)
        references = references._replace(named=tuple(ToolReference(path, at.line, at.column) for path, at in named))
    placed = (
        each if each.line is None else moved(each, place(each.line, each.column or 1)) for each in program.diagnostics
    )
    return replace(program, diagnostics=tuple(placed), references=references)


def moved(remark: Diagnostic, place: Position) -> Diagnostic:
    return replace(remark, line=place.line, column=place.column)
