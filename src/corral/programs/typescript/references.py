"""Finds the tools that a program refers to before it runs.

A path counts if it starts at a value that is certainly the tools: the global `tools` or `codemode`, a constant that
holds it, or the argument of the program's own function. If the tools flow anywhere else, the program may call any of
them, and `computed` is true.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from tree_sitter import Node

from corral.programs.edits import Edits
from corral.programs.syntax.typescript import FUNCTIONS, first_parameter, statements, text_of, unwrapped
from corral.programs.typescript.tool_imports import ToolImport
from corral.texts import TextIndex
from corral.types import MAX_TOOL_PATH, References, ToolReference

_MAX_REFERENCES = 1000
_MAX_STEPS = 5000
"""Maximum number of visited nodes; each takes up to 30 µs, deep in a tree."""

_TOOLS = ("tools", "codemode")
_GLOBALS = {name: name.encode() for name in ("globalThis", "self", "global", "eval", "Function", "arguments")}
"""Globals that lead to the tools. Other members of the global object do not."""

_OBSCURE = re.compile(
    rb"""\b(?:__proto__|__define[GS]etter__|definePropert(?:y|ies)|[gs]etPrototypeOf)\b"""
    rb"""|\bprototype\b(?!\s*\.\s*(?:hasOwnProperty|propertyIsEnumerable|isPrototypeOf|toString|slice|map|join)\b)"""
    rb"""|\b(?:add|remove)EventListener\b|\bdispatchEvent\b|\bon(?:error|message|unhandledrejection|rejectionhandled)\b"""
    rb"""|\.\s*constructor\b(?!\s*\??\.\s*name\b)|["'`]constructor["'`]"""
    rb"""|\b(?:Object|Reflect)\b(?!\s*(?:\?\.|\.)\s*\w|\s*[(),;>|&\]}=]|\s*$)|=\s*(?:Object|Reflect)\b(?!\s*[.(?])"""
)
"""Code that can run functions with the global object as `this`, or compile strings."""
_THIS = re.compile(rb"\bthis\b")
_ANY_MEMBER = re.compile(rb"""(?:[\w)\]]\s*(?:\?\.)?|[{,]\s*)\[(?!\s*(?:\d+|"[^"]*"|'[^']*')?\s*\])""")
"""Computed member, which could have one of those names. It counts together with `this`."""

_NAMES = frozenset({"identifier", "shorthand_property_identifier", "shorthand_property_identifier_pattern"})
_ESCAPABLE = _NAMES | {"property_identifier", "type_identifier"}
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$")
_MEMBERS = {"member_expression": "property", "subscript_expression": "index"}
_WRAPPERS = frozenset(
    {"parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression", "type_assertion"}
)
_NOT_CALLABLE = frozenset({"object", "array", "number", "string", "template_string", "true", "false", "null"})
_NOT_USES = frozenset({"type_query", "import_specifier"})
_ASSIGNMENTS = frozenset({"assignment_expression", "augmented_assignment_expression", "for_in_statement"})
_DEFAULTED = frozenset({"assignment_pattern", "object_assignment_pattern"})
_PATTERNS = _DEFAULTED | {"object_pattern", "array_pattern", "pair_pattern", "rest_pattern"}
_TARGETS = {
    "variable_declarator": "name",
    "required_parameter": "pattern",
    "assignment_expression": "left",
    "assignment_pattern": "left",
}
"""Nodes that bind a value, and the field of the target."""
_DECLARED_IN_ITSELF = {
    "arrow_function": "parameter",
    "catch_clause": "parameter",
    "class": "name",
    "function_expression": "name",
    "generator_function": "name",
    "for_in_statement": "left",
}
_DECLARED_AROUND = dict.fromkeys(
    (
        *("variable_declarator", "function_declaration", "generator_function_declaration", "class_declaration"),
        *("abstract_class_declaration", "enum_declaration", "internal_module", "module"),
    ),
    "name",
)
_IMPORTS = frozenset({"import_clause", "namespace_import", "import_require_clause"})
_NOT_SCOPES = frozenset(
    {"lexical_declaration", "export_statement", "expression_statement", "switch_case", "switch_default"}
)


def find_references(
    root: Node, edits: Edits, entered: Sequence[Node | str | None] = (), imported: Sequence[ToolImport] = ()
) -> References:
    """Returns the tools that a program refers to, by first occurrence, each at the position of its name.

    `entered` are callees that receive the tools: a function, the name of one, or None if that is known only at run
    time. Code that `edits` replace, such as types, does not count. `imported` are imported tools.
    """
    search = _Search(root, edits)
    try:
        search.run(entered, imported)
    except _TooMuch:
        search.computed = True
    return search.result()


class _TooMuch(Exception):
    """The program is too large to search."""


class _Declaration(NamedTuple):
    name: Node
    scope: Node


class _Variable(NamedTuple):
    name: str
    declared_at: int | None
    """None for a global."""


class _Search:
    def __init__(self, root: Node, edits: Edits) -> None:
        self.computed = root.has_error or _is_obscure(edits.text)
        self._root = root
        self._text = edits.text
        self._replaced = edits.replaced()
        self._named: dict[str, Node] = {}
        self._words: dict[str, tuple[list[_Declaration], list[Node]]] = {}
        self._holders = dict.fromkeys(_Variable(name, None) for name in _TOOLS)
        """Variables that hold the tools, in order of discovery."""
        self._steps = 0

    def run(self, entered: Sequence[Node | str | None], imported: Sequence[ToolImport]) -> None:
        self._look_for_escapes()
        for path, place in imported:
            if path is None:
                self.computed = True
            else:
                self._name([path], place)
        for each in entered:
            self._enter(each)
        for name, word in _GLOBALS.items():
            if word in self._text:
                for use in self._uses(_Variable(name, None)):
                    self._reach(use)
        pending = list(self._holders)
        while pending:
            known = len(self._holders)
            variable = pending.pop()
            uses = self._uses(variable)
            if variable.declared_at is not None and any(self._is_assigned(use) for use in uses):
                self.computed = True
            else:
                for use in uses:
                    self._refer(use)
            pending += list(self._holders)[known:]

    def result(self) -> References:
        if not self._named:
            return References((), self.computed)
        named = sorted(self._named.items(), key=_start)
        if self._text.isascii():
            points = [(path, place.start_point) for path, place in named]
            return References(
                tuple(ToolReference(path, row + 1, column + 1) for path, (row, column) in points), self.computed
            )
        index = TextIndex(self._text)
        places = [(path, index.position(place.start_byte)) for path, place in named]
        return References(tuple(ToolReference(path, place.line, place.column) for path, place in places), self.computed)

    # --- names, and where they are visible

    def _uses(self, variable: _Variable) -> list[Node]:
        """Returns the occurrences of a name that refer to this variable, not to an inner declaration."""
        declarations, uses = self._look_up(variable.name)
        if not declarations:
            return uses
        own = [scope for name, scope in declarations if name.start_byte == variable.declared_at]
        if own and sum(scope == own[0] for _, scope in declarations) > 1:  # declared twice
            self.computed = True
            return []
        visible_uses: list[Node] = []
        for use in uses:
            self._step(len(declarations))
            visible = [
                (scope.end_byte - scope.start_byte, name.start_byte)
                for name, scope in declarations
                if scope.start_byte <= use.start_byte < scope.end_byte
            ]
            if (min(visible)[1] if visible else None) == variable.declared_at:
                visible_uses.append(use)
        return visible_uses

    def _look_up(self, name: str) -> tuple[list[_Declaration], list[Node]]:
        if name not in self._words:
            declarations, uses = self._words[name] = [], []
            for node in self._occurrences(name.encode()):
                scope = self._scope(node)
                if scope is not None:
                    declarations.append(_Declaration(node, scope))
                elif node.type != "type_identifier":
                    uses.append(node)
        return self._words[name]

    def _occurrences(self, word: bytes) -> Iterator[Node]:
        text = self._text
        end = 0
        while (at := text.find(word, end)) >= 0:
            end = at + len(word)
            if (at and text[at - 1] in _WORD) or (end < len(text) and text[end] in _WORD):
                continue
            self._step()
            node = self._root.descendant_for_byte_range(at, end)
            if node is None or (node.start_byte, node.end_byte) != (at, end) or self._is_replaced(at):
                continue
            if node.type in _NAMES or node.type == "type_identifier":  # also the name of a class
                yield node

    def _scope(self, name: Node) -> Node | None:
        """Returns the scope of a declaration; None if the name is not declared there."""
        inner, owner = name, self._parent(name)
        if (kind := owner.type) in _MEMBERS:
            return None
        while kind in _PATTERNS and not (kind in _DEFAULTED and not _leads(inner, owner)):
            inner, owner = owner, self._parent(owner)
            kind = owner.type
        if kind in _IMPORTS or (kind == "import_specifier" and inner.end_byte == owner.end_byte):
            return self._root
        if kind == "import_alias":
            return self._root if inner == owner.named_children[0] else None
        if kind in ("required_parameter", "optional_parameter"):
            is_pattern = inner == owner.child_by_field_name("pattern")
            return self._parent(self._parent(owner)) if is_pattern else None
        if kind in _DECLARED_IN_ITSELF:
            is_own = inner == owner.child_by_field_name(_DECLARED_IN_ITSELF[kind])
            is_assigned = kind == "for_in_statement" and owner.child_by_field_name("kind") is None
            return owner if is_own and not is_assigned else None
        if kind not in _DECLARED_AROUND or inner != owner.child_by_field_name("name"):
            return None
        scope = self._parent(owner)
        is_hoisted = scope.type == "variable_declaration"
        while scope.parent is not None and (scope.type not in FUNCTIONS if is_hoisted else scope.type in _NOT_SCOPES):
            scope = self._parent(scope)
        return scope

    # --- uses of the tools

    def _enter(self, function: Node | str | None) -> None:
        """Follows the tools into a function that is called with them."""
        if function is None:
            self.computed = True
        elif isinstance(function, str):
            declarations, uses = self._look_up(function)
            self.computed |= any(self._is_assigned(use) for use in uses)
            self.computed |= all(scope != self._root for _, scope in declarations)
            for name, scope in declarations:
                owner = self._parent(name)
                value = unwrapped(owner.child_by_field_name("value") or owner)
                if scope == self._root and value.type in FUNCTIONS:
                    self._enter(value)
                elif scope == self._root:
                    self.computed |= value.type not in _NOT_CALLABLE
        elif (first := first_parameter(function)) is not None:
            pattern = first.child_by_field_name("pattern")
            self._bind(pattern or first, plain=pattern is not None)

    def _bind(self, target: Node, *, plain: bool = False) -> None:
        """Follows the tools into a target. A `plain` tools object has `tools` as a member."""
        if target.type in _NAMES:
            self._holders[_Variable(text_of(target), target.start_byte)] = None
        elif target.type == "object_pattern":
            self._take(target, [], plain=plain)
        else:
            self.computed = True

    def _take(self, pattern: Node, keys: list[str], *, plain: bool = False) -> None:
        """Follows members of the tools, or of the namespace `keys`, into a pattern."""
        for member in statements(pattern):
            self._step()
            name = next(iter(member.children), member)
            value = member.child_by_field_name("value") or name
            value = value.children[0] if value.type in _DEFAULTED else value
            key = _constant(name)
            if key is None:
                self._any(keys, pattern)
            elif plain and key in _TOOLS:
                self._bind(value)
            elif value.type == "object_pattern" and not keys:
                self._take(value, [key])
            else:
                self._name([*keys, key], name)

    def _refer(self, use: Node) -> None:
        keys: list[str] = []
        place = use
        value, owner = self._unwrap(use)
        while (name := _member(value, owner)) is not None and len(keys) < 2 and "." not in "".join(keys):
            key = _constant(name)
            if key is None:
                return self._any(keys, place)
            keys.append(key)
            place = name
            value, owner = self._unwrap(owner)
        target = self._target(value, owner)
        if owner.type in _NOT_USES:
            return None
        if target is not None and target.type == "object_pattern" and len(keys) < 2:
            return self._take(target, keys)
        if keys:
            return self._name(keys, place)
        if target is not None and self._is_constant(owner):
            return self._bind(target)
        self.computed |= not _is_typeof(owner)
        return None

    def _reach(self, use: Node) -> None:
        """Judges a use of the global object or of another global that leads to the tools."""
        value, owner = self._unwrap(use)
        name = _member(value, owner)
        if name is not None:
            key = _constant(name)
            self.computed |= key is None or key in _TOOLS or key in _GLOBALS
        else:
            self.computed |= owner.type not in _NOT_USES and not _is_typeof(owner)

    def _target(self, value: Node, owner: Node) -> Node | None:
        """Returns the target that a value is bound to, if it does not flow anywhere else."""
        field = _TARGETS.get(owner.type)
        if field is None or _leads(value, owner):
            return None
        flows_on = owner.type == "assignment_expression" and self._unwrap(owner)[1].type != "expression_statement"
        return None if flows_on else owner.child_by_field_name(field)

    def _is_constant(self, declarator: Node) -> bool:
        return declarator.type == "variable_declarator" and self._parent(declarator).children[0].type == "const"

    def _is_assigned(self, use: Node) -> bool:
        owner = self._parent(use)
        return owner.type in _ASSIGNMENTS and owner.child_by_field_name("left") == use

    def _any(self, keys: list[str], place: Node) -> None:
        """Records that any member of the tools, or of the namespace `keys`, may be used."""
        if keys:
            self._name(keys, place)
        else:
            self.computed = True

    def _name(self, keys: list[str], place: Node) -> None:
        path = ".".join(keys)
        if len(path) > MAX_TOOL_PATH:
            self.computed = True
        elif path not in self._named and len(self._named) == _MAX_REFERENCES:
            raise _TooMuch
        elif path not in self._named or place.start_byte < self._named[path].start_byte:
            self._named[path] = place

    def _look_for_escapes(self) -> None:
        r"""Looks for names spelled with `\u`, which can be any name."""
        text, at = self._text, self._text.find(b"\\u")
        while at >= 0 and not self.computed:
            self._step()
            node = self._root.descendant_for_byte_range(at, at + 1)
            self.computed = node is not None and node.type in _ESCAPABLE
            at = text.find(b"\\u", at + 2)

    # --- nodes

    def _unwrap(self, expression: Node) -> tuple[Node, Node]:
        """Returns the outermost expression with the same value, and its parent."""
        owner = self._parent(expression)
        while owner.type in _WRAPPERS:
            expression, owner = owner, self._parent(owner)
        return expression, owner

    def _parent(self, node: Node) -> Node:
        self._step()
        return node.parent or node

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > _MAX_STEPS:
            raise _TooMuch

    def _is_replaced(self, at: int) -> bool:
        before = bisect_right(self._replaced, at, key=itemgetter(0)) - 1
        return before >= 0 and at < self._replaced[before][1]


def _is_obscure(text: bytes) -> bool:
    return _OBSCURE.search(text) is not None or (
        _THIS.search(text) is not None and _ANY_MEMBER.search(text) is not None
    )


def _start(item: tuple[str, Node]) -> int:
    return item[1].start_byte


def _leads(part: Node, whole: Node) -> bool:
    return part.start_byte == whole.start_byte


def _is_typeof(owner: Node) -> bool:
    return owner.type == "unary_expression" and owner.children[0].type == "typeof"


def _member(value: Node, owner: Node) -> Node | None:
    """Returns the key of the member that is read from a value."""
    field = _MEMBERS.get(owner.type)
    return owner.child_by_field_name(field) if field is not None and _leads(value, owner) else None


def _constant(key: Node) -> str | None:
    """Returns the text of a literal key."""
    if key.type == "computed_property_name":
        key = key.named_children[0]
    key = unwrapped(key)
    if key.type in ("property_identifier", "shorthand_property_identifier_pattern"):
        return text_of(key)
    parts = key.named_children
    if key.type in ("string", "template_string") and [part.type for part in parts] == ["string_fragment"]:
        return text_of(parts[0])
    return None
