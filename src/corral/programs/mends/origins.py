"""Traces Python expressions to the tool results that they come from, through names with a single meaning."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tree_sitter import Node

from corral.programs.python.names import Names, dotted_path
from corral.programs.syntax.parsing import arguments_of, enclosing, inside, is_a, part, text_of

_TOOLS = ("tools", "codemode")
_HOPS = 12
_MAX_BINDINGS = 50
_SAME = frozenset({"sorted", "list", "tuple", "reversed"})
"""Functions that return the items of their first argument."""
_ONE = frozenset({"min", "max", "next"})
"""Functions that return one item of their first argument."""
_KEYED = frozenset({"sorted", "min", "max"})
_COMPREHENSIONS = frozenset({"list_comprehension", "generator_expression"})
_METHODS = frozenset(dir(dict))


_Variable: TypeAlias = tuple[str, int]
"""A name, and its scope."""


class Origin(NamedTuple):
    """The tool that a value comes from, and the steps to it in the result: keys, and None for an item."""

    path: str
    steps: tuple[str | None, ...] = ()

    def part(self, step: str | None) -> Origin:
        return Origin(self.path, (*self.steps, step))


class Origins:
    """Origins of the expressions of one program. Every method can raise TooMuch.

    With `annotated`, names that the program annotates also count.
    """

    def __init__(self, names: Names, *, annotated: bool) -> None:
        self._names = names
        self._annotated = annotated
        self._scopes: dict[str, dict[int, int]] = {}
        self._binders: dict[_Variable, list[Node]] = {}
        self._known: dict[_Variable, Origin | None] = {}

    def of(self, value: Node | None, hops: int = _HOPS) -> Origin | None:
        """Returns the origin of an expression; None if it is not certain."""
        if value is None or hops <= 0:
            return None
        match value.type:
            case "parenthesized_expression" | "await" if value.named_children:
                return self.of(value.named_children[0], hops - 1)
            case "subscript":
                whole = self.of(part(value, "value"), hops - 1)
                keys = value.children_by_field_name("subscript")
                if whole is None or len(keys) != 1:
                    return None
                key = _key_in(keys[0])
                return whole.part(key) if key is not None or keys[0].type in ("integer", "unary_operator") else None
            case "attribute":
                name = text_of(part(value, "attribute"))
                whole = self.of(part(value, "object"), hops - 1) if name not in _METHODS else None
                return None if whole is None else whole.part(name)
            case "identifier":
                return self._of_name(value, hops - 1)
            case "call" if text_of(part(value, "function")) in _ONE:
                return self._item(_first_argument(value), hops - 1)
            case "call":
                owner, _, path = dotted_path(part(value, "function")).partition(".")
                return Origin(path) if owner in _TOOLS and path else None
            case _:
                return None

    def _bindings(self, name: Node) -> tuple[_Variable, list[Node]]:
        """Returns the variable that a name refers to, and the nodes that bind it."""
        word = text_of(name)
        if word not in self._scopes:
            uses = self._names.of(word)
            self._scopes[word] = {each.node.id: each.scope.id for each in uses}
            for each in uses:
                if each.binds:
                    self._binders.setdefault((word, each.scope.id), []).append(each.node)
        variable = word, self._scopes[word].get(name.id, 0)
        return variable, self._binders.get(variable, [])

    def _of_name(self, name: Node, hops: int) -> Origin | None:
        """Returns the origin of a name whose bindings all have the same one."""
        variable, bound = self._bindings(name)
        if variable not in self._known:
            self._known[variable] = None  # ends recursion
            origins = {self._bound(each, hops) for each in bound} if len(bound) <= _MAX_BINDINGS else {None}
            self._known[variable] = origins.pop() if len(origins) == 1 else None
        return self._known[variable]

    def _bound(self, name: Node, hops: int) -> Origin | None:
        above = name.parent
        if above is None:
            return None
        if above.type == "lambda_parameters" and above.named_children == [name]:
            keyword = None if above.parent is None else above.parent.parent
            call = None if keyword is None else enclosing(keyword, ("call",))
            is_key = text_of(part(keyword, "name")) == "key" and keyword in arguments_of(call)
            return (
                self._item(_first_argument(call), hops)
                if is_key and text_of(part(call, "function")) in _KEYED
                else None
            )
        if above.type == "pattern_list" and is_a(above.parent, "assignment"):
            together = _gathered(part(above.parent, "right"))
            index = above.named_children.index(name)
            is_each = len(together) == len(above.named_children) and together[index].type == "call"
            return self.of(together[index], hops) if is_each else None
        if part(above, "left") != name:
            return None
        right = part(above, "right")
        if above.type == "assignment":
            is_known = self._annotated or part(above, "type") is None
            return self.of(right, hops) if is_known else None
        return self._item(right, hops) if above.type in ("for_statement", "for_in_clause") else None

    def _item(self, value: Node | None, hops: int) -> Origin | None:
        """Returns the origin of the items of an iterable."""
        if value is None or hops <= 0:
            return None
        if value.type in _COMPREHENSIONS:
            return self.of(part(value, "body"), hops - 1)
        if value.type == "identifier":
            _, bound = self._bindings(value)
            above = bound[0].parent if len(bound) == 1 else None
            if is_a(above, "assignment") and part(above, "left") == bound[0]:
                return self._item(part(above, "right"), hops - 1)
        together = _gathered(value)
        if len(together) == 1 and together[0].type == "list_splat" and together[0].named_children:
            return self._item(together[0].named_children[0], hops - 1)
        if value.type == "call" and text_of(part(value, "function")) in _SAME:
            return self._item(_first_argument(value), hops - 1)
        keys = value.children_by_field_name("subscript") if value.type == "subscript" else []
        if any(each.type == "slice" for each in keys):
            return self._item(part(value, "value"), hops - 1)
        whole = self.of(value, hops)
        return None if whole is None else whole.part(None)


def _key_in(literal: Node) -> str | None:
    """Returns the text of a plain string literal."""
    parts = literal.named_children
    is_plain = literal.type == "string" and text_of(literal)[:1] in "\"'"
    inner = [each for each in parts if each.type == "string_content"]
    return text_of(inner[0]) if is_plain and len(inner) == 1 and not inner[0].named_children else None


def _gathered(value: Node | None) -> list[Node]:
    """Returns the arguments of `await asyncio.gather(...)`."""
    call = inside(value) if is_a(value, "await") else None
    return arguments_of(call) if text_of(part(call, "function")) in ("asyncio.gather", "gather") else []


def _first_argument(call: Node | None) -> Node | None:
    return next(iter(arguments_of(call)), None)
