"""Places of a repaired text, in the source as the model wrote it."""

from __future__ import annotations

from typing import Literal

from corral.concurrency.cached_property import cached_property
from corral.errors import ProgramRejected
from corral.programs.python.repairs import LINE_END
from corral.texts import PositionMap, TextIndex, located
from corral.types import Diagnostic, Position


class Places:
    """Finds offsets of `text` in the source; `positions` are the way back from the one to the other."""

    def __init__(self, text: bytes, positions: tuple[PositionMap, ...]) -> None:
        self._text = text
        self._positions = positions

    @cached_property
    def _index(self) -> TextIndex:
        return TextIndex(self._text, LINE_END)

    def at(self, offset: int) -> Position:
        """The line and column of an offset."""
        place = self._index.position(offset)
        return located(self._positions, place.line, place.column)

    def rejected(self, message: str, offset: int) -> ProgramRejected:
        """An error at an offset; `{place}` in its message is where that is."""
        place = self.at(offset)
        shown = message.replace("{place}", f"line {place.line}, column {place.column}")
        return ProgramRejected(shown, line=place.line, column=place.column)

    def remark(self, severity: Literal["warning", "info"], code: str, message: str, offset: int) -> Diagnostic:
        """A remark on what stands at an offset."""
        place = self.at(offset)
        return Diagnostic(severity=severity, code=code, message=message, line=place.line, column=place.column)
