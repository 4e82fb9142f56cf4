"""Origins of values in a TypeScript program: tools and their results, or the program itself."""

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
from corral.programs.syntax.typescript import FUNCTIONS, text_of, unwrapped


class Origins(Check):
    """Asks the server, and reads the program, for where a value comes from."""

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
        """The tool, as the program calls it, whose promise an expression is: its call, or a constant that holds it."""
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
        """True if it is a function of the program's own that gives a promise."""
        if called.type != "identifier":
            return False
        places = [each for each in self.definitions(called) if each.own]
        return len(places) == 1 and (name := self.node_at(places[0])) is not None and defines_async(name)

    def _called(self, call: Node) -> Node:
        return unwrapped(call.child_by_field_name("function") or call)

    def _is_tool(self, called: Node) -> bool:
        return self._tool_of(called) is not None

    def _tool_of(self, called: Node) -> DeclaredTool | None:
        return self.tool_named(anchor(called))

    def _tool_call(self, node: Node, *, counted: bool = False) -> Node | None:
        """The call of a tool that something is in the arguments of; it belongs to the innermost call around it.

        `counted`: it may be any part of the call.
        """
        below, above = node, node.parent
        while above is not None and (above.type not in FUNCTIONS or above == node):
            if above.type == "call_expression":
                is_argument = below == above.child_by_field_name("arguments")
                if is_argument or counted:
                    return above if self._is_tool(self._called(above)) else None
            below, above = above, above.parent
        return None

    def _initial(self, name: Node) -> Node | None:
        """The value of a constant at its declaration."""
        for location in self.definitions(name):
            if location.own:
                node = self.node_at(location)
                declarator = None if node is None else node.parent
                if node is not None and declarator is not None and declarator.type == "variable_declarator":
                    is_constant = declarator.parent is not None and declarator.parent.children[0].type == "const"
                    return (
                        declarator.child_by_field_name("value") if is_constant and node.type == "identifier" else None
                    )
        return None

    def _is_declared(self, expression: Node, hops: int = 2) -> bool:
        """True if an expression is a result, or a member of one, by the declarations."""
        name = anchor(expression)
        if name is None:
            return False
        is_shorthand = name.type == "shorthand_property_identifier"  # its definitions are also what it is given for
        declared = [] if is_shorthand else self.declared_definitions(name)
        if declared:
            return not any(map(self._is_rewritten, declared))
        if not (is_shorthand or name.type in ("identifier", "shorthand_property_identifier_pattern")) or not hops:
            return False
        value = self._initial(name) or self._visited(name) or self._looped(name)
        return value is not None and self._is_declared(value, hops - 1)

    def _is_set_elsewhere(self, name: Node) -> bool:
        """True if a function that is not around a variable's use assigns to it: the compiler does not follow that."""
        functions = self._assigned.get(text_of(name), ())
        return any(not start <= name.start_byte < end for start, end in functions)

    def _is_rewritten(self, location: Location) -> bool:
        return self._rewritten.covers(self.tools.span(location)[0])

    def _looped(self, name: Node) -> Node | None:
        """The iterable of the loop that a name is the constant of: `rows` in `for (const row of rows)`."""
        for location in self.definitions(name):
            if location.own and (bound := self.node_at(location)) is not None:
                return loop_over(bound)
        return None

    def _visited(self, name: Node) -> Node | None:
        """The array iterated by the function whose parameter a name is: `rows` in `rows.map((row) => …)`."""
        for location in self.definitions(name):
            if location.own and (bound := self.node_at(location)) is not None:
                call = called_with(bound)
                called = None if call is None else self._called(call)
                return None if called is None else called.child_by_field_name("object")
        return None

    def _is_annotated(self, expression: Node) -> bool:
        """True if the program annotates the type of a variable."""
        root = root_of(expression)
        nodes = [] if root is None else [self.node_at(each) for each in self.definitions(root) if each.own]
        parents = [node.parent for node in nodes if node is not None and node.parent is not None]
        return any(parent.child_by_field_name("type") is not None for parent in parents)

    def _is_known(self, expression: Node) -> bool:
        """True if a value is a literal, or its type is declared."""
        literal = self._held(expression)
        return literal.type in ("string", "template_string") or self._is_declared(literal)

    def _spells(self, expression: Node) -> bool:
        """True if a value is a text that is written out and spells a number or a boolean."""
        return isinstance(text := self.read(self._held(expression)).value, str) and spells(text)

    def _held(self, expression: Node) -> Node:
        """The value of a constant, or the expression itself."""
        expression = unwrapped(expression)
        value = self._initial(expression) if expression.type.endswith("identifier") else None
        return expression if value is None else unwrapped(value)
