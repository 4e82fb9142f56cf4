"""Tools that a program refers to, read off its tree before it runs, and its calls of them.

A path is named only where it is spelled out on the global `tools` or `codemode`, on the parameter of a function that
gets the tools, or in an import of one. Whatever else is done with the tools, or may lead to them, makes it `computed`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from operator import itemgetter
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.python.functions import TOOLS, first_parameter
from corral.programs.python.imports import Imports
from corral.programs.python.names import Name, Names, TooMuch
from corral.programs.python.positions import Places
from corral.programs.syntax.parsing import text_of
from corral.types import MAX_TOOL_PATH, References, ToolReference

UNKNOWN = References((), computed=True)
"""Stand-in for a program that does not parse."""

_MAX_REFERENCES = 1000

_DUNDERS = "name|init|repr|str|eq|ne|lt|le|gt|ge|hash|len|iter|next|enter|exit|aenter|aexit|aiter|anext|call|contains"
_OTHERS = "main|add|sub|mul|truediv|floordiv|mod|pow|neg|bool|post_init|future|all|version|author|doc|slots|missing"
_HIDDEN = re.compile(
    rf"\b(?:globals|locals|vars|eval|exec|compile|_getframe|sys\s*\.\s*modules|f_globals|f_locals|f_back|gc|inspect"
    rf"|(?:tb|cr|gi|ag)_frame|walk_(?:stack|tb)|set(?:trace|profile)|modules|attrgetter|methodcaller|get_type_hints"
    rf"|getattr(?!\s*\(\s*[\w.]+\s*,\s*([\"'])\w+\1\s*[,)])|timeit|runpy|breakpoint|pdb|doctest"
    rf"|importlib|ctypes|pickle|marshal|types\s*\.\s*FunctionType|__(?!(?:{_DUNDERS}|{_OTHERS})__\b)\w+__)\b"
    r"|(?<![\"'])\b__main__\b"
)
"""Globals that may lead to the tools without their name."""


class ToolUses(NamedTuple):
    """A program's uses of tools."""

    references: References
    calls: list[tuple[Node, str]]
    """Calls that surely are of a tool, with its path."""


def tool_uses(root: Node, text: bytes, names: Names, imports: Imports, entered: list[Node], places: Places) -> ToolUses:
    """The tools that a program refers to. `entered` are its functions that are called with the tools."""
    search = _Search(root, text, names, imports)
    try:
        search.run(entered)
    except TooMuch:
        search.computed = True
    found = sorted(search.named.items(), key=lambda each: each[1])
    named = [(path, places.at(offset)) for path, offset in found]
    references = tuple(ToolReference(path, place.line, place.column) for path, place in named)
    return ToolUses(References(references, search.computed), sorted(search.calls, key=lambda each: each[0].start_byte))


class _Search:
    def __init__(self, root: Node, text: bytes, names: Names, imports: Imports) -> None:
        self.computed = False
        self.named: dict[str, int] = {}
        self.calls: list[tuple[Node, str]] = []
        self._root = root
        self._text = text
        self._names = names
        self._imports = imports
        self._aliases: dict[str, str] = {}

    def run(self, entered: list[Node]) -> None:
        shown = self._text.decode(errors="replace")
        self.computed = _HIDDEN.search(shown if shown.isascii() else unicodedata.normalize("NFKC", shown)) is not None
        for imported in self._imports.tools:
            self._name(imported.path, imported.node)
            self._aliases[imported.name] = imported.path
        for word in TOOLS:
            self.computed |= self._names.is_spelled_otherwise(word)
            self._look(word, self._root)
        for word in self._imports.holders:
            self.computed |= word == "*"
            self._look(word, self._root)
        for function in entered:
            parameter = first_parameter(function)
            if parameter is not None:
                self._look(parameter, function)
        imported_names = {each.name for each in self._imports.tools}
        for name, path in self._aliases.items():
            uses = [each for each in self._names.in_module(name) if not self._is_replaced(each)]
            if sum(each.binds for each in uses) + (name in imported_names) == 1:
                for use in uses:
                    self._call(use.node, path)

    def _look(self, word: str, scope: Node) -> None:
        """Looks at a name that holds the tools in a scope."""
        found = [name for name in self._names.of(word) if name.scope == scope and not self._is_replaced(name)]
        bindings = sum(name.binds for name in found)
        if bindings > (scope != self._root) or self._names.is_declared_elsewhere(word):
            self.computed = True
            return
        for name in found:
            if not name.binds:
                self._refer(name)

    def _refer(self, use: Name) -> None:
        """Follows the members that are taken of the tools."""
        keys: list[str] = []
        node = use.node
        while len(keys) < 2 and (owner := node.parent) is not None and owner.type == "attribute":
            self._names.step()
            if node != owner.child_by_field_name("object"):
                break
            keys.append(unicodedata.normalize("NFKC", text_of(owner.child_by_field_name("attribute"))))
            node = owner
        if not keys or keys[0].startswith("__"):
            self.computed = True
            return
        path = ".".join(keys)
        self._name(path, node.child_by_field_name("attribute") or node)
        self._call(node, path)
        owner = node.parent
        if owner is not None and owner.type == "assignment" and node == owner.child_by_field_name("right"):
            left = owner.child_by_field_name("left")
            if left is not None and left.type == "identifier" and use.owner == self._root:
                self._aliases[text_of(left)] = path

    def _call(self, callee: Node, path: str) -> None:
        call = callee.parent
        if call is not None and call.type == "call" and callee == call.child_by_field_name("function"):
            self.calls.append((call, path))

    def _name(self, path: str, place: Node) -> None:
        if len(path) > MAX_TOOL_PATH:
            self.computed = True
        elif path not in self.named and len(self.named) == _MAX_REFERENCES:
            raise TooMuch
        else:
            self.named[path] = min(place.start_byte, self.named.get(path, place.start_byte))

    def _is_replaced(self, name: Name) -> bool:
        replaced, start = self._imports.replaced, name.node.start_byte
        before = bisect_right(replaced, start, key=itemgetter(0))
        return before > 0 and start < replaced[before - 1][1]
