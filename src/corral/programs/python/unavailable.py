"""Refusals of programs that no Python engine can run here: TypeScript, questions at a terminal."""

from __future__ import annotations

import re

from tree_sitter import Node

from corral.programs.python.names import Names, TooMuch
from corral.programs.python.positions import Places
from corral.programs.syntax.python import FUNCTIONS
from corral.programs.syntax.typescript import parse

_TYPESCRIPT = re.compile(
    rb"^[ \t]*(?:export[ \t]+)?(?:const|let|var|function|async[ \t]+function|interface|enum)[ \t]+[\w${\[]"
    rb"|^[ \t]*type[ \t]+\w+[ \t]*=[ \t]*[{|\"'\w]|=>|\bconsole\.\w+\(|\bnew[ \t]+[A-Z]\w*\(|[;{}][ \t]*$|^[ \t]*//",
    re.MULTILINE,
)
_MAX_BYTES = 30_000
"""A source that is longer is not parsed again."""
_INPUT = re.compile(rb"\binput\b(?=[ \t]*\()")
_MAX_INPUTS = 20


def refuse_typescript(text: bytes, places: Places) -> None:
    """Raises ProgramRejected for a text that is no Python but TypeScript."""
    sign = _TYPESCRIPT.search(text) if len(text) <= _MAX_BYTES else None
    if sign is not None and not parse(text).root_node.has_error:
        message = "This is TypeScript; programs here are in Python: `x = await tools.name(key=value)`, and the last"
        start = len(text) - len(text.lstrip())
        raise places.rejected(f"{message} expression is the result.", start)


def refuse_terminal(root: Node, text: bytes, names: Names, places: Places) -> None:
    """Raises ProgramRejected for a call of `input` whose error nothing catches."""
    for number, found in enumerate(_INPUT.finditer(text)):
        node = root.descendant_for_byte_range(*found.span())
        call = None if node is None else node.parent
        if number == _MAX_INPUTS or node is None or call is None or call.type != "call" or node.type != "identifier":
            continue
        try:
            is_bound = any(each.binds for each in names.of("input"))
        except TooMuch:
            return
        if not is_bound and call.child_by_field_name("function") == node and not _is_caught(call):
            message = "`input` at {place} has nobody to ask: programs have no terminal."
            raise places.rejected(f"{message} Put the value into the program, or call a tool.", node.start_byte)


def _is_caught(node: Node) -> bool:
    """True if code around a call may catch its error, or the call is in a function, which may never run."""
    above = node.parent
    while above is not None:
        if above.type == "try_statement" or above.type in FUNCTIONS:
            return True
        above = above.parent
    return False
