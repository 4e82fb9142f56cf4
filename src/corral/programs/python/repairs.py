"""Repairs text that is not Python: prompts, notebook commands, margins, typographic characters.

Each repair is a set of edits on a text that does not parse. Prompts, commands and margins cannot be Python and are
always removed; guesses are kept only if the program then parses.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from corral.programs.edits import Edits, Places, moved
from corral.programs.python.lines import Line, Reader
from corral.programs.typography import plain_characters, typographic
from corral.texts import PositionMap, located
from corral.types import Diagnostic

LINE_END = rb"\n"
_LINE_ENDS = re.compile(LINE_END)

_PROMPT = re.compile(rb"[ \t]*(?:>>>|In ?\[\d*\]:)(?: |(?=\n|\Z))")
_CONTINUED = re.compile(rb"[ \t]*\.{3,}:?(?: |(?=\n|\Z))")
_COMMAND = re.compile(
    rb"[ \t]*(?P<command>(?:%{1,2}[A-Za-z_]|!+\s*[\w./~]|\?{1,2}\w|(?:pip3?|conda)[ ]install[ ])[^\n]*)"
)
_TYPOGRAPHIC = typographic(
    "\"\"\".*?(?:\"\"\"|\\Z)|'''.*?(?:'''|\\Z)|\"(?:[^\"\\\\\n]|\\\\.)*+\"?|'(?:[^'\\\\\n]|\\\\.)*+'?|#[^\n]*"
)
_MAX_COMMANDS = 100


@dataclass(frozen=True, slots=True)
class Repaired:
    """A repaired text, and the map back to the original."""

    text: bytes
    positions: tuple[PositionMap, ...] = ()
    """Maps back to the original, the latest change first."""
    diagnostics: tuple[Diagnostic, ...] = ()


def repaired(text: bytes, blocks: Sequence[int], parses: Callable[[bytes], bool], reader: Reader) -> Repaired:
    """Repairs a text. `blocks` are the first lines of its blocks, from 0."""
    current = Repaired(text)
    if parses(text):
        return current
    for repair in (_without_prompts, _without_commands, _without_margin):
        current = _then(current, repair(current.text, blocks, reader))
    if parses(current.text):
        return current
    guessed = current
    for repair in (_in_plain_characters, _without_margin):
        guessed = _then(guessed, repair(guessed.text, blocks, reader))
    return guessed if guessed.text != current.text and parses(guessed.text) else current


def _then(before: Repaired, repair: tuple[Edits, tuple[Diagnostic, ...]] | None) -> Repaired:
    if repair is None:
        return before
    edits, remarks = repair
    text, positions = edits.apply()
    back = partial(located, before.positions)
    placed = tuple(moved(remark, back(remark.line or 1, remark.column or 1)) for remark in remarks)
    return Repaired(text, (positions, *before.positions), before.diagnostics + placed)


_Repair = tuple[Edits, tuple[Diagnostic, ...]] | None


def _segments(text: bytes, blocks: Sequence[int]) -> Iterator[tuple[int, int]]:
    starts = [0, *(line_end.end() for line_end in _LINE_ENDS.finditer(text))]
    cuts = [0, *(starts[line] for line in blocks[1:] if line < len(starts)), len(text)]
    yield from pairwise(cuts)


def _without_prompts(text: bytes, blocks: Sequence[int], reader: Reader) -> _Repair:
    """Keeps the input lines of an interactive session, without prompts and output."""
    if b">>>" not in text and b"In [" not in text and b"In[" not in text:
        return None
    edits = Edits(text, LINE_END)
    starts = reader.read(text).starts
    has_prompts = False
    ends = [cut for _, cut in _segments(text, blocks)]
    prompted = continued = False
    for start, following in zip(starts, [*starts[1:], len(text) + 1], strict=True):
        while ends and start >= ends[0]:
            ends.pop(0)
            prompted = continued = False
        end = following - 1
        prompt = _PROMPT.match(text, start) or (_CONTINUED.match(text, start) if continued else None)
        if prompt:
            edits.replace(start, prompt.end(), b"")
            has_prompts = prompted = continued = True
        elif prompted and start < end:
            edits.blank(start, end)
            continued = False
    return (edits, ()) if has_prompts else None


def _without_commands(text: bytes, _: Sequence[int], reader: Reader) -> _Repair:
    """Removes notebook and shell commands."""
    edits = Edits(text, LINE_END)
    remarks, places = list[Diagnostic](), Places(text, line_end=LINE_END)
    for line in reader.read(text).logical:
        command = _COMMAND.match(text, line.start)
        if command is None:
            continue
        if len(remarks) == _MAX_COMMANDS:
            return None
        start, end = command.span("command")
        edits.replace(start, end, b"pass")
        shown = command["command"][:40].decode(errors="replace").strip()
        message = f"`{shown}` was removed: it is a notebook command, not Python."
        remarks.append(places.remark("warning", "command_left_out", message, start))
    return (edits, tuple(remarks)) if remarks else None


def _without_margin(text: bytes, blocks: Sequence[int], reader: Reader) -> _Repair:
    """Removes the common indentation of the whole text, or else of each block."""
    lines = reader.read(text)
    margin = lines.logical[0].indent if lines.logical else b""
    if len(blocks) < 2 or (margin and _shared(lines.logical, margin)):
        edits = _shifted(text, lines.starts, lines.logical, [(0, len(text))])
    else:
        edits = _shifted(text, lines.starts, lines.logical, list(_segments(text, blocks)))
    return (edits, ()) if edits is not None else None


def _shifted(text: bytes, starts: list[int], logical: list[Line], segments: list[tuple[int, int]]) -> Edits | None:
    edits = Edits(text, LINE_END)
    changed = False
    outside = set(starts)
    begins = [line.start for line in logical]
    for first, end in segments:
        inside = logical[bisect_left(begins, first) : bisect_left(begins, end)]
        margin = inside[0].indent if inside else b""
        if not margin or not _shared(inside, margin):
            continue
        physical = [
            first,
            *(each.end() for each in _LINE_ENDS.finditer(text, first, end) if each.end() < end),
        ]
        uniform = all(text.startswith(margin, at) or not text[at : text.find(b"\n", at)].strip() for at in physical)
        for at in physical:
            if text.startswith(margin, at) and (uniform or at in outside):
                edits.replace(at, at + len(margin), b"")
                changed = True
    return edits if changed else None


def _shared(lines: Sequence[Line], margin: bytes) -> bool:
    return all(line.indent.startswith(margin) for line in lines)


def _in_plain_characters(text: bytes, _: Sequence[int], __: Reader) -> _Repair:
    """Replaces typographic characters outside strings and comments."""
    source = text.decode()
    if source.isascii():
        return None
    edits = Edits(text, LINE_END)
    at_character, at_byte = 0, 0
    first: tuple[int, str] | None = None
    for start, end, sign in plain_characters(source, _TYPOGRAPHIC):
        at_byte += len(source[at_character:start].encode())
        at_character = start
        first = first or (at_byte, source[start])
        edits.replace(at_byte, at_byte + len(source[start:end].encode()), sign.encode())
    if first is None:
        return None
    message = f"Typographic characters, such as {first[1]!a}, were replaced with ASCII."
    remark = Places(text, line_end=LINE_END).remark("warning", "typographic_characters", message, first[0])
    return edits, (remark,)
