"""Maps positions of a repaired text to the model's source."""

from __future__ import annotations

from typing import Literal

from corral.concurrency.cached_property import cached_property
from corral.errors import ProgramRejected
from corral.programs.python.repairs import LINE_END
from corral.texts import PositionMap, TextIndex, located
from corral.types import Diagnostic, Position


class Places:
    """Maps offsets of `text` to the source, through `positions`."""

    def __init__(self, text: bytes, positions: tuple[PositionMap, ...]) -> None:
        self._text = text
        self._positions = positions

    @cached_property
    def _index(self) -> TextIndex:
        return TextIndex(self._text, LINE_END)

    def at(self, offset: int) -> Position:
        """Returns the line and column of an offset in the source."""
        place = self._index.position(offset)
        return located(self._positions, place.line, place.column)

    def rejected(self, message: str, offset: int) -> ProgramRejected:
        """Returns an error at an offset; `{place}` in its message becomes the position."""
        place = self.at(offset)
        shown = message.replace("{place}", f"line {place.line}, column {place.column}")
        return ProgramRejected(shown, line=place.line, column=place.column)

    def remark(self, severity: Literal["warning", "info"], code: str, message: str, offset: int) -> Diagnostic:
        """Returns a diagnostic at an offset."""
        place = self.at(offset)
        return Diagnostic(severity=severity, code=code, message=message, line=place.line, column=place.column)
