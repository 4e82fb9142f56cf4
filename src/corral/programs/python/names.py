"""Bindings and uses of names, by Python's scoping rules."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.syntax.parsing import is_a, part, text_of

_MAX_STEPS = 20_000
"""Maximum number of visited nodes; each takes 2 to 30 µs, depending on its depth."""

_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_COMPREHENSIONS = frozenset(
    {"list_comprehension", "set_comprehension", "dictionary_comprehension", "generator_expression"}
)
_PATTERNS = frozenset(
    {"pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern", "dictionary_splat_pattern", "tuple", "list"}
)
_PARAMETER_LISTS = frozenset({"parameters", "lambda_parameters"})
_PARAMETERS = {"typed_parameter": None, "default_parameter": "name", "typed_default_parameter": "name"}
_LEFT = frozenset({"assignment", "augmented_assignment", "for_statement", "for_in_clause"})
_DEFINITIONS = frozenset({"function_definition", "class_definition"})
_CASES = frozenset({"case_pattern", "splat_pattern", "keyword_pattern"})


class TooMuch(Exception):
    """The program is too large to search."""


class Name(NamedTuple):
    """One occurrence of a name."""

    node: Node
    scope: Node
    """The binding scope: a function, class or comprehension, or else the module."""
    binds: bool
    owner: Node
    """The function, class or module around it."""


class Names:
    """The names of a program, resolved on demand. Raises TooMuch after `_MAX_STEPS`."""

    def __init__(self, root: Node, text: bytes) -> None:
        self._root = root
        self._text = text
        self._known: dict[str, list[Name]] = {}
        self._steps = 0

    def of(self, word: str) -> list[Name]:
        """Returns every occurrence of a name, in source order."""
        if word not in self._known:
            self._known[word] = self._resolve([self._stand(node) for node in self._occurrences(word.encode())])
        return self._known[word]

    def in_module(self, word: str) -> list[Name]:
        """Returns the occurrences that refer to the module's variable."""
        return [name for name in self.of(word) if name.scope == self._root]

    def bindings(self, word: str) -> list[Name]:
        """Returns the bindings of the module's variable."""
        return [name for name in self.in_module(word) if name.binds]

    def is_declared_elsewhere(self, word: str) -> bool:
        """True if `global`, `nonlocal` or a class make the meaning of a name uncertain."""
        return any(
            parent.type in ("global_statement", "nonlocal_statement")
            or (name.binds and name.scope.type == "class_definition")
            for name in self.of(word)
            if (parent := name.node.parent) is not None
        )

    def is_spelled_otherwise(self, word: str) -> bool:
        """True if the source may contain other characters that Python normalizes to this name."""
        if self._text.isascii():
            return False
        text = self._text.decode(errors="replace")
        return unicodedata.normalize("NFKC", text).count(word) != text.count(word)

    def step(self) -> None:
        """Counts a visited node."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise TooMuch

    def _occurrences(self, word: bytes) -> Iterator[Node]:
        text, end = self._text, 0
        while (at := text.find(word, end)) >= 0:
            end = at + len(word)
            if (at and text[at - 1] in _WORD) or (end < len(text) and text[end] in _WORD):
                continue
            self.step()
            node = self._root.descendant_for_byte_range(at, end)
            if node is None or node.type != "identifier" or (node.start_byte, node.end_byte) != (at, end):
                continue
            if not _is_member(node):
                yield node

    def _stand(self, node: Node) -> tuple[Node, list[Node], bool]:
        """Returns a node, the scopes around it, and whether it binds its name in the innermost one."""
        scopes: list[Node] = []
        binds = is_binding(node)
        child, parent = node, node.parent
        while parent is not None:
            self.step()
            kind = parent.type
            if kind in ("function_definition", "lambda", "class_definition"):
                named = kind != "lambda" and child == part(parent, "name")
                inside = child == part(parent, "body") or (binds and not named and child == part(parent, "parameters"))
                if inside:
                    scopes.append(parent)
            elif (
                kind in _COMPREHENSIONS
                and not _is_walrus_target(node)
                and not (child.type == "for_in_clause" and not binds)
            ):
                scopes.append(parent)
            child, parent = parent, parent.parent
        return node, [*scopes, self._root], binds

    def _resolve(self, stands: list[tuple[Node, list[Node], bool]]) -> list[Name]:
        binding = {scopes[0].id for _, scopes, binds in stands if binds}
        names: list[Name] = []
        for node, scopes, binds in stands:
            owner = next(scope for scope in scopes if scope.type not in _COMPREHENSIONS)
            scope = scopes[0] if binds else _visible(scopes, binding)
            names.append(Name(node, scope, binds, owner))
        return names


def _visible(scopes: list[Node], binding: set[int]) -> Node:
    """Returns the innermost visible scope that binds the name; methods do not see the names of their class."""
    for number, scope in enumerate(scopes[:-1]):
        hidden = scope.type == "class_definition" and any(each.type not in _COMPREHENSIONS for each in scopes[:number])
        if scope.id in binding and not hidden:
            return scope
    return scopes[-1]


def _is_member(node: Node) -> bool:
    """True for an identifier that is not a variable: a member, a keyword argument, part of a module path."""
    parent = node.parent
    if parent is None:
        return True
    match parent.type:
        case "attribute":
            return node != part(parent, "object")
        case "keyword_argument":
            return node == part(parent, "name")
        case "keyword_pattern":
            return node == parent.named_children[0]
        case "aliased_import":
            return False
        case "dotted_name":
            return not is_binding(node) and parent.parent is not None and parent.parent.type != "case_pattern"
        case _:
            return False


def is_binding(node: Node) -> bool:
    """True if an identifier binds its name where it stands."""
    child, parent = node, node.parent
    while parent is not None and parent.type in _PATTERNS and parent.parent is not None:
        child, parent = parent, parent.parent
    if parent is None:
        return False
    kind = parent.type
    if kind in _LEFT:
        return child == part(parent, "left")
    if kind in _DEFINITIONS or kind == "named_expression":
        return child == part(parent, "name")
    if kind in _PARAMETER_LISTS:
        return True
    if kind in _PARAMETERS:
        field = _PARAMETERS[kind]
        return child == (part(parent, field) if field else parent.named_children[0])
    if kind == "as_pattern_target" or kind == "delete_statement":
        return True
    if kind == "expression_list":
        return parent.parent is not None and parent.parent.type == "delete_statement"
    if kind == "aliased_import":
        return child == part(parent, "alias")
    if kind == "dotted_name":
        return _imports(child, parent) or (_matches(parent) and parent.named_child_count == 1)
    if kind == "as_pattern":
        return child == parent.named_children[-1]
    if kind == "type":
        return is_a(parent.parent, "type_alias_statement") and parent == part(parent.parent, "left")
    return kind in ("type_parameter", "splat_pattern")


def _imports(name: Node, dotted: Node) -> bool:
    statement = dotted.parent
    if statement is None or name != dotted.named_children[0]:
        return False
    is_import = statement.type in ("import_statement", "import_from_statement", "future_import_statement")
    return is_import and dotted != part(statement, "module_name")


def _matches(dotted: Node) -> bool:
    return dotted.parent is not None and dotted.parent.type in _CASES


def _is_walrus_target(node: Node) -> bool:
    return node.parent is not None and node.parent.type == "named_expression" and node == part(node.parent, "name")


def dotted_path(node: Node | None) -> str:
    """Returns `a.b.c` for a name or its attributes, without white space; empty for other expressions."""
    parts: list[str] = []
    while node is not None and node.type == "attribute":
        parts.append(text_of(part(node, "attribute")))
        node = part(node, "object")
    is_name = node is not None and node.type == "identifier"
    return ".".join([text_of(node), *reversed(parts)]) if is_name else ""
