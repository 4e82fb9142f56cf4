"""The text that a language server reads, and the mapping between its positions and those of the program."""

from __future__ import annotations

from corral.checking.servers.workspace import Span
from corral.texts import PositionMap, TextIndex

LINE_END = rb"\r\n|\r|\n"
"""Line ends of the Language Server Protocol."""


class CheckedText:
    """Text for a server, made from a program's text by edits. Offsets are in UTF-8 bytes of the program's text."""

    def __init__(self, text: bytes, positions: PositionMap) -> None:
        self.text = text.decode()
        self._positions = positions
        self._index = TextIndex(text, LINE_END)

    def offsets(self, span: Span) -> tuple[int, int]:
        """The span of the program behind a span of the server's."""
        start = self._index.offset(span.line + 1, span.character + 1)
        end = self._index.offset(span.end_line + 1, span.end_character + 1)
        first = self._positions.source_offset(start)
        return first, max(self._positions.source_offset(end), first)

    def place(self, offset: int) -> tuple[int, int] | None:
        """Line and character, from 0, by which the server knows a byte of the program; None: it does not see it."""
        output_offset = self._positions.output_offset(offset)
        if output_offset is None:
            return None
        position = self._index.position(output_offset)
        return position.line - 1, position.column - 1


class Declarations:
    """Declarations as text, with excerpts by the spans of a server."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._bytes = text.encode()
        self._index = TextIndex(self._bytes, LINE_END)

    def offsets(self, span: Span) -> tuple[int, int]:
        """Offsets of a span, in bytes of UTF-8."""
        start = self._index.offset(span.line + 1, span.character + 1)
        return start, self._index.offset(span.end_line + 1, span.end_character + 1)

    def excerpt(self, span: Span) -> str:
        """Text of a span."""
        start, end = self.offsets(span)
        return self._bytes[start:end].decode(errors="replace")
