"""Text that a language server reads, with its positions mapped to the program."""

from __future__ import annotations

from corral.checking.servers.workspace import Span
from corral.texts import PositionMap, TextIndex

LINE_END = rb"\r\n|\r|\n"
"""Line ends in the Language Server Protocol."""


class CheckedText:
    """Text of a program with edits for the server. Offsets are in UTF-8 bytes of the original text."""

    def __init__(self, text: bytes, positions: PositionMap) -> None:
        self.text = text.decode()
        self._positions = positions
        self._index = TextIndex(text, LINE_END)

    def offsets(self, span: Span) -> tuple[int, int]:
        start = self._index.offset(span.line + 1, span.character + 1)
        end = self._index.offset(span.end_line + 1, span.end_character + 1)
        first = self._positions.source_offset(start)
        return first, max(self._positions.source_offset(end), first)

    def place(self, offset: int) -> tuple[int, int] | None:
        """Maps a byte of the program to the server's line and character, from 0; None if the server's text lacks it."""
        output_offset = self._positions.output_offset(offset)
        if output_offset is None:
            return None
        position = self._index.position(output_offset)
        return position.line - 1, position.column - 1


class Declarations:
    """Text of the declarations. Returns excerpts for a server's spans."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._bytes = text.encode()
        self._index = TextIndex(self._bytes, LINE_END)

    def offsets(self, span: Span) -> tuple[int, int]:
        start = self._index.offset(span.line + 1, span.character + 1)
        return start, self._index.offset(span.end_line + 1, span.end_character + 1)

    def excerpt(self, span: Span) -> str:
        start, end = self.offsets(span)
        return self._bytes[start:end].decode(errors="replace")
