"""A place in a program's source, shown with the lines around it."""

from __future__ import annotations

import re
from itertools import islice

from corral.cli.text import fitted, printable, width

_LINE_END = re.compile(r"\r\n|[\r\n\u2028\u2029]")
_LINES_AROUND = 1
_TAB = " " * 4


def excerpt(source: str, line: int, column: int, *, columns: int) -> list[str]:
    """The line of a place with its neighbours, numbered, and a caret below the column.

    `line` and `column` count from 1, `column` in UTF-16 units. Nothing if the source has no such line. A long line is
    cut to `columns` so that the place is in view.
    """
    lines = _LINE_END.split(source)
    if not 1 <= line <= len(lines):
        return []
    first, last = max(1, line - _LINES_AROUND), min(len(lines), line + _LINES_AROUND)
    if last > line and last == len(lines) and not lines[last - 1]:
        last -= 1  # what follows the newline at the end of the file
    gutter = len(str(last))
    room = columns - gutter - 4
    text, caret = _around(lines[line - 1], _index(lines[line - 1], column), room)
    shown = [f"{'':{gutter}} |"]
    for number, neighbour in enumerate(islice(lines, first - 1, last), first):
        content = text if number == line else _shown(neighbour)
        shown.append(f"{number:>{gutter}} | {fitted(content, room)}".rstrip())
        if number == line:
            shown.append(f"{'':{gutter}} | {'':{caret}}^")
    return shown


def _index(line: str, column: int) -> int:
    """The index in `line` of a column in UTF-16 units."""
    return len(line.encode("utf-16-le")[: 2 * (column - 1)].decode("utf-16-le", "ignore"))


def _around(line: str, index: int, room: int) -> tuple[str, int]:
    """`line` as shown, from so far to the right that `index` is in view, and the caret's offset in it."""
    before = _shown(line[:index])
    if width(before) < room * 3 // 4:
        return _shown(line), width(before)
    before = f"…{before[-(room // 2) :]}"
    return before + _shown(line[index:]), width(before)


def _shown(line: str) -> str:
    return printable(line.replace("\t", _TAB))
