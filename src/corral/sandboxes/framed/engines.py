"""Engine-specific parts of a guest's reports: stack traces, messages, and how the engine ends."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from corral.types import Language, Position, Program

_OF_NOTHING = re.compile(
    r"Cannot (?P<verb>read|set) properties of (?P<what>undefined|null) \(\w+ '(?P<name>.{1,100})'\)"
)
_MAX_EXPRESSION = 80
_MAX_LOOK = 400
"""Maximum number of characters before a position that are searched."""
_MEMBER = re.compile(r"\s*(?:\?\s*)?\.\s*\Z")
_NAME = re.compile(r"[\w$#]+\Z")
_CLOSING = {")": "(", "]": "["}


def explained(message: str, source: str, position: Position | None) -> str:
    """Adds to a message the model's expression that was undefined or null, if it can be determined."""
    match = _OF_NOTHING.fullmatch(message)
    if match is None or position is None:
        return message
    lines = source.split("\n", position.line)
    if len(lines) < position.line:
        return message
    line = lines[position.line - 1].encode("utf-16-le", "surrogatepass")
    column = (position.column - 1) * 2
    before = "\n".join([*lines[: position.line - 1], line[:column].decode("utf-16-le", "replace")])[-_MAX_LOOK:]
    owner = _owner(before, line[column:].decode("utf-16-le", "replace"), match["verb"], match["name"])
    return message if owner is None or owner == match["what"] else f"{message}: `{owner}` is {match['what']}"


def _owner(before: str, after: str, verb: str, name: str) -> str | None:
    """Returns the expression before the member that was read or set."""
    if verb == "set":
        if not after.startswith("="):
            return None
        end = _start(before, one=True)
        before = "" if end is None else _MEMBER.sub("", before[:end])
    elif after.startswith(name) and (dot := _MEMBER.search(before)):
        before = before[: dot.start()]
    elif not after.startswith(("[", ".", "?.")):
        return None
    begin = _start(before)
    text = "" if begin is None else " ".join(before[begin:].split()).replace(" .", ".")
    return text if 0 < len(text) <= _MAX_EXPRESSION else None


def _start(text: str, *, one: bool = False) -> int | None:
    """Finds the start of an expression of names, members, calls and brackets that ends the text; with `one`, of its
    last part."""
    at = len(text.rstrip())
    while at > 0:
        if text[at - 1] in _CLOSING:
            opened = _opening(text, at - 1)
            if opened is None:
                return None
            at = opened
            if (
                one
                or at == 0
                or not (
                    text[at - 1] in _CLOSING or text[at - 1] in "$!." or text[at - 1].isalnum() or text[at - 1] == "_"
                )
            ):
                return at
            at -= text[at - 1] == "."
            at -= text[at - 1 : at] == "?"
        elif text[at - 1] == "!":
            at -= 1
        elif match := _NAME.search(text, max(0, at - _MAX_EXPRESSION), at):
            at = match.start()
            dot = _MEMBER.search(text[max(0, at - _MAX_EXPRESSION) : at])
            if one or dot is None:
                return at
            at -= len(dot[0])
        else:
            return None
    return at


def _opening(text: str, at: int) -> int | None:
    """Finds the bracket that the bracket at `at` closes, ignoring quoted texts."""
    expected: list[str] = []
    while at >= 0:
        character = text[at]
        if character in _CLOSING:
            expected.append(_CLOSING[character])
        elif character in "([":
            if not expected or expected.pop() != character:
                return None
            if not expected:
                return at
        elif character in "\"'`":
            at = text.rfind(character, 0, at)
            if at < 0:
                return None
        at -= 1
    return None


_MAX_PLACES = 50
"""Maximum number of positions renamed in one text. A program may print thousands; a stack has ten."""
_CELL = re.compile(r"corral:cell_(\d{1,7})(\.\w\w)", re.ASCII)
"""Code of a notebook's cell, in a text of the guest."""
_LINE_END = re.compile("\r\n|[\r\n\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Trace:
    """Stack with only the program's frames, and its innermost position."""

    text: str
    position: Position | None


class _GuestEngine(ABC):
    """Traits of an engine that runs guests' programs."""

    file: ClassVar[str]
    """Name under which the guest runs a program. Models see it without the prefix `corral:`."""
    place: ClassVar[re.Pattern[str]]
    """Pattern of a position of the program in the engine's texts, with the groups `line` and `column`."""
    crashes_out_of_memory: ClassVar[bool]
    """True if a signal without a text can mean that memory has run out."""

    @abstractmethod
    def trace(self, stack: str, program: Program) -> Trace:
        """Keeps a stack's header and the program's own frames."""

    @abstractmethod
    def rename(self, position: Position) -> str:
        """Formats a position in the model's source as the engine would."""

    def explain(self, message: str, program: Program, position: Position | None) -> str:  # noqa: ARG002
        """Returns a message in the model's own terms, if the engine's is unclear."""
        return message

    def syntax_error(self, message: str, program: Program, position: Position | None) -> str:  # noqa: ARG002
        """Returns the text of a syntax error."""
        return message.splitlines()[0] if message else "the program does not parse"

    @staticmethod
    def of_program(text: str, program: Program) -> str:
        """Returns a text of the guest in which the running cell has the name of a program, and earlier ones theirs."""
        if not program.cell or "corral:cell_" not in text:
            return text
        name = str(program.cell)
        return _CELL.sub(lambda cell: f"{'corral:program' if cell[1] == name else f'cell_{cell[1]}'}{cell[2]}", text)

    def locate(self, text: str, program: Program) -> str:
        """Returns `text` with the program's positions mapped to the model's source."""
        text = self.of_program(text, program)
        if self.file not in text:
            return text
        return self.place.sub(lambda place: self.rename(_position(place, program)), text, count=_MAX_PLACES)


class _V8(_GuestEngine):
    file = "corral:program.ts:"
    place = re.compile(r"corral:program\.ts:(?P<line>\d{1,7}):(?P<column>\d{1,7})", re.ASCII)
    crashes_out_of_memory = True
    _wrapper = re.compile(r"(at (?:async )?)(?:<anonymous>|Object\.<anonymous>) \(([^()]*)\)$")
    """The function around the program is not the model's, so its frames show only the position."""
    _earlier = re.compile(r"\b(cell_\d{1,7}\.ts:\d{1,7}):\d{1,7}", re.ASCII)

    def trace(self, stack: str, program: Program) -> Trace:
        """The innermost frame is the first."""
        stack = self.of_program(stack, program)
        header: list[str] = []
        frames: list[str] = []
        position: Position | None = None
        for line in stack.splitlines():
            place = self.place.search(line)
            if place is not None:
                position = position or _position(place, program)
                frames.append(self.locate(self._wrapper.sub(r"\1\2", line), program))
            elif self._earlier.search(line) is not None:
                frames.append(self._earlier.sub(r"\1", self._wrapper.sub(r"\1\2", line)))
            elif not line.lstrip().startswith("at ") and not frames:
                header.append(line)
        return Trace("\n".join([*header, *frames]), position)

    def rename(self, position: Position) -> str:
        return f"program.ts:{position.line}:{position.column}"

    def explain(self, message: str, program: Program, position: Position | None) -> str:
        return explained(message, program.source, position)

    def syntax_error(self, message: str, program: Program, position: Position | None) -> str:
        if position is not None and _is_end(position, program.source):
            return "Unexpected end of input"
        return super().syntax_error(message, program, position)


class _CPython(_GuestEngine):
    file = "corral:program.py"
    # CPython's stacks as reported have columns; stacks that a program prints do not.
    place = re.compile(r'File "corral:program\.py", line (?P<line>\d{1,7})(?::(?P<column>\d{1,7}))?', re.ASCII)
    crashes_out_of_memory = False

    def trace(self, stack: str, program: Program) -> Trace:
        """The innermost frame is the last."""
        stack = self.of_program(stack, program)
        places = list(self.place.finditer(stack))
        return Trace(self.locate(stack, program), _position(places[-1], program) if places else None)

    def rename(self, position: Position) -> str:
        return f'File "program.py", line {position.line}'


ENGINES: Mapping[Language, _GuestEngine] = {"typescript": _V8(), "python": _CPython()}
"""Engine of each language."""


def _position(place: re.Match[str], program: Program) -> Position:
    return program.locate(int(place["line"]), max(int(place["column"] or 1), 1))


def _is_end(position: Position, source: str) -> bool:
    """True if the engine reports its own position, after the program's end."""
    lines = _LINE_END.split(source.rstrip())
    here = lines[position.line - 1].encode("utf-16-le", "surrogatepass") if position.line <= len(lines) else b""
    return position.line >= len(lines) and 2 * (position.column - 1) >= len(here)
