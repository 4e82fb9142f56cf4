"""Origins of values in a Python program: name bindings and tool results."""

from __future__ import annotations

import re

from tree_sitter import Node

from corral.checking.base import Check
from corral.checking.declared_tools import DeclaredTool, ToolSet
from corral.checking.inputs import spells
from corral.checking.python.dynamic_members import Writes, key_of
from corral.checking.python.expressions import anchor, iterable_of
from corral.programs.python.awaits import FUTURES
from corral.programs.syntax.parsing import part, text_of

_DICT = re.compile(r"(?:builtins\.)?dict\[")
_MEMBER = r"^\s*[\"']?{}[\"']?: (?:NotRequired\[)?(dict\[|)"


class PythonOrigins(Check):
    """A check that traces names to their bindings and to tools, with the server's help."""

    def __init__(self, root: Node, tools: ToolSet, writes: Writes) -> None:
        super().__init__(root, tools)
        self._writes = writes

    def _initial(self, name: Node) -> Node | None:
        """Returns the value assigned to a name that is bound exactly once."""
        own = [each for each in self.definitions(name) if each.own]
        if len(own) != 1:
            return None
        node = self.node_at(own[0])
        while node is not None and node.type not in ("assignment", "named_expression"):
            node = node.parent if node.type in ("identifier", "expression_statement") else None
        return part(node, "right") or part(node, "value")

    def _iterated(self, name: Node) -> Node | None:
        """Returns the iterable of the loop whose variable a name is."""
        own = [each for each in self.definitions(name) if each.own]
        bound = self.node_at(own[0]) if len(own) == 1 else None
        return None if bound is None else iterable_of(bound)

    def _texts(self, value: Node) -> list[Node]:
        """Returns the literals that a string can be: itself, its name's value, or the items of an iterated list."""
        if value.type == "identifier":
            bound = self._initial(value)
            iterable = self._iterated(value) if bound is None else None
            if iterable is not None and iterable.type == "identifier":
                iterable = self._initial(iterable)
            is_listed = iterable is not None and iterable.type in ("list", "tuple")
            texts = iterable.named_children if iterable is not None and is_listed else [bound]
        else:
            texts = [value]
        return (
            [each for each in texts if each is not None]
            if all(each and each.type == "string" for each in texts)
            else []
        )

    def _spells(self, texts: list[Node]) -> bool:
        """True if all of these literals spell numbers or booleans."""
        values = [self.read(each).value for each in texts]
        return all(isinstance(each, str) and spells(each) for each in values)

    def _is_declared(self, value: Node, hops: int = 8) -> bool:
        """True if a value is a tool's result or part of one."""
        node: Node | None = value
        for _ in range(hops):
            if node is not None and self._writes.is_forgotten(node):
                return False
            match None if node is None else node.type:
                case "identifier":
                    node = None if node is None else self._initial(node) or self._iterated(node)
                case "subscript":
                    node = part(node, "value")
                case "await" | "parenthesized_expression":
                    node = None if node is None else node.named_child(0)
                case "call":
                    function = part(node, "function")
                    return text_of(function) in FUTURES or self._tool_of(function) is not None
                case _:
                    return False
        return False

    def _is_dict(self, value: Node) -> bool:
        """True if a value is declared as a dict with arbitrary keys, such as `dict[str, Order]`."""
        node = self._initial(value) or value if value.type == "identifier" else value
        if node.type in ("await", "parenthesized_expression"):
            node = node.named_children[0]
        if node.type == "call":
            tool = self._tool_of(part(node, "function"))
            return tool is not None and _DICT.match(tool.returns) is not None
        key = key_of(node) if node.type == "subscript" else None
        if key is None:
            return False
        declared = re.findall(_MEMBER.format(re.escape(key)), self.tools.declarations.text, re.MULTILINE)
        return bool(declared) and all(each == "dict[" for each in declared)

    def _is_of_declared(self, value: Node) -> bool:
        """True if a value may be part of a result."""
        types = self.types(anchor(value))
        return not types or any(each.declared for each in types)

    def _may_be_object(self, name: Node | None) -> bool:
        """True if a name iterates over a value and may be a declared object."""
        return name is not None and self._iterated(name) is not None and bool(self.declared_types(name))

    def _is_namespace(self, value: Node) -> bool:
        """True if an expression is `tools` or one of its namespaces."""
        return bool(self.declared_types(anchor(value)))

    def _tool_of(self, function: Node | None) -> DeclaredTool | None:
        return self.tool_named(anchor(function))
