"""The lines of a Python text: where statements begin, their indentation, and which parts are strings or comments.

It needs no tree, so it works on texts that do not parse yet. Time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_MAX_BRACKETS = 200
"""Maximum nesting of brackets that CPython accepts."""
_MAX_JOINED = 100
"""Maximum number of consecutive lines joined by backslashes: the parser's time is quadratic in it."""

_TOKEN = re.compile(
    rb"(?P<comment>\#[^\n]*)"
    rb"|(?P<prefix>\b[A-Za-z]{1,2})?(?P<string>"
    rb'"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)'
    rb"|'''(?:[^'\\]|\\.|'(?!''))*+(?:'''|\Z)"
    rb'|"(?:[^"\\\n]|\\.)*+(?:"|(?=\n)|\Z)'
    rb"|'(?:[^'\\\n]|\\.)*+(?:'|(?=\n)|\Z))"
    rb"|(?P<joint>\\\n)",
    re.DOTALL,
)
_FORMATTED = re.compile(rb"\b(?:[fFtT][rR]?|[rR][fFtT])[\"']")
"""Strings that can contain quotes of their own kind, and so look like two strings."""
_BRACKET = re.compile(rb"[()\[\]{}]")
_ROW = re.compile(rb"([ \t\f]*)([^\n]*)\n?")
_MANY_JOINTS = re.compile(rb"(?:\\\n[ \t]*){%d}" % _MAX_JOINED)
_MAX_KNOWN = 4
_CLOSER_OF = {b"(": b")", b"[": b"]", b"{": b"}"}
_NOT_PYTHON = re.compile(rb"[`$?\\]|!(?!=)")


class Line(NamedTuple):
    """A logical line: its start, its indentation, and whether it ends with a colon."""

    start: int
    indent: bytes
    opens: bool


class Lines(NamedTuple):
    """The layout of a text before it is parsed."""

    masked: bytes
    """The text, byte for byte, with strings as `s` and comments as spaces; `\\n` ends logical and bracketed lines."""
    logical: list[Line]
    too_deep: int | None
    """Offset where brackets nest more deeply than Python accepts."""
    broken: bool
    """True if it certainly does not parse: it has an unmatched bracket, or a character that Python does not use."""

    @property
    def starts(self) -> list[int]:
        """Offsets of the physical lines that do not begin inside a string."""
        return [0, *(line_end.end() for line_end in re.finditer(rb"\n", self.masked))]


class Reader:
    """Reads the lines of texts, with a small cache."""

    def __init__(self) -> None:
        self._known: dict[bytes, Lines] = {}

    def read(self, text: bytes) -> Lines:
        if text not in self._known:
            if len(self._known) == _MAX_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[text] = _read(text)
        return self._known[text]


def _read(text: bytes) -> Lines:
    masked = _TOKEN.sub(_mask, text)
    logical: list[Line] = []
    opened: list[bytes] = []
    broken = _NOT_PYTHON.search(masked) is not None or _MANY_JOINTS.search(text) is not None
    too_deep: int | None = None
    begins: tuple[int, bytes] | None = None
    for row in _ROW.finditer(masked):
        indent, content = row.groups()
        if begins is None:
            if not content:
                continue
            begins = row.start(), indent
        if _BRACKET.search(content):
            for bracket in _BRACKET.finditer(content):
                sign = bracket[0]
                if sign in _CLOSER_OF:
                    opened.append(_CLOSER_OF[sign])
                    if len(opened) > _MAX_BRACKETS and too_deep is None:
                        too_deep = row.start(2) + bracket.start()
                elif not opened or opened.pop() != sign:
                    broken = True
                    opened.clear()
        if not opened:
            logical.append(Line(*begins, content.rstrip().endswith(b":")))
            begins = None
    if begins is not None:
        broken = True
        logical.append(Line(*begins, opens=False))
    return Lines(masked, logical, too_deep, broken and _FORMATTED.search(text) is None)


def is_indented(lines: Sequence[Line]) -> bool:
    """True if the indentation is valid Python, with tabs of eight columns and of one."""
    nested = _levels(lines, 8)
    return nested is not None and (not any(b"\t" in line.indent for line in lines) or nested == _levels(lines, 1))


def _levels(lines: Sequence[Line], tab: int) -> list[int] | None:
    """Returns the nesting depth of each line, with tab stops at every `tab` columns; None if Python would reject it."""
    stack, levels = [0], list[int]()
    opened = False
    for line in lines:
        column = len(line.indent.rpartition(b"\f")[2].expandtabs(tab))
        if opened:
            if column <= stack[-1]:
                return None
            stack.append(column)
        else:
            while column < stack[-1]:
                stack.pop()
            if column != stack[-1]:
                return None
        levels.append(len(stack) - 1)
        opened = line.opens
    return None if opened else levels


def _mask(token: re.Match[bytes]) -> bytes:
    length = token.end() - token.start()
    if token.lastgroup == "string":
        return b"s" * length
    return b" " * length
