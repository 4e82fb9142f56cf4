"""Awaits of tools' calls beside which nothing else runs, so that an engine may answer such a call on the spot."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from tree_sitter import Node

from corral.programs.python.names import Names, TooMuch
from corral.programs.syntax.python import FUNCTIONS, is_async

__all__ = ["sequential_awaits"]

_AT_ONCE = re.compile(rb"\bgather\b")
"""The one way to run several things that every engine has; those that have others need no such awaits."""
_STORED = re.compile(r"\.\s*(\w+)\b(?!\s*\()|\b(setattr)\b")
"""A member that is more than called: a program may put something of its own in its place."""
_AWAIT = re.compile(rb"await[ \t]+")


def sequential_awaits(calls: Iterable[tuple[Node, str]], text: bytes, names: Names) -> list[int]:
    """The offsets of the awaits, in source order. `calls` are those that surely are of a tool, with its path."""
    shown = unicodedata.normalize("NFKC", text.decode())
    stored = {name for found in _STORED.finditer(shown) for name in found.groups() if name is not None}
    if "setattr" in stored:
        return []
    return list(_found(calls, text, names, stored))


def _found(calls: Iterable[tuple[Node, str]], text: bytes, names: Names, stored: set[str]) -> Iterator[int]:
    in_functions = _AT_ONCE.search(text) is None
    for call, path in calls:
        awaiting = call.parent
        if awaiting is None or awaiting.type != "await" or path.rpartition(".")[2] in stored:
            continue
        start = awaiting.start_byte
        if not _AWAIT.fullmatch(text, start, call.start_byte):
            continue
        try:
            if _is_alone(awaiting, names, in_functions=in_functions):
                yield start
        except TooMuch:
            return


def _is_alone(awaiting: Node, names: Names, *, in_functions: bool) -> bool:
    """True in the module, or in an async function if none runs beside another; not in an f-string,
    which may show its text."""
    node = awaiting.parent
    while node is not None and node.type not in FUNCTIONS:
        if node.type == "interpolation":
            return False
        names.step()
        node = node.parent
    return node is None or (in_functions and node.type == "function_definition" and is_async(node))
