"""Says what is wrong with the brackets, templates and comments of a source that does not parse.

A source must not be able to close what its program is wrapped in; and "this bracket was never closed" helps a model
more than an engine's complaint about the end of the input.
"""

from __future__ import annotations

from typing import NamedTuple

from tree_sitter import Node

from corral.errors import ProgramRejected
from corral.programs.edits import position_at
from corral.programs.syntax.typescript import MAX_DEPTH, walk
from corral.types import Position

_CLOSER_OF = {"(": ")", "[": "]", "{": "}", "${": "}"}
_CLOSERS = frozenset(_CLOSER_OF.values())
_NAMES = {
    "(": "parenthesis `(`",
    "[": "bracket `[`",
    "{": "brace `{`",
    "${": "template substitution `${`",
    "`": "template literal",
}

_MAX_SKIPPED = 250
"""Tokens that the parser could make nothing of: they may nest as deeply as they are many."""


class _Open(NamedTuple):
    sign: str
    offset: int


def check_brackets(root: Node, text: bytes) -> None:
    """Raises ProgramRejected where a bracket, template or comment does not match or is never closed.

    Also for a source of which the parser understood so little that its depth is not known.
    """
    opened: list[_Open] = []
    skipped = root.child_count if root.is_error else 0
    for node in walk(root):
        skipped += node.child_count if node.is_error else 0
        if node.child_count or node.is_missing:
            continue
        sign = (node.text or b"").decode(errors="replace") if node.is_error else node.type
        if sign == "`" and opened and opened[-1].sign == "`":
            opened.pop()
        elif sign in _NAMES:
            opened.append(_Open(sign, node.start_byte))
        elif sign in _CLOSERS:
            _close(opened, sign, text, node.start_byte)
        if len(opened) > MAX_DEPTH:
            raise _rejected("The program is nested too deeply", text, node.start_byte)
    _check_comments(root, text)
    if opened:
        sign, offset = opened[-1]
        close = f"`{_CLOSER_OF[sign]}`" if sign in _CLOSER_OF else "backtick"
        raise _rejected(f"The {_NAMES[sign]}", text, offset, f"is never closed. Add the missing {close}.")
    if skipped > _MAX_SKIPPED:
        error = next((node for node in walk(root) if node.is_error or node.is_missing), root)
        raise _rejected("The program has a syntax error", text, error.start_byte, "or before it.")


def _close(opened: list[_Open], sign: str, text: bytes, offset: int) -> None:
    if not opened:
        raise _rejected(f"The `{sign}`", text, offset, "closes nothing. Remove it, or add what it should close.")
    if _CLOSER_OF.get(opened[-1].sign) != sign:
        place = position_at(text, opened[-1].offset)
        raise _rejected(
            f"The `{sign}`",
            text,
            offset,
            f"does not close the {_NAMES[opened[-1].sign]} at line {place.line}, column {place.column}.",
        )
    opened.pop()


def _check_comments(root: Node, text: bytes) -> None:
    at = text.find(b"/*")
    while at >= 0:
        node = root.descendant_for_byte_range(at, at + 2)
        if node is None or node.child_count or node.is_error:
            raise _rejected("The comment `/*`", text, at, "is never closed. Add the missing `*/`.")
        at = text.find(b"/*", max(at + 2, node.end_byte))


def _rejected(what: str, text: bytes, offset: int, rest: str = "") -> ProgramRejected:
    place: Position = position_at(text, offset)
    where = f"{what} at line {place.line}, column {place.column}"
    return ProgramRejected(f"{where} {rest}" if rest else f"{where}.", line=place.line, column=place.column)
