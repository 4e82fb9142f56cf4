"""Stack traces in the model's own terms: only the program's frames, at the lines and columns it wrote."""

from __future__ import annotations

import re
from dataclasses import dataclass

from corral.types import Position, Program

__all__ = ["Trace", "located_text", "program_trace"]

# The name under which the guest runs a program.
_PLACE = re.compile(r"corral:program\.ts:(?P<line>\d{1,7}):(?P<column>\d{1,7})", re.ASCII)
# The name under which the Python guest runs a program; its own stacks have columns, what a program prints has none.
_PYTHON_PLACE = re.compile(r'File "corral:program\.py", line (?P<line>\d{1,7})(?::(?P<column>\d{1,7}))?', re.ASCII)
_MAX_PLACES = 50
"""Places that are renamed in one text. A program may print thousands; a stack has ten."""
# The function that stands around the program is not the model's: its frames show only the place.
_WRAPPER = re.compile(r"(at (?:async )?)(?:<anonymous>|Object\.<anonymous>) \(([^()]*)\)$")


@dataclass(frozen=True, slots=True)
class Trace:
    """A stack with the program's frames only, and the innermost of them."""

    text: str
    position: Position | None


def program_trace(stack: str, program: Program) -> Trace:
    """Keeps a stack's header and the program's own frames: V8's has the innermost first, Python's last."""
    if program.language == "python":
        places = list(_PYTHON_PLACE.finditer(stack))
        return Trace(located_text(stack, program), _python_position(places[-1], program) if places else None)
    header: list[str] = []
    frames: list[str] = []
    position: Position | None = None
    for line in stack.splitlines():
        place = _PLACE.search(line)
        if place is not None:
            position = position or _position(place, program)
            frames.append(_rename(_WRAPPER.sub(r"\1\2", line), program))
        elif not line.lstrip().startswith("at ") and not frames:
            header.append(line)
    return Trace("\n".join([*header, *frames]), position)


def located_text(text: str, program: Program) -> str:
    """`text` with every place of the program in it as the model wrote it.

    In TypeScript it is named `program.ts:line:column`, in Python `File "program.py", line N`.
    """
    if program.language == "python":
        return _rename_python(text, program) if "corral:program.py" in text else text
    return _rename(text, program) if "corral:program.ts:" in text else text


def _rename(text: str, program: Program) -> str:
    def renamed(place: re.Match[str]) -> str:
        position = _position(place, program)
        return f"program.ts:{position.line}:{position.column}"

    return _PLACE.sub(renamed, text, count=_MAX_PLACES)


def _rename_python(text: str, program: Program) -> str:
    def renamed(place: re.Match[str]) -> str:
        return f'File "program.py", line {_python_position(place, program).line}'

    return _PYTHON_PLACE.sub(renamed, text, count=_MAX_PLACES)


def _python_position(place: re.Match[str], program: Program) -> Position:
    return program.locate(int(place["line"]), int(place["column"] or 1))


def _position(place: re.Match[str], program: Program) -> Position:
    return program.locate(int(place["line"]), max(int(place["column"]), 1))
