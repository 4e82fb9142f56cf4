"""Origins of values in a TypeScript program: tools, their results, or the program itself."""

from __future__ import annotations

from tree_sitter import Node

from corral.checking.base import Check
from corral.checking.declared_tools import DeclaredTool
from corral.checking.declared_types import Reach
from corral.checking.inputs import spells
from corral.checking.servers.workspace import Location
from corral.checking.typescript.dynamic_members import DynamicMembers, root_of
from corral.checking.typescript.expressions import anchor, assigned_in, called_with, defines_async, loop_over
from corral.checking.typescript.rewritten_types import rewritten
from corral.concurrency.cached_property import cached_property
from corral.programs.syntax.parsing import part
from corral.programs.syntax.typescript import FUNCTIONS, text_of, unwrapped


class Origins(Check):
    """A check that traces values to their origin, with the server's help."""

    @cached_property
    def _dynamic(self) -> DynamicMembers:
        return DynamicMembers.of(self.root)

    @cached_property
    def _assigned(self) -> dict[str, list[tuple[int, int]]]:
        return assigned_in(self.root)

    @cached_property
    def _rewritten(self) -> Reach:
        return rewritten(self, self._dynamic, self.tools.types)

    def _promised(self, expression: Node) -> str | None:
        """Returns the source text of the tool whose promise an expression is, directly or through a constant."""
        expression = unwrapped(expression)
        if expression.type == "identifier":
            value = self._initial(expression)
            if value is None:
                return None
            expression = unwrapped(value)
        if expression.type != "call_expression":
            return None
        called = self._called(expression)
        tool = self._tool_of(called)
        promises = self._is_async(called) if tool is None else not tool.is_stream
        return text_of(called) if promises else None

    def _is_async(self, called: Node) -> bool:
        """True if it is the program's own async function."""
        if called.type != "identifier":
            return False
        places = [each for each in self.definitions(called) if each.own]
        return len(places) == 1 and (name := self.node_at(places[0])) is not None and defines_async(name)

    def _called(self, call: Node) -> Node:
        return unwrapped(part(call, "function") or call)

    def _is_tool(self, called: Node) -> bool:
        return self._tool_of(called) is not None

    def _tool_of(self, called: Node) -> DeclaredTool | None:
        return self.tool_named(anchor(called))

    def _tool_call(self, node: Node, *, counted: bool = False) -> Node | None:
        """Returns the innermost call with the node among its arguments, if it calls a tool.

        With `counted`, the node can be any part of the call.
        """
        below, above = node, node.parent
        while above is not None and (above.type not in FUNCTIONS or above == node):
            if above.type == "call_expression":
                is_argument = below == part(above, "arguments")
                if is_argument or counted:
                    return above if self._is_tool(self._called(above)) else None
            below, above = above, above.parent
        return None

    def _initial(self, name: Node) -> Node | None:
        """Returns the initial value of a constant."""
        for location in self.definitions(name):
            if location.own:
                node = self.node_at(location)
                declarator = None if node is None else node.parent
                if node is not None and declarator is not None and declarator.type == "variable_declarator":
                    is_constant = declarator.parent is not None and declarator.parent.children[0].type == "const"
                    return part(declarator, "value") if is_constant and node.type == "identifier" else None
        return None

    def _is_declared(self, expression: Node, hops: int = 2) -> bool:
        """True if an expression is a declared result or a member of one."""
        name = anchor(expression)
        if name is None:
            return False
        is_shorthand = name.type == "shorthand_property_identifier"  # its definitions include the member
        declared = [] if is_shorthand else self.declared_definitions(name)
        if declared:
            return not any(map(self._is_rewritten, declared))
        if not (is_shorthand or name.type in ("identifier", "shorthand_property_identifier_pattern")) or not hops:
            return False
        value = self._initial(name) or self._visited(name) or self._looped(name)
        return value is not None and self._is_declared(value, hops - 1)

    def _is_set_elsewhere(self, name: Node) -> bool:
        """True if another function assigns to the variable, which the compiler does not track."""
        functions = self._assigned.get(text_of(name), ())
        return any(not start <= name.start_byte < end for start, end in functions)

    def _is_rewritten(self, location: Location) -> bool:
        return self._rewritten.covers(self.tools.span(location)[0])

    def _looped(self, name: Node) -> Node | None:
        """Returns the iterable of the loop that binds a constant: `rows` in `for (const row of rows)`."""
        for location in self.definitions(name):
            if location.own and (bound := self.node_at(location)) is not None:
                return loop_over(bound)
        return None

    def _visited(self, name: Node) -> Node | None:
        """Returns the array that passes a callback parameter: `rows` in `rows.map((row) => …)`."""
        for location in self.definitions(name):
            if location.own and (bound := self.node_at(location)) is not None:
                call = called_with(bound)
                called = None if call is None else self._called(call)
                return part(called, "object")
        return None

    def _is_annotated(self, expression: Node) -> bool:
        """True if the program annotates the type of a variable."""
        root = root_of(expression)
        nodes = [] if root is None else [self.node_at(each) for each in self.definitions(root) if each.own]
        parents = [node.parent for node in nodes if node is not None and node.parent is not None]
        return any(part(parent, "type") is not None for parent in parents)

    def _is_known(self, expression: Node) -> bool:
        """True if a value is a literal or has a declared type."""
        literal = self._held(expression)
        return literal.type in ("string", "template_string") or self._is_declared(literal)

    def _spells(self, expression: Node) -> bool:
        """True if a value is a string literal that spells a number or a boolean."""
        return isinstance(text := self.read(self._held(expression)).value, str) and spells(text)

    def _held(self, expression: Node) -> Node:
        """Returns the value of a constant, or the expression itself."""
        expression = unwrapped(expression)
        value = self._initial(expression) if expression.type.endswith("identifier") else None
        return expression if value is None else unwrapped(value)
