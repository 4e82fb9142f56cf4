"""Finds values that a Python program stores in results, so that their declarations no longer hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from corral.checking.languages import ANY
from corral.programs.edits import Edits
from corral.programs.python.names import Names, TooMuch
from corral.programs.syntax.parsing import arguments_of, enclosing, is_a, part, text_of
from corral.programs.syntax.python import FUNCTIONS, finder, unwrapped

_FOUND = finder(
    "(assignment left: (_) @target) (for_statement left: (_) @target) (delete_statement (_) @target)"
    "(augmented_assignment) @augmented (call function: (attribute)) @called"
    "(with_item value: (as_pattern alias: (as_pattern_target (_) @target)))"
)
_ASSIGNED = finder("(assignment right: (lambda) @lambda) (assignment right: (call) @call)")
_NESTING = re.compile(rb"\b(?:zip|enumerate)\s*\(")
_MAY_BE_ENDLESS = re.compile(rb"=\s*lambda\b|" + _NESTING.pattern)
_READS = finder("(subscript) @read")
_SIGN = re.compile(
    rb"\]\s*(?:=(?!=)|[-+*/|&%^]+=|,|\)|in\b|:)|\bdel\b|\|=|\+=|\.(?:update|setdefault|__setitem__|pop|append|insert|extend|add)\b"
)
"""Matches every program that stores values."""
_PATTERNS = frozenset({"pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern", "expression_list"})
_FILLING = frozenset({"append", "insert", "extend", "add"})
_MAKING = frozenset({"dict", "list", "set", "defaultdict", "Counter", "OrderedDict", "deque"})
_SCALARS = frozenset({"string", "integer", "float", "true", "false", "none", "concatenated_string", "unary_operator"})
_MAX_READS = 1_000
_MAX_STEPS = 20_000
"""Maximum number of nodes in stored values. Beyond it, any member counts as set."""


def key_of(node: Node) -> str | None:
    """Returns the literal key of a subscript or of a call of `get`."""
    keys = node.children_by_field_name("subscript") if node.type == "subscript" else arguments_of(node)[:1]
    return _text(keys[0]) if len(keys) == 1 else None


def value_of(node: Node) -> Node | None:
    """Returns the owner in a subscript or a method call."""
    return part(node, "value") if node.type == "subscript" else part(node, "function", "object")


class Writes:
    """Members that a program sets, and the containers to which it adds members by computed names."""

    def __init__(self, root: Node, names: Names, text: bytes) -> None:
        self._names = names
        self.keys: set[str] = set()
        """Members set on values that may be results."""
        self.open: list[Node] = []
        """Containers that get members by computed names."""
        self._mentioned: set[str] = set()
        self._steps = 0
        self._reads: list[Node] = []
        self._variables: set[tuple[str, int]] = set()
        self._root = root
        matches = _FOUND(root) if _SIGN.search(text) else {}
        for node in matches.get("target", ()):
            for target in _targets(node):
                self._put(target)
        for node in matches.get("augmented", ()):
            self._add(node)
        for node in matches.get("called", ()):
            self._call(node)
        self._written = {each.id for node in matches.get("target", ()) for each in _targets(node)}

    def sets(self, key: str) -> bool:
        """True if the program sets a member of this name anywhere."""
        return key in self.keys or key in self._mentioned or self._steps >= _MAX_STEPS

    def forget(self, owner: Node) -> bool:
        """Treats the owner of an undeclared value as `Any`. Returns True unless it already was."""
        known = len(self.keys), len(self._variables)
        self._forget(owner)
        return known != (len(self.keys), len(self._variables))

    def is_forgotten(self, node: Node) -> bool:
        """True if a member or variable counts as `Any`, because the program stores values there."""
        if node.type in ("subscript", "call"):
            key = key_of(node)
            return key is not None and key in self.keys
        return node.type == "identifier" and self._variable(node) in self._variables

    def hide(self, edits: Edits) -> None:
        """Adds edits with which the type checker reads values from there as `Any`."""
        hidden: set[int] = set()
        reads = [*self._reads, *_READS(self._root).get("read", ())] if self.keys else []
        for node in sorted(reads, key=lambda each: each.end_byte - each.start_byte)[:_MAX_READS]:
            if key_of(node) not in self.keys:
                continue
            inner = value_of(node)
            while inner is not None and inner.id not in hidden:
                inner = value_of(inner) if inner.type in ("subscript", "call") else None
            hidden.add(node.id)
            if inner is None and not self._is_written(node):
                edits.wrap(node.start_byte, node.end_byte, f"{ANY}(".encode(), b")")
        for word, scope in self._variables:
            for name in self._names.of(word):
                if not name.binds and name.scope.id == scope and not self._is_written(name.node):
                    edits.wrap(name.node.start_byte, name.node.end_byte, f"{ANY}(".encode(), b")")
        for value in _endless(self._root) if _MAY_BE_ENDLESS.search(edits.text) else ():
            edits.wrap(value.start_byte, value.end_byte, f"{ANY}(".encode(), b")")

    def _is_written(self, node: Node) -> bool:
        is_augmented = is_a(node.parent, "augmented_assignment") and part(node.parent, "left") == node
        return node.id in self._written or is_augmented

    def _put(self, target: Node) -> None:
        """Records that a subscript is assigned or deleted."""
        owner, key = value_of(target), key_of(target)
        if owner is None or self._is_own(owner):
            return
        if key is not None:
            self.keys.add(key)
        elif [each.type for each in target.children_by_field_name("subscript")] not in (["integer"], ["slice"]):
            self.open.append(owner)
        assigned = part(target.parent, "right")
        if assigned is not None:
            self._mention(assigned)

    def _add(self, statement: Node) -> None:
        left, right = part(statement, "left"), part(statement, "right")
        if left is None or right is None:
            return
        if left.type == "subscript":
            self._put(left)
        if self._is_own(left):
            return
        if "|" in text_of(part(statement, "operator")):
            self._update(left, [right])
        self._mention(right)

    def _call(self, call: Node) -> None:
        owner, passed = value_of(call), arguments_of(call)
        method = text_of(part(call, "function", "attribute"))
        if owner is None:
            return
        if method == "get":
            self._reads.append(call)
        elif method in ("update", "setdefault", "__setitem__", "pop") and not self._is_own(owner):
            key = key_of(call)
            if method == "update":
                self._update(owner, passed)
            elif key is not None:
                self.keys |= {key} if method != "pop" else set()
                self._mentioned.add(key)
            elif method == "__setitem__" or (method == "setdefault" and passed):
                self.open.append(owner)
        if method in _FILLING and not self._is_own(owner):
            self._mention(*passed)

    def _update(self, owner: Node, arguments: list[Node]) -> None:
        for each in arguments:
            if each.type == "keyword_argument":
                self.keys.add(text_of(part(each, "name")))
            elif each.type == "dictionary" and all(inner.type in ("pair", "comment") for inner in each.named_children):
                self.keys |= set(_keys_of(each))
                self._mention(each)
            else:
                self.open.append(owner)

    def _mention(self, *values: Node) -> None:
        """Records the keys of all dict literals in stored values."""
        waiting = list(values)
        while waiting and self._steps < _MAX_STEPS:
            node = waiting.pop()
            self._steps += 1
            self._mentioned |= set(_keys_of(node))
            waiting += node.named_children

    def _forget(self, owner: Node) -> None:
        owner = unwrapped(owner)
        if owner.type in ("subscript", "call") and (key := key_of(owner)) is not None:
            self.keys.add(key)
        elif owner.type == "subscript" and (inner := value_of(owner)) is not None:
            self._forget(inner)
        elif owner.type == "identifier" and (variable := self._variable(owner)) not in self._variables:
            self._variables.add(variable)
            for value in self._assigned(owner):
                if value.type in ("subscript", "identifier"):
                    self._forget(value)

    def _variable(self, name: Node) -> tuple[str, int]:
        word = text_of(name)
        try:
            scopes = (each.scope.id for each in self._names.of(word) if each.node == name)
            return word, next(scopes, 0)
        except TooMuch:
            return word, 0

    def _assigned(self, name: Node) -> Iterator[Node]:
        """Yields the values assigned to a variable in order, and other nodes that bind it."""
        word, scope = self._variable(name)
        try:
            bound = [each.node for each in self._names.of(word) if each.binds and each.scope.id == scope]
        except TooMuch:
            return
        for each in bound:
            kind = "" if each.parent is None else each.parent.type
            value = part(each.parent, "right") if kind == "assignment" else None
            if value is not None and part(each.parent, "left") == each:
                yield unwrapped(value)
            elif kind not in ("assignment", "augmented_assignment"):
                yield each

    def _is_own(self, owner: Node) -> bool:
        """True if a value is certainly the program's own container, without parts of results."""
        if owner.type != "identifier":
            return False
        values = list(self._assigned(owner))
        return bool(values) and all(map(_is_made, values))


def _targets(node: Node) -> Iterator[Node]:
    """Yields the subscripts among the targets of an assignment."""
    if node.type == "subscript":
        yield node
    elif node.type in _PATTERNS:
        for each in node.named_children:
            yield from _targets(each)


def _is_made(value: Node) -> bool:
    if value.type == "call":
        passed = arguments_of(value)
        name = text_of(part(value, "function")).rpartition(".")[2]
        return name in _MAKING and (not passed or name in ("defaultdict", "Counter"))
    if value.type == "dictionary":
        parts = [part(each, "value") for each in value.named_children if each.type != "comment"]
    elif value.type in ("list", "set"):
        parts = [each for each in value.named_children if each.type != "comment"]
    else:
        return False
    return all(each is not None and (each.type in _SCALARS or _is_made(each)) for each in parts)


def _keys_of(value: Node) -> Iterator[str]:
    """Yields the keys of a dict literal or a call of `dict`."""
    if value.type == "dictionary":
        for pair in value.named_children:
            key = part(pair, "key")
            if key is not None and (text := _text(key)) is not None:
                yield text
    elif value.type == "call" and text_of(part(value, "function")) == "dict":
        yield from (text_of(part(each, "name")) for each in arguments_of(value) if each.type == "keyword_argument")


def _text(key: Node) -> str | None:
    if key.type != "string" or any(each.type == "interpolation" for each in key.named_children):
        return None
    return text_of(key).strip("\"'")


def _endless(root: Node) -> Iterator[Node]:
    """Yields values with endlessly nested types, on which the type checker does not terminate.

    These are lambdas that refer to themselves, and variables that a loop wraps in `zip` or `enumerate`.
    """
    matches = _ASSIGNED(root)
    for value in matches.get("lambda", ()):
        if _mentions(part(value, "body"), name := _name_of(value)) and not _mentions(part(value, "parameters"), name):
            yield value
    for value in matches.get("call", ()):
        if _NESTING.search(value.text or b"") and _mentions(value, _name_of(value)) and _in_loop(value):
            yield value


def _name_of(value: Node) -> str:
    return text_of(part(value.parent, "left"))


def _mentions(value: Node | None, name: str) -> bool:
    return re.search(rf"(?<![.\w]){re.escape(name)}\b", text_of(value)) is not None


def _in_loop(node: Node) -> bool:
    above = enclosing(node, {*FUNCTIONS, "for_statement", "while_statement"})
    return above is not None and above.type not in FUNCTIONS
