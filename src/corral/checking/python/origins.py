"""Origins of values in a Python program: bindings of names, and results of tools."""

from __future__ import annotations

import re

from tree_sitter import Node

from corral.checking.base import Check
from corral.checking.declared_tools import DeclaredTool, ToolSet
from corral.checking.inputs import spells
from corral.checking.python.dynamic_members import Writes, key_of
from corral.checking.python.expressions import anchor, gone_through
from corral.programs.python.awaits import FUTURES
from corral.programs.syntax.parsing import text_of

_DICT = re.compile(r"(?:builtins\.)?dict\[")
_MEMBER = r"^\s*[\"']?{}[\"']?: (?:NotRequired\[)?(dict\[|)"


class PythonOrigins(Check):
    """A check that follows names to what they are bound to, as far as the server knows, and back to tools."""

    def __init__(self, root: Node, tools: ToolSet, writes: Writes) -> None:
        super().__init__(root, tools)
        self._writes = writes

    def _initial(self, name: Node) -> Node | None:
        """The value assigned to a name, if it is bound in one place."""
        own = [each for each in self.definitions(name) if each.own]
        if len(own) != 1:
            return None
        node = self.node_at(own[0])
        while node is not None and node.type not in ("assignment", "named_expression"):
            node = node.parent if node.type in ("identifier", "expression_statement") else None
        return None if node is None else node.child_by_field_name("right") or node.child_by_field_name("value")

    def _iterated(self, name: Node) -> Node | None:
        """The iterable of the loop whose variable a name is."""
        own = [each for each in self.definitions(name) if each.own]
        bound = self.node_at(own[0]) if len(own) == 1 else None
        return None if bound is None else gone_through(bound)

    def _texts(self, value: Node) -> list[Node]:
        """The literals that a string is one of: where it is used, where its name is bound, or in an iterated list."""
        if value.type == "identifier":
            bound = self._initial(value)
            gone_through = self._iterated(value) if bound is None else None
            if gone_through is not None and gone_through.type == "identifier":
                gone_through = self._initial(gone_through)
            is_listed = gone_through is not None and gone_through.type in ("list", "tuple")
            texts = gone_through.named_children if gone_through is not None and is_listed else [bound]
        else:
            texts = [value]
        return (
            [each for each in texts if each is not None]
            if all(each and each.type == "string" for each in texts)
            else []
        )

    def _spells(self, texts: list[Node]) -> bool:
        """True if these literals spell numbers or booleans."""
        values = [self.read(each).value for each in texts]
        return all(isinstance(each, str) and spells(each) for each in values)

    def _is_declared(self, value: Node, hops: int = 8) -> bool:
        """True if a value is a tool's result, or part of it."""
        node: Node | None = value
        for _ in range(hops):
            if node is not None and self._writes.is_forgotten(node):
                return False
            match None if node is None else node.type:
                case "identifier":
                    node = None if node is None else self._initial(node) or self._iterated(node)
                case "subscript":
                    node = None if node is None else node.child_by_field_name("value")
                case "await" | "parenthesized_expression":
                    node = node.named_children[0] if node is not None and node.named_children else None
                case "call":
                    function = None if node is None else node.child_by_field_name("function")
                    return function is not None and (
                        text_of(function) in FUTURES or self._tool_of(function) is not None
                    )
                case _:
                    return False
        return False

    def _is_dict(self, value: Node) -> bool:
        """True if a value is declared as a dict of unknown keys, as `dict[str, Order]`."""
        node = self._initial(value) or value if value.type == "identifier" else value
        if node.type in ("await", "parenthesized_expression"):
            node = node.named_children[0]
        if node.type == "call":
            function = node.child_by_field_name("function")
            tool = None if function is None else self._tool_of(function)
            return tool is not None and _DICT.match(tool.returns) is not None
        key = key_of(node) if node.type == "subscript" else None
        if key is None:
            return False
        declared = re.findall(_MEMBER.format(re.escape(key)), self.tools.declarations.text, re.MULTILINE)
        return bool(declared) and all(each == "dict[" for each in declared)

    def _is_of_declared(self, value: Node) -> bool:
        """True if a value may be part of a result."""
        name = anchor(value)
        types = [] if name is None else self.types(name)
        return not types or any(each.declared for each in types)

    def _may_be_object(self, name: Node | None) -> bool:
        """True if a name may stand for an object, or iterates over a value that may be one."""
        if name is None:
            return False
        return self._iterated(name) is not None and bool(self.declared_types(name))

    def _is_namespace(self, value: Node) -> bool:
        """True if an expression is the tools, or one of their namespaces."""
        name = anchor(value)
        return name is not None and bool(self.declared_types(name))

    def _tool_of(self, function: Node) -> DeclaredTool | None:
        return self.tool_named(anchor(function))
