"""Results of tools that a TypeScript program takes for what they are not: a dictionary for an array, say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tree_sitter import Node

from corral.checking.declared_types import is_dictionary
from corral.checking.findings import Finding
from corral.checking.hints.typescript import conversion_hint, without_markup
from corral.checking.servers.workspace import Location
from corral.checking.typescript.expressions import (
    anchor,
    called_on,
    hedged_name,
    hedged_variable,
    is_called,
    is_tested,
    is_tried,
    iterated,
)
from corral.checking.typescript.messages import certainly_differs, named_types, union_members
from corral.checking.typescript.origins import Origins
from corral.checking.typescript.suspects import (
    Places,
    async_visits,
    gathered_too_late,
    misused_dictionaries,
    named_tools,
    tools_as_callbacks,
)
from corral.concurrency.cached_property import cached_property
from corral.programs.syntax.typescript import text_of, unwrapped, walk

__all__ = ["Misuse"]

_TYPE = re.compile(r"Type '(.*?)' (?:must have|is not an array type|is not a generic|can only be)", re.DOTALL)
_IF_JSON = "If it is JSON, parse it first: JSON.parse(...)."
_MAX_SHOWN_CHARS = 60


class Misuse(Origins):
    """Says what fails with any value that is declared so, unless that is caught, or is asked before."""

    @cached_property
    def _places(self) -> Places:
        return Places(self.root)

    @cached_property
    def _hedged(self) -> set[str]:
        """Members that the program does not count on."""
        return {name for node in walk(self.root) if (name := hedged_name(node))}

    @cached_property
    def _hedged_variables(self) -> set[str]:
        return {name for node in walk(self.root) if (name := hedged_variable(node))}

    @cached_property
    def _named(self) -> dict[str, str]:
        return named_types(self.tools.declarations.text)

    @cached_property
    def _tool_names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.tools.tools)

    def _not_callable(self, warning: Finding, node: Node) -> Finding | None:
        """A declared member that is called: what a tool gives has no functions."""
        name = node if node.type == "property_identifier" else None
        member = None if name is None else name.parent
        owner = None if member is None else member.child_by_field_name("object")
        if name is None or member is None or owner is None or not is_called(member) or is_tried(node):
            return None
        places = self.declared_definitions(name)
        if text_of(name) in self._hedged | self._dynamic.names or not places or any(map(self._is_rewritten, places)):
            return None
        if self._is_asked_for(owner) or not self._is_declared(owner):
            return None
        if self._is_dictionary(owner):
            return None  # which is said of it elsewhere, if it can be
        message = f"{text_of(name)!r} is not a function"
        return warning.rejected("member", message=message, declared=self._member_at(places[0]))

    def _of_text(self, warning: Finding, name: Node, owner: Node) -> Finding:
        """A member that a declared text does not have."""
        message, _, suggestion = without_markup(warning.message).partition(" Did you mean")
        hint = conversion_hint(text_of(name), _shown(owner))
        # Texts have no property but one, so that no other is meant where nothing is called.
        is_near = "'length'" in suggestion or (name.parent is not None and is_called(name.parent))
        if hint is None and suggestion and is_near:
            return warning.rejected("member", message=f"{message} Did you mean{suggestion}")
        return warning.rejected("member", message=message, hint=hint or f"{self._text_taken(owner)} {_IF_JSON}")

    def _text_taken(self, value: Node) -> str:
        """A sentence on the text of which a program takes a member."""
        source = self._looped(value)
        first = self._initial(source) if source is not None and source.type == "identifier" else None
        if source is None or self._result_of(called_on(first or source)) != "Promise<string>":
            return "It is a text."
        return f"{_shown(source)} is a text, of which the loop takes the characters."

    def _result_of(self, called: Node | None) -> str | None:
        """The type of the result of a function as it is declared."""
        places = [] if called is None else self.declared_definitions(anchor(called))
        result = self.tools.types.at(*self.tools.span(places[0])) if places else None
        return None if result is None else text_of(result).removeprefix(":").strip()

    def _not_iterable(self, warning: Finding, node: Node) -> Finding | None:
        """A declared object that is gone through as an array."""
        value = iterated(node)
        taken = _TYPE.search(warning.message)
        if value is None or taken is None or is_tried(value) or self._is_asked_for(value):
            return None
        members = [each for each in union_members(taken[1]) if each not in ("null", "undefined")]
        is_object = bool(members) and all(certainly_differs(each, "any[] | string", self._named) for each in members)
        if not is_object or "Promise<" in taken[1] or not self._is_declared(value):
            return None
        if self._is_dictionary(value):
            return warning.rejected("member", message="A dictionary is not an array", hint=_values_of(value))
        places = self.declared_types(anchor(value))
        if any(map(self._is_rewritten, places)):
            return None
        declared = self.tools.excerpt(places[0]) if places else None
        return warning.rejected("member", message="This object is not an array", declared=declared)

    def _uncalled(self) -> Iterator[Finding]:
        """Tools that are awaited, or measured, and not called."""
        for node in named_tools(self._places, self._tool_names):
            if self._is_tool(node) and not is_tried(node):
                message, hint = f"{text_of(node)} is not called", f"Write `await {text_of(node)}(...)`."
                yield Finding(code="uncalled", message=message, offset=node.start_byte, kind="tool", hint=hint)
        for node in tools_as_callbacks(self._places, self._tool_names):
            if self._is_tool(node) and not is_tried(node):
                message = f"{text_of(node)} takes one object, and is called with an element, its index and the array"
                tool = self._tool_of(node)
                call = f"{text_of(node)}({{ ... }})" if tool is None else self.tools.call_of(tool.name)
                hint = f"Write `(each) => {call}`."
                yield Finding(code="uncalled", message=message, offset=node.start_byte, kind="argument", hint=hint)

    def _dictionaries(self) -> Iterator[Finding]:
        """Dictionaries that are used as arrays."""
        for member in misused_dictionaries(self._places, self.tools.types):
            owner, name = member.child_by_field_name("object"), member.child_by_field_name("property")
            if owner is not None and name is not None and self._is_misused(member, owner, name):
                message = f"A dictionary is not an array: it has no {text_of(name)!r}"
                hint = _values_of(owner)
                yield Finding(code="dictionary", message=message, offset=name.start_byte, kind="member", hint=hint)

    def _is_misused(self, member: Node, owner: Node, name: Node) -> bool:
        if text_of(name) in self._hedged | self._dynamic.names or is_tried(member) or self._is_asked_for(owner):
            return False
        if not self._is_declared(owner) or not self._is_dictionary(owner):
            return False
        if member.parent is not None and is_tested(member, member.parent):
            return False
        # a member may well be called `length`, unless all of them are objects
        return is_called(member) or (text_of(name) == "length" and bool(self.types(name)))

    def _is_dictionary(self, expression: Node) -> bool:
        """True if a value is declared with arbitrary member names."""
        name = anchor(expression)
        places = [each for each in (*self.definitions(name), *self.types(name)) if each.declared]
        types = [self.tools.types.at(*self.tools.span(each)) for each in places]
        return bool(types) and all(each is not None and is_dictionary(each) for each in types)

    def _member_at(self, location: Location) -> str | None:
        """A member as it is declared."""
        member = self.tools.types.at(*self.tools.span(location))
        return None if member is None else text_of(member)

    def _is_asked_for(self, owner: Node) -> bool:
        """True if the program tests whether something is an array."""
        return f"Array.isArray({text_of(owner)})" in text_of(self.root)

    def _unfinished(self) -> Iterator[Finding]:
        """Callbacks that give promises of which an array's method makes nothing."""
        for call, name in async_visits(self._places):
            called = self._called(call)
            if any(each.own or each.declared for each in self.definitions(called.child_by_field_name("property"))):
                continue
            message = f"`{name}` does not wait for an async callback"
            finding = Finding(code=f"async-{name}", message=message, offset=call.start_byte, always=True)
            if name == "forEach" and (lost := gathered_too_late(call)) is not None:
                hint = f"{lost!r} is read before that: use `for...of`."
                yield finding.rejected("unawaited", hint=hint)
            elif name == "forEach":
                yield replace(
                    finding, hint="Use `for (const each of list)`, or `await Promise.all(list.map(async ...))`."
                )
            else:
                hint = "The promise that it gives counts as true. Await the values first, with Promise.all."
                yield finding.rejected("unawaited", hint=hint)


def _shown(value: Node) -> str:
    """An expression, if it is short."""
    text = text_of(unwrapped(value))
    return text if len(text) <= _MAX_SHOWN_CHARS else "..."


def _values_of(dictionary: Node) -> str:
    return f"Use Object.values({_shown(dictionary)}) or Object.entries({_shown(dictionary)})."
